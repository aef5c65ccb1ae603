"""What stands on the page and in which order: sections of words, charts, tables and where their numbers come from.

Takes the run and its frames; returns sections for the template. Apart from ``render`` because this is prose, and that
is files.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from openjev_lab import stats
from openjev_lab.report import facts, source, style, tables
from openjev_lab.report.source import Run

USABLE = "measured and status = 200 and error is null"


@dataclass(frozen=True, slots=True)
class Section:
    """One section: words above, then charts and tables by name, then the path from its numbers to their rows."""

    anchor: str
    title: str
    words: str
    charts: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    rows: str = ""


def sections(run: Run, frames: dict[str, pl.DataFrame]) -> list[Section]:
    """All sections of the page in order; accuracy, errors and the client's cost only where there are rows."""
    base, name = tables.baseline(run), tables.main_workload(run)
    chosen = f"timings.parquet where workload = '{name}' and {USABLE}"
    optional = [_errors(), _accuracy(chosen), _client_cost()]
    return [
        _gates(run, frames),
        _ladder(name, chosen),
        _savings(chosen),
        _tokens(chosen),
        _parity(base, chosen),
        _stages(chosen),
        *[section for section in optional if not frames[section.tables[0]].is_empty()],
        *[_further(other) for other in tables.workloads(run)[1:]],
        _published(run),
        _workload(),
        _notebooks(frames),
    ]


def _ladder(name: str, chosen: str) -> Section:
    return Section(
        "ladder",
        "The ladder",
        f"Mean latency of a request of {name}, one at a time over HTTP, from sending the POST to the decoded body. "
        "The table's figures are taken within each pass and averaged over passes. Two ranks are in use for the 95th "
        "percentile, so both are given: the published comparison's sorted[int(0.95 n) - 1], and linear interpolation.",
        charts=("ladder",),
        tables=("ladder", "rungs", "passes"),
        rows=f"{chosen}; a row of passes is one arm and pass_index, mean_ms = mean(latency_ns) / 1e6",
    )


def _savings(chosen: str) -> Section:
    return Section(
        "savings",
        "What each rung saves",
        "The rung below is the arm that an arm changes in one thing. A saving is the difference of two means over "
        "the requests that both arms answered, each request by its mean over passes. The interval is scipy's "
        f"bootstrap over requests ({stats.RESAMPLES:,} resamples, seed {stats.SEED}, BCa unless the row says "
        "otherwise): it tells how far the saving depends on which requests were drawn, not on the day or the "
        "machine. Passes apart: every pass of the arm was faster than every pass of the other.",
        charts=("savings",),
        tables=("savings",),
        rows=f"{chosen}; latency_ns averaged by arm and request_id, joined on request_id",
    )


def _tokens(chosen: str) -> Section:
    return Section(
        "tokens",
        "Latency against tokens",
        "A rung can be worth little at one length and much at another; the mean over the mix weighs long requests "
        "most. The second chart divides: where a line falls, the rung's gain shrinks with length.",
        charts=("latency_by_tokens", "relative_by_tokens"),
        rows=f"{chosen}; mean(latency_ns) / 1e6 by arm and request_id, as in tables/latency_by_request.parquet",
    )


def _parity(base: str | None, chosen: str) -> Section:
    return Section(
        "parity",
        f"Parity with {base} and with the rung below",
        "Differences of P(yes) are the largest over all pairs of passes of the two arms. A flip is a request that "
        "one arm answers with at least 0.5 and the other does not. Bit for bit: every score is the same float64.",
        charts=("parity",),
        tables=("parity",),
        rows=f"{chosen}; probabilities and scores of arm and base joined on request_id and place in the list",
    )


def _stages(chosen: str) -> Section:
    return Section(
        "stages",
        "Where a request's time goes",
        "The server reports queue, prepare (validate, compile, tokenize), execute (the forward) and finish "
        "(calibrate, format). What is left of the client's latency is HTTP, the event loop and the client.",
        charts=("stages",),
        tables=("stages",),
        rows=f"{chosen}; means of queue_ns, prepare_ns, execute_ns, finish_ns and latency_ns by arm, in ms",
    )


def _accuracy(chosen: str) -> Section:
    return Section(
        "accuracy",
        "Accuracy by label and by length",
        "Decisions (P(yes) at least 0.5) against labels, on each arm's first answered pass. Accuracy is the "
        "checkpoint's; a rung must not change it.",
        tables=("accuracy",),
        rows=f"{chosen} and label is not null, first pass_index; correct = ((probability >= 0.5) = label)",
    )


def _further(name: str) -> Section:
    return Section(
        f"also-{name}",
        f"Also measured: {name}",
        "The same arms on another workload; its means can't be compared with those of the first.",
        tables=(f"ladder-{name}", f"parity-{name}"),
        rows=f"timings.parquet where workload = '{name}' and {USABLE}",
    )


def _errors() -> Section:
    return Section(
        "errors",
        "Errors",
        "Measured requests without a usable answer. They are in no latency figure, and any makes the run invalid.",
        tables=("errors",),
        rows=f"timings.parquet where measured and not ({USABLE})",
    )


def _client_cost() -> Section:
    return Section(
        "client",
        "The client's own cost",
        "Round trips to an endpoint that reads the body and answers at once: part of every latency above.",
        tables=("client_cost",),
        rows=f"timings.parquet where arm = '{source.NULL_ARM}' and {USABLE}",
    )


def _published(run: Run) -> Section:
    same = facts.same_device(run)
    caution = (
        "Ours ran on the same kind of device and geometry, so the two share an axis."
        if same
        else f"Theirs ran on {facts.PUBLISHED_DEVICE} with the 27B model in BF16; ours on {facts.device(run)} with the "
        f"geometry {facts.geometry(run)}. Only the token counts are the same, so no ratio between the two is given."
    )
    return Section(
        "published",
        "The published figures, beside ours",
        f"{facts.published()['source']}. {caution} Each figure of theirs is a comparison of its own day: raw HF, "
        "OpenJev-Fast and the finished worker were measured together, the RMSNorm pair and the graphs apart.",
        charts=("published",),
        tables=("published",),
        rows="theirs: openjev_lab/report/published.json; ours: tables/passes where workload = 'mix74'",
    )


def _workload() -> Section:
    return Section(
        "workload",
        "The workload",
        "Token counts are the server's. Unexpected: the server counted other tokens than the workload was built for.",
        charts=("workload",),
        tables=("workload",),
        rows="timings.parquet, one row a request_id: tokens, expected_tokens, question_count, label",
    )


def _gates(run: Run, frames: dict[str, pl.DataFrame]) -> Section:
    words = (
        "Declared in the experiment before the run, each for one arm or several; the value is the worst of them. "
        "A gate that could not be evaluated is missed."
    )
    if frames["gates"].is_empty():
        words = "None was judged." if run.gates is None else "The experiment declares none."
    shown = () if frames["gates"].is_empty() else ("gates_declared",)
    rows = "gates.json, one entry a gate and arm, as in tables/gates.parquet" if shown else ""
    return Section("gates", "Gates", words, tables=shown, rows=rows)


def _notebooks(frames: dict[str, pl.DataFrame]) -> Section:
    if frames["notebooks"].is_empty():
        return Section("notebooks", "Notebooks", "This run was measured without notebooks.")
    words = "Executed copies, one fresh kernel each, lie in notebooks/."
    return Section("notebooks", "Notebooks", words, tables=("notebooks",), rows="index.json")


def frames(run: Run) -> dict[str, pl.DataFrame]:
    """Every frame of the report by the name of its file in tables/; further workloads have two of their own."""
    further = tables.workloads(run)[1:]
    also = {f"ladder-{name}": tables.ladder(run, name) for name in further}
    also |= {f"parity-{name}": tables.parity(run, name) for name in further}
    return also | {
        "accuracy": tables.accuracy(run),
        "client_cost": facts.client_cost(run),
        "errors": facts.errors(run),
        "facts": facts.run_facts(run),
        "gates": facts.gates(run),
        "gates_declared": facts.gates_declared(run),
        "ladder": tables.ladder(run),
        "latency_by_request": tables.latency_by_request(run),
        "notebooks": facts.notebooks(run),
        "parity": tables.parity(run),
        "passes": tables.passes(run),
        "published": facts.published_ladder(run),
        "rungs": facts.rungs(run),
        "savings": tables.savings(run),
        "stages": tables.stages(run),
        "workload": facts.workload(run),
    }


def table_html(all_frames: dict[str, pl.DataFrame], section: Section) -> dict[str, str]:
    """The section's tables as HTML by name; one without rows is a sentence."""
    return {
        name: style.html(all_frames[name], name) if all_frames[name].height else "<p class='none'>No rows.</p>"
        for name in section.tables
    }
