"""What surrounds the numbers: run facts, workload, gates, notebooks, errors, and the published figures beside ours.

Each function takes the run folder (or a loaded Run) and returns a polars frame or plain records. Apart from ``tables``
because nothing here is a statistic of timings: it is what a reader needs before believing one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from openjev_lab import stats
from openjev_lab.report import source, tables
from openjev_lab.report.source import Run
from openjev_lab.report.tables import Source

NOT_RECORDED = "not recorded"
UNFINISHED = "it was not measured to its end"
SYNTHETIC = "synthetic:"
PUBLISHED = Path(__file__).parent / "published.json"
PUBLISHED_WORKLOAD = "mix74"
PUBLISHED_DEVICE = "one H200"
PUBLISHED_DATE = "October 2026"
DIFFERENCE_GATE = "max_probability_difference"


@dataclass(frozen=True, slots=True)
class Theirs:
    """One published row over the 74-request mix, and the arm of ours that is the same work."""

    name: str
    keys: tuple[str, ...]
    """Path to its two pass means in published.json."""
    arm: str | None
    """None: no arm of ours is the same."""


THEIRS = (
    Theirs("raw HF", ("backends_http_ms", "raw_hf", "passes"), "raw-hf"),
    Theirs("OpenJev-Fast", ("backends_http_ms", "openjev_fast", "passes"), None),
    Theirs("native, scalar RMSNorm", ("ab_rmsnorm", "http_ms", "baseline"), "fused-gate"),
    Theirs("native, cached RMSNorm", ("ab_rmsnorm", "http_ms", "cached"), "cached-rmsnorm"),
    Theirs("native, finished, eager", ("backends_http_ms", "native_eager", "passes"), "packed-silu"),
    Theirs("native, finished, 64 graphs", ("graph_http_ms", "mixed_74", "graph_64"), "graph-64"),
)


@cache
def published() -> dict[str, Any]:
    """published.json: figures of the System1-Omni project; its ``source`` field says from where."""
    return json.loads(PUBLISHED.read_text(encoding="utf-8"))


def published_ladder(run: Source) -> pl.DataFrame:
    """One row a pass mean over the 74-request mix: whose (ours, theirs), name, arm, pass_index, mean_ms, device."""
    run = source.load(run)
    rows: list[dict[str, Any]] = []
    for theirs in THEIRS:
        values: Any = published()
        for key in theirs.keys:
            values = values[key]
        for index, mean_ms in enumerate(values):
            row = {"whose": "theirs", "name": theirs.name, "arm": theirs.arm, "pass_index": index}
            rows.append(row | {"mean_ms": float(mean_ms), "device": PUBLISHED_DEVICE})
    ours = tables.passes(run).filter((pl.col("workload") == PUBLISHED_WORKLOAD) & pl.col("mean_ms").is_not_null())
    for row in ours.iter_rows(named=True):
        own = {"whose": "ours", "name": row["arm"], "arm": row["arm"], "pass_index": row["pass_index"]}
        rows.append(own | {"mean_ms": row["mean_ms"], "device": device(run)})
    schema = {"whose": pl.String, "name": pl.String, "arm": pl.String, "pass_index": pl.Int64}
    return pl.DataFrame(rows, schema=schema | {"mean_ms": pl.Float64, "device": pl.String})


def same_device(run: Source) -> bool:
    """Whether the run's device and geometry are those of the published figures, so that a ratio means something."""
    run = source.load(run)
    return "H200" in device(run) and geometry(run) == "27b"


def device(run: Source) -> str:
    """What the arms ran on, in words: the GPU's name where the experiment's device is one, else the CPU's."""
    run = source.load(run)
    machine = run.manifest.get("machine", {})
    given = len(run.manifest.get("affinity", []))
    if str(run.resolved.get("device", "cpu")).startswith("cuda"):
        names = [gpu.get("name", "unnamed GPU") for gpu in machine.get("gpus", [])]
        return ", ".join(names) or NOT_RECORDED
    if not machine.get("cpu"):
        return NOT_RECORDED
    return machine["cpu"] + (f", {given} CPU{'' if given == 1 else 's'}" if given else "")


def geometry(run: Source) -> str:
    """The checkpoint's geometry: by its name where it is synthetic, else as the arms describe it."""
    run = source.load(run)
    checkpoint = str(run.resolved["checkpoint"])
    if checkpoint.startswith(SYNTHETIC):
        return checkpoint.removeprefix(SYNTHETIC).partition("?")[0]
    return next((str(arm.describe["geometry"]) for arm in run.arms if "geometry" in arm.describe), NOT_RECORDED)


def date(run: Source) -> str:
    """The UTC day on which the run was started."""
    created = source.load(run).manifest.get("created")
    return NOT_RECORDED if created is None else str(created)[:10]


def summary(run: Source) -> str:
    """One line under every chart: device, date, passes."""
    run = source.load(run)
    rows = tables.passes(run).filter(pl.col("workload") == tables.main_workload(run))
    count = int(rows["pass_index"].n_unique())
    return f"{device(run)} · {date(run)} · {count} measured pass{'' if count == 1 else 'es'}"


def not_measured(run: Source) -> list[str]:
    """Sentences on what this evidence can't say."""
    run = source.load(run)
    sentences = [
        f"{arm.name} has no rows ({arm.status}): {arm.reason or UNFINISHED}."
        for arm in run.arms
        if arm.name not in tables.measured_arms(run)
    ]
    by_pass = tables.passes(run)
    single = by_pass.group_by("arm", maintain_order=True).agg(pl.len().alias("n")).filter(pl.col("n") == 1)["arm"]
    if single.len():
        sentences.append(f"One pass only, so no spread between passes: {', '.join(single)}.")
    if not _recorded(run, "queue_ns"):
        sentences.append("No time by stage: no server reported its own.")
    sentences.append("Energy, memory and more than one request at a time are not in this evidence.")
    return sentences


def _recorded(run: Run, column: str) -> bool:
    return bool(run.timings[column].is_not_null().any())


def run_facts(run: Source) -> pl.DataFrame:
    """(fact, value) in reading order; "not recorded" where the manifest is silent."""
    run = source.load(run)
    git, machine = run.manifest.get("git", {}), run.manifest.get("machine", {})
    packages = run.manifest.get("packages", {})
    dirty = {True: " with uncommitted changes", False: ""}.get(git.get("dirty"), "")
    protocol = run.resolved.get("protocol", {})
    values = {
        "experiment": run.resolved.get("name"),
        "run": run.run_id,
        "started (UTC)": run.manifest.get("created"),
        "device": device(run),
        "system": machine.get("system"),
        "revision": f"{git['revision'][:12]}{dirty}" if git.get("revision") else None,
        "code": run.manifest.get("code_sha256", "")[:12],
        "checkpoint": run.resolved.get("checkpoint"),
        "geometry": geometry(run),
        "dtype": run.resolved.get("dtype"),
        "threads": run.resolved.get("threads"),
        "passes": protocol.get("passes"),
        "order": protocol.get("order"),
        "python": run.manifest.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in sorted(packages.items())),
        "command": " ".join(run.manifest.get("argv", [])),
    }
    rows = [(name, NOT_RECORDED if value in (None, "") else str(value)) for name, value in values.items()]
    return pl.DataFrame(rows, schema={"fact": pl.String, "value": pl.String}, orient="row")


def workload(run: Source) -> pl.DataFrame:
    """One row a workload: requests, questions, distinct lengths, tokens (min, median, mean, max), labels yes and no.

    ``tokens_unexpected`` counts requests whose served token count is not the one that the workload was built for.
    """
    run = source.load(run)
    rows = []
    for name in tables.workloads(run):
        own = run.timings.filter(pl.col("workload") == name)
        items = own.group_by("request_id").agg(pl.col("tokens", "expected_tokens", "question_count", "label").max())
        tokens = items["tokens"].drop_nulls().sort().to_numpy()
        rows.append(
            {
                "workload": name,
                "requests": items.height,
                "questions": int(items["question_count"].sum()),
                "distinct_lengths": len(set(tokens.tolist())),
                "tokens_min": int(tokens[0]) if tokens.size else None,
                "tokens_median": stats.percentile(tokens, 50),
                "tokens_mean": stats.mean(tokens),
                "tokens_max": int(tokens[-1]) if tokens.size else None,
                "label_yes": int(items["label"].sum()),
                "label_no": int((~items["label"]).sum()),
                "tokens_unexpected": items.filter(pl.col("tokens") != pl.col("expected_tokens")).height,
            }
        )
    whole = dict.fromkeys(("requests", "questions", "distinct_lengths", "tokens_min"), pl.Int64)
    schema = {"workload": pl.String} | whole | {"tokens_median": pl.Float64, "tokens_mean": pl.Float64}
    schema |= dict.fromkeys(("tokens_max", "label_yes", "label_no", "tokens_unexpected"), pl.Int64)
    return pl.DataFrame(rows, schema=schema)


def gates(run: Source) -> pl.DataFrame:
    """One row a gate: gate (its metric), arm, base, workload, bound, limit, value, verdict (passed, missed), reason."""
    rows = [
        {
            "gate": gate.kind,
            "arm": gate.arm,
            "base": gate.base,
            "workload": gate.workload,
            "bound": gate.bound,
            "limit": gate.limit,
            "value": gate.value,
            "verdict": "passed" if gate.passed else "missed",
            "reason": gate.reason,
        }
        for gate in source.load(run).gates or ()
    ]
    text = dict.fromkeys(("gate", "arm", "base", "workload", "bound"), pl.String)
    schema = text | {"limit": pl.Float64, "value": pl.Float64, "verdict": pl.String, "reason": pl.String}
    return pl.DataFrame(rows, schema=schema)


def gates_declared(run: Source) -> pl.DataFrame:
    """One row a gate as declared: gate, workload, base, limit (in words), arms, value (the worst of them), verdict.

    Several bases are each arm's own rung below. The verdict names the arms that miss it; value is null where none of
    the arms could be evaluated.
    """
    missed = pl.col("arm").filter(pl.col("verdict") == "missed").str.join(", ")
    worst = pl.when(pl.col("bound").first() == "at_most").then(pl.col("value").max()).otherwise(pl.col("value").min())
    base = pl.when(pl.col("base").n_unique() > 1).then(pl.lit("the rung below")).otherwise(pl.col("base").first())
    keys = ["gate", "workload", "bound", "limit"]
    frame = gates(run).group_by(keys, maintain_order=True).agg(
        base.alias("base"), pl.col("arm").str.join(", ").alias("arms"), worst.alias("value"), missed.alias("missed")
    )
    words = [f"{row['bound'].replace('_', ' ')} {row['limit']:g}" for row in frame.iter_rows(named=True)]
    verdict = pl.when(pl.col("missed") == "").then(pl.lit("passed")).otherwise(pl.format("missed: {}", "missed"))
    return frame.select(
        pl.col("gate").str.replace_all("_", " "), "workload", "base",
        pl.Series("limit", words, dtype=pl.String), "arms", "value", verdict.alias("verdict"),
    )  # fmt: skip


def rungs(run: Source) -> pl.DataFrame:
    """One row an arm: arm, base, kind, exact (the same bits as its base are promised), hypothesis."""
    rows = [(arm.name, arm.base, arm.kind, arm.exact, arm.hypothesis) for arm in source.load(run).arms]
    schema = {"arm": pl.String, "base": pl.String, "kind": pl.String, "exact": pl.Boolean, "hypothesis": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def notebooks(run: Source) -> pl.DataFrame:
    """One row a notebook: notebook, status (done, failed, dead), duration_s, error."""
    rows = [
        (row["notebook"], row["status"], float(row["duration_s"]), row.get("error"))
        for row in source.load(run).notebooks
    ]
    schema = {"notebook": pl.String, "status": pl.String, "duration_s": pl.Float64, "error": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def errors(run: Source) -> pl.DataFrame:
    """Measured requests that gave no usable answer, counted by arm, workload, pass, HTTP status and error text."""
    run = source.load(run)
    bad = run.timings.filter(pl.col("measured")).join(stats.usable(run.timings), on=KEY, how="anti", nulls_equal=True)
    keys = ["arm", "workload", "pass_index", "status", "error"]
    return bad.group_by(keys).agg(pl.len().cast(pl.Int64).alias("requests")).sort(keys)


KEY = ["arm", "workload", "pass_index", "position", "request_id", "attempt"]


def client_cost(run: Source) -> pl.DataFrame:
    """The client's own cost: round trips to an endpoint that only reads and answers. requests, mean_ms, p50_ms, p95s.

    Included in every latency of this run, whatever the arm.
    """
    rows = source.load(run).timings.filter(pl.col("arm") == source.NULL_ARM)
    return stats.pass_summary(rows).drop("arm", "workload", "errors")


def difference_limits(run: Source) -> list[float]:
    """The limits that gates set on the largest probability difference, for drawing them."""
    found = source.load(run).gates or ()
    return sorted({gate.limit for gate in found if gate.kind == DIFFERENCE_GATE and gate.limit is not None})
