"""Read one run's evidence, as it was written, into one record that tables and charts start from.

Takes ``reports/<run>/``; returns ``Run``. Missing evidence is not an error: an interrupted run has no gates yet, a run
without notebooks has no index, and the report says so. Malformed evidence is. Apart from ``tables`` because only this
file knows the names and shapes of the evidence files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from openjev_lab.errors import LabError

# What the report reads of a timings row; evidence declares these and more. Clocks are ns, null = not measured.
TIMINGS: dict[str, Any] = {
    "arm": pl.String,
    "workload": pl.String,
    "pass_index": pl.Int64,
    "measured": pl.Boolean,
    "position": pl.Int64,
    "request_id": pl.String,
    "question_count": pl.Int64,
    "tokens": pl.Int64,
    "expected_tokens": pl.Int64,
    "label": pl.Boolean,
    "started_ns": pl.Int64,
    "latency_ns": pl.Int64,
    "queue_ns": pl.Int64,
    "prepare_ns": pl.Int64,
    "execute_ns": pl.Int64,
    "finish_ns": pl.Int64,
    "probability": pl.Float64,
    "score": pl.Float64,
    "probabilities": pl.List(pl.Float64),
    "scores": pl.List(pl.Float64),
    "status": pl.Int64,
    "error": pl.String,
    "attempt": pl.Int64,
}
NULL_ARM = "null-endpoint"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm as the experiment declares it and as it went."""

    name: str
    status: str
    """measured, skipped, failed or running as recorded last; "pending" when the run holds no record of it."""
    reason: str | None
    base: str | None
    """The arm below: what this one changes in one thing."""
    kind: str
    """hf-raw, hf-merged or native, as the rung is declared."""
    exact: bool
    """Whether the same bits as ``base`` are promised."""
    hypothesis: str
    describe: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate on one arm, as it was judged."""

    name: str
    kind: str
    """The metric."""
    arm: str
    base: str | None
    workload: str
    bound: str
    """at_most or at_least."""
    limit: float
    value: float | None
    """None: it could not be evaluated, and has failed."""
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True, eq=False)  # compared and hashed by identity, so that figures can be kept by run
class Run:
    """Everything the report reads; arms are in the experiment's order, which is the ladder's."""

    folder: Path
    run_id: str
    timings: pl.DataFrame
    arms: tuple[Arm, ...]
    gates: tuple[Gate, ...] | None
    """None: the gates were never evaluated."""
    invalid: tuple[str, ...]
    """Why the run does not count, as evidence says; empty when it does."""
    manifest: dict[str, Any]
    resolved: dict[str, Any]
    notebooks: tuple[dict[str, Any], ...]

    def arm(self, name: str) -> Arm:
        """The arm of that name; LabError with the names there are."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise LabError(f"run {self.run_id} has no arm {name}; it has {', '.join(arm.name for arm in self.arms)}")


def load(run: Path | str | Run) -> Run:
    """Read a run folder; a Run is returned as it is, so that every public function takes either.

    Raises LabError naming the file where evidence is absent altogether, is not JSON, or lacks a column.
    """
    if isinstance(run, Run):
        return run
    folder = Path(run)
    resolved = _object(folder / "resolved.json")
    if resolved is None:
        raise LabError(f"{folder} is no run folder: it has no resolved.json")
    verdict = _object(folder / "gates.json")
    manifest = _object(folder / "manifest.json") or {}
    notebooks = (_object(folder / "index.json") or {}).get("notebooks", [])
    return Run(
        folder=folder,
        run_id=str(manifest.get("run_id") or folder.resolve().name),
        timings=_timings(folder),
        arms=_arms(folder, resolved),
        gates=None if verdict is None else tuple(Gate(**row) for row in verdict["gates"]),
        invalid=() if verdict is None else tuple(verdict["invalid"]),
        manifest=manifest,
        resolved=resolved,
        notebooks=tuple(notebooks),
    )


def _object(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise LabError(f"{path} is not JSON: {problem}") from None


def _timings(folder: Path) -> pl.DataFrame:
    """Rows in their declared types: of timings.parquet, or of the journal while that is ahead of it; else none.

    A notebook draws its rung while the run still goes on, when the journal is all there is.
    """
    path, journal = folder / "timings.parquet", folder / "timings.jsonl"
    frame = pl.read_parquet(path) if path.exists() else pl.DataFrame(schema=TIMINGS)
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []  # past the last newline: half a row
    if len(lines) > frame.height:
        path = journal
        frame = pl.read_ndjson(b"\n".join(lines), schema_overrides=TIMINGS, infer_schema_length=None)
    absent = sorted(set(TIMINGS) - set(frame.columns))
    if absent:
        raise LabError(f"{path} lacks the column {', '.join(absent)}")
    order = ["workload", "arm", "pass_index", "position", "request_id", "attempt"]
    return frame.select([pl.col(name).cast(kind) for name, kind in TIMINGS.items()]).sort(order)


def _arms(folder: Path, resolved: dict[str, Any]) -> tuple[Arm, ...]:
    """The experiment's arms in its order, each with the last thing recorded about it."""
    path = folder / "arms.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    records = {record["arm"]: record for record in map(json.loads, lines)}
    arms = []
    for declared in resolved["arms"]:
        record = records.get(declared["name"], {})
        arms.append(
            Arm(
                name=declared["name"],
                status=record.get("status", "pending"),
                reason=record.get("reason"),
                base=declared["base"],
                kind=declared["kind"],
                exact=declared["exact"],
                hypothesis=declared["hypothesis"],
                describe=record.get("describe", {}),
            )
        )
    return tuple(arms)


