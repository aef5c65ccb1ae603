"""Frames computed from a run's evidence; every number in a chart or on the page comes from one of these.

Each function takes the run folder (or a loaded Run) and returns a polars frame, sorted, in ms unless a column says
otherwise, null where nothing was measured. Apart from ``charts`` so that the numbers can be had, tested and recomputed
without drawing anything; what surrounds the numbers (facts, gates, workload) is in ``facts``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from openjev_lab import stats
from openjev_lab.report import source
from openjev_lab.report.source import Run

Source = Path | str | Run
# Far finer than any clock here, and coarse enough that the order of a sum (which CPUs do differently) never shows.
DIGITS = 9
STAGES = ("queue", "prepare", "execute", "finish")
REST = "HTTP and client"
SHORT_TOKENS, LONG_TOKENS = 200, 1000
DECISION = 0.5

PASS_FIGURES = ("mean_ms", "p50_ms", "p95_rank_ms", "p95_linear_ms")
LADDER_SCHEMA = {
    "arm": pl.String, "status": pl.String, "reason": pl.String, "passes": pl.Int64, "requests": pl.Int64,
    "errors": pl.Int64, "missing": pl.Int64, "mean_ms": pl.Float64, "p50_ms": pl.Float64, "p95_rank_ms": pl.Float64,
    "p95_linear_ms": pl.Float64, "times_baseline": pl.Float64, "correct": pl.Int64, "labelled": pl.Int64,
}  # fmt: skip
SAVINGS_SCHEMA = {
    "arm": pl.String, "against": pl.String, "base": pl.String, "requests": pl.Int64, "arm_mean_ms": pl.Float64,
    "base_mean_ms": pl.Float64, "saving_ms": pl.Float64, "saving_ms_low": pl.Float64, "saving_ms_high": pl.Float64,
    "saving_percent": pl.Float64, "saving_percent_low": pl.Float64, "saving_percent_high": pl.Float64,
    "ratio": pl.Float64, "ratio_low": pl.Float64, "ratio_high": pl.Float64, "interval": pl.String,
    "passes_disjoint": pl.Boolean, "note": pl.String,
}  # fmt: skip
PARITY_SCHEMA = {
    "arm": pl.String, "against": pl.String, "base": pl.String, "candidates": pl.Int64, "max_difference": pl.Float64,
    "mean_difference": pl.Float64, "flips": pl.Int64, "largest_flip_margin": pl.Float64, "unequal_scores": pl.Int64,
    "exact": pl.Boolean,
}  # fmt: skip
STAGES_SCHEMA = {
    "arm": pl.String, "stage": pl.String, "requests": pl.Int64, "mean_ms": pl.Float64, "share_percent": pl.Float64,
}  # fmt: skip
BY_REQUEST_SCHEMA = {
    "arm": pl.String, "request_id": pl.String, "tokens": pl.Int64, "latency_ms": pl.Float64, "passes": pl.Int64,
}  # fmt: skip
ACCURACY_SCHEMA = {
    "arm": pl.String, "group": pl.String, "requests": pl.Int64, "correct": pl.Int64, "accuracy_percent": pl.Float64,
}  # fmt: skip


def baseline(run: Source) -> str | None:
    """The arm that the ladder starts from: the first raw Hugging Face arm, else the first arm; None without arms."""
    arms = source.load(run).arms
    return next((arm.name for arm in arms if arm.kind == "hf-raw"), arms[0].name if arms else None)


def workloads(run: Source) -> list[str]:
    """Workloads with rows, in the experiment's order; the first is what headline and charts are about."""
    run = source.load(run)
    declared = [workload["name"] for workload in run.resolved.get("workloads", [])]
    found = set(run.timings["workload"].unique()) - {source.NULL_ARM}
    return [name for name in declared if name in found] + sorted(found - set(declared))


def main_workload(run: Source) -> str:
    """The first workload that has rows; the first declared one before any row was recorded."""
    run = source.load(run)
    declared = [workload["name"] for workload in run.resolved.get("workloads", [])]
    return next(iter([*workloads(run), *declared, "none"]))


def measured_arms(run: Source, workload: str | None = None) -> list[str]:
    """Arms with at least one usable row on the workload, in ladder order."""
    run = source.load(run)
    rows = stats.usable(run.timings).filter(pl.col("workload") == (workload or main_workload(run)))
    found = set(rows["arm"])
    return [arm.name for arm in run.arms if arm.name in found]


def passes(run: Source) -> pl.DataFrame:
    """``stats.pass_summary`` of every workload and arm, in the experiment's order."""
    run = source.load(run)
    frame = stats.pass_summary(run.timings.filter(pl.col("arm") != source.NULL_ARM))
    places = [
        pl.col(column).replace_strict({name: i for i, name in enumerate(names)}, default=None, return_dtype=pl.Int64)
        for column, names in (("workload", workloads(run)), ("arm", [arm.name for arm in run.arms]))
    ]
    return frame.sort(*places, "pass_index").with_columns(rounded())


def ladder(run: Source, workload: str | None = None) -> pl.DataFrame:
    """One row an arm, in ladder order, measured or not.

    mean_ms, p50_ms, p95_rank_ms and p95_linear_ms are averages over the arm's passes of each pass's own figure;
    missing counts requests of the protocol's passes that an arm with rows has no row for; times_baseline is the
    baseline's mean over the arm's on the requests that both answered; correct counts decisions of the first pass that
    agree with their label, out of ``labelled``.
    """
    run = source.load(run)
    workload = workload or main_workload(run)
    by_pass = passes(run).filter(pl.col("workload") == workload)
    right = accuracy(run, workload).filter(pl.col("group") == "all")
    known = run.timings.filter(pl.col("workload") == workload)["request_id"].n_unique()
    expected = known * run.resolved["protocol"]["passes"]
    rows = []
    for arm in run.arms:
        own = by_pass.filter(pl.col("arm") == arm.name)
        timed = own.filter(pl.col("mean_ms").is_not_null())
        ours, theirs = stats.paired_latencies(run.timings, arm.name, baseline(run) or arm.name, workload)
        labelled = right.filter(pl.col("arm") == arm.name)
        sent = int(own["requests"].sum()) + int(own["errors"].sum())
        rows.append(
            {
                "arm": arm.name,
                "status": arm.status,
                "reason": arm.reason,
                "passes": timed.height,
                "requests": int(own["requests"].sum()),
                "errors": int(own["errors"].sum()),
                "missing": expected - sent if sent else None,
                **{name: stats.mean(timed[name].drop_nulls().to_numpy()) for name in PASS_FIGURES},
                "times_baseline": float(theirs.mean() / ours.mean()) if ours.size else None,
                "correct": labelled["correct"].item() if labelled.height else None,
                "labelled": labelled["requests"].item() if labelled.height else 0,
            }
        )
    return _frame(rows, LADDER_SCHEMA)


def savings(run: Source, workload: str | None = None) -> pl.DataFrame:
    """Two rows an arm above the first: against the rung ``below`` (its declared base) and against the ``baseline``.

    Positive saving = faster. Intervals are 95 %, paired by request; ``interval`` names the method. Where a pair can't
    be formed the figures are null and ``note`` says which arm has no rows.
    """
    run = source.load(run)
    workload = workload or main_workload(run)
    rows = [_saving(run, arm, base, workload) | {"against": against} for arm, against, base in _pairs(run)]
    return _frame(rows, SAVINGS_SCHEMA)


def saving(run: Source, arm: str, base: str, workload: str | None = None) -> pl.DataFrame:
    """One row in the columns of ``savings``: ``arm`` against any ``base`` of the run."""
    run = source.load(run)
    run.arm(arm), run.arm(base)
    row = _saving(run, arm, base, workload or main_workload(run))
    return _frame([row | {"against": "chosen"}], SAVINGS_SCHEMA)


def parity(run: Source, workload: str | None = None) -> pl.DataFrame:
    """Agreement of each arm with the rung below and with the baseline, as ``stats.Parity``; only pairs with rows.

    ``candidates`` are the probabilities compared: one a yes-or-no request, one an option or level of the others.
    """
    run = source.load(run)
    workload = workload or main_workload(run)
    each = stats.candidates(run.timings)
    rows = []
    for arm, against, base in _pairs(run):
        agreement = stats.parity(each, arm, base, workload)
        if agreement:
            figures = {name: getattr(agreement, name) for name in PARITY_SCHEMA if hasattr(agreement, name)}
            rows.append(figures | {"against": against, "candidates": agreement.requests})
    return _frame(rows, PARITY_SCHEMA)


def latency_by_request(run: Source, workload: str | None = None) -> pl.DataFrame:
    """(arm, request_id, tokens, latency_ms, passes): each request's mean over an arm's passes, by arm and tokens."""
    run = source.load(run)
    workload = workload or main_workload(run)
    tokens = run.timings.filter(pl.col("workload") == workload).group_by("request_id").agg(pl.col("tokens").max())
    frames = [
        stats.request_means(run.timings, arm, workload)
        .join(tokens, on="request_id")
        .select(pl.lit(arm).alias("arm"), "request_id", "tokens", "latency_ms", "passes")
        .sort("tokens", "request_id")
        for arm in measured_arms(run, workload)
    ]
    empty = pl.DataFrame(schema=BY_REQUEST_SCHEMA)
    return pl.concat([empty, *frames]).with_columns(rounded())


def stages(run: Source, workload: str | None = None) -> pl.DataFrame:
    """Mean ms and share of a request by stage, one row an (arm, stage); only rows whose server reported all four.

    "HTTP and client" is what is left: the client's latency less the four stages of the server.
    """
    run = source.load(run)
    good = stats.usable(run.timings).filter(
        (pl.col("workload") == (workload or main_workload(run)))
        & pl.all_horizontal(pl.col(f"{stage}_ns").is_not_null() for stage in STAGES)
    )
    rows = []
    for arm in run.arms:
        own = good.filter(pl.col("arm") == arm.name)
        if own.is_empty():
            continue
        total_ms = float(own["latency_ns"].to_numpy().mean()) / stats.NS_PER_MS
        means_ms = {stage: float(own[f"{stage}_ns"].to_numpy().mean()) / stats.NS_PER_MS for stage in STAGES}
        means_ms[REST] = total_ms - sum(means_ms.values())
        for stage, mean_ms in means_ms.items():
            figures = {"mean_ms": mean_ms, "share_percent": 100 * mean_ms / total_ms}
            rows.append({"arm": arm.name, "stage": stage, "requests": own.height} | figures)
    return _frame(rows, STAGES_SCHEMA)


def accuracy(run: Source, workload: str | None = None) -> pl.DataFrame:
    """Decisions (probability >= 0.5) against labels on each arm's first answered pass: all, by label, by length."""
    run = source.load(run)
    good = stats.usable(run.timings).filter(
        (pl.col("workload") == (workload or main_workload(run)))
        & pl.col("label").is_not_null()
        & pl.col("probability").is_not_null()
    )
    groups = {
        "all": pl.lit(True),
        "label yes": pl.col("label"),
        "label no": ~pl.col("label"),
        f"to {SHORT_TOKENS} tokens": pl.col("tokens") <= SHORT_TOKENS,
        f"{SHORT_TOKENS + 1} to {LONG_TOKENS} tokens": pl.col("tokens").is_between(SHORT_TOKENS + 1, LONG_TOKENS),
        f"over {LONG_TOKENS} tokens": pl.col("tokens") > LONG_TOKENS,
    }
    rows = []
    for arm in run.arms:
        own = good.filter(pl.col("arm") == arm.name)
        if own.is_empty():
            continue
        own = own.filter(pl.col("pass_index") == own["pass_index"].min())
        for group, members in groups.items():
            part = own.filter(members)
            correct = int(((part["probability"] >= DECISION) == part["label"]).sum())
            share = 100 * correct / part.height if part.height else None
            figures = {"requests": part.height, "correct": correct, "accuracy_percent": share}
            rows.append({"arm": arm.name, "group": group} | figures)
    return _frame(rows, ACCURACY_SCHEMA)


def _pairs(run: Run) -> list[tuple[str, str, str]]:
    """(arm, "below" or "baseline", base) for every arm that has such a base."""
    first = baseline(run)
    pairs = [(arm.name, "below", arm.base) for arm in run.arms if arm.base]
    pairs += [(arm.name, "baseline", first) for arm in run.arms if first and arm.name != first]
    return pairs


@lru_cache(maxsize=256)  # the page asks for a pair up to three times, and an interval takes a while
def _saving(run: Run, arm: str, base: str, workload: str) -> dict[str, Any]:
    pair = stats.paired(run.timings, arm, base, workload)
    if pair is None:
        absent = [name for name in (arm, base) if name not in measured_arms(run, workload)]
        note = f"not measured: {', '.join(absent)}" if absent else "no request answered by both"
        return {"arm": arm, "base": base, "requests": 0, "note": note}
    row: dict[str, Any] = {"arm": arm, "base": base, "requests": pair.requests}
    row |= {"arm_mean_ms": pair.arm_mean_ms, "base_mean_ms": pair.base_mean_ms}
    row["passes_disjoint"] = pair.passes_disjoint
    for name, value, scale in (
        ("saving_ms", pair.saving_ms, 1.0),
        ("saving_percent", pair.saving_fraction, 100.0),
        ("ratio", pair.ratio, 1.0),
    ):
        row[name] = value.estimate * scale
        row[f"{name}_low"] = None if value.low is None else value.low * scale
        row[f"{name}_high"] = None if value.high is None else value.high * scale
    return row | {"interval": pair.saving_ms.method}


def _frame(rows: list[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    full = [{name: row.get(name) for name in schema} for row in rows]
    return pl.DataFrame(full, schema=schema).with_columns(rounded())


def rounded() -> pl.Expr:
    """Every float of a frame to ``DIGITS`` significant digits."""
    return pl.col(pl.Float64).round_sig_figs(DIGITS)
