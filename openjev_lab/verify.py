"""Recompute a run from its rows and say what differs: hashes, the table, the gates, the report.

    openjev-lab verify reports/ladder-tiny-cpu

Takes a run folder; returns problems, each naming a file; none means that the run is as it was recorded. It only reads.
Apart from ``evidence``, which must not know how rows are judged or drawn.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openjev_lab.errors import LabError
from openjev_lab.evidence import manifest, sums
from openjev_lab.evidence.rows import frame
from openjev_lab.evidence.run import (
    GATES,
    MANIFEST,
    RESOLVED,
    TABLE,
    TIMINGS,
    WORKLOAD,
    Evidence,
    dump,
    first_difference,
    read,
    table_metadata,
)

REPORT = "report.html"
DERIVED = ("tables", "charts")


@dataclass(frozen=True, slots=True)
class Problem:
    """One file that is not what it should be."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def verify(run_dir: Path | str) -> list[Problem]:
    """Every difference found, by hashes first. Raises LabError if the folder holds no run."""
    folder = Path(run_dir)
    if not (folder / RESOLVED).exists():
        raise LabError(f"{folder} is no run folder: it has no {RESOLVED}")
    problems = [Problem(*wrong) for wrong in sums.check(folder)]
    try:
        evidence = read(folder)
    except LabError as problem:  # what can't be read can't be recomputed; its hash has named it already
        file, _, what = str(problem).partition(" ")
        return [*problems, Problem(file, what)]
    damaged = {problem.file for problem in problems}
    for file, check in CHECKS.items():
        if file in damaged or (file == REPORT and damaged & CHECKS.keys()):
            continue  # named already, and what a reader makes of damaged bytes says nothing more
        try:
            problems += check(evidence)
        except Exception as problem:  # mended sums can cover anything: say so, and go on with the rest
            problems.append(Problem(file, f"can't be checked: {type(problem).__name__}: {problem}"))
    return problems


def _manifest(evidence: Evidence) -> Iterator[Problem]:
    """The manifest is about this experiment and this checkout's idea of its hash."""
    if manifest.sha256_of(evidence.resolved) != evidence.manifest.get("config_hash"):
        yield Problem(RESOLVED, f"its hash is not the config_hash in {MANIFEST}")


def _workload(evidence: Evidence) -> Iterator[Problem]:
    """The requests are those that the manifest knows."""
    from openjev_lab.measure import workload

    items = workload.read(evidence.folder / WORKLOAD).items
    told = {name: {"requests": len(own), "sha256": workload.digest(own)} for name, own in items.items()}
    difference = first_difference(evidence.manifest["inputs"]["workloads"], told)
    if difference:
        yield Problem(WORKLOAD, f"is not what {MANIFEST} says: {difference}")


def _rows(evidence: Evidence) -> Iterator[Problem]:
    """Every row belongs to the run and its experiment."""
    arms = {arm["name"] for arm in evidence.resolved["arms"]}
    for number, row in enumerate(evidence.timings, 1):
        if row.run_id != evidence.manifest["run_id"]:
            yield Problem(TIMINGS, f"line {number} is of run {row.run_id}")
        if row.arm not in arms and row.workload != row.arm:
            yield Problem(TIMINGS, f"line {number} is of arm {row.arm}, which the experiment does not have")


def _table(evidence: Evidence) -> Iterator[Problem]:
    """The table holds the journal's rows; compared by content, as other releases write other bytes."""
    import polars as pl

    path = evidence.folder / TABLE
    if not path.exists():
        yield Problem(TABLE, "is missing: the run was never finalized")
        return
    wanted, found = frame(evidence.timings), pl.read_parquet(path)
    if found.schema != wanted.schema:
        yield Problem(TABLE, "its columns or their types are not the declared ones")
    elif not found.equals(wanted):
        yield Problem(TABLE, "its rows are not those of timings.jsonl")
    told = pl.read_parquet_metadata(path)
    if any(told.get(key) != value for key, value in table_metadata(evidence).items()):
        yield Problem(TABLE, f"its metadata is not what {MANIFEST} says")


def _gates(evidence: Evidence) -> Iterator[Problem]:
    """The verdict follows from the rows."""
    from openjev_lab.measure import gates

    path = evidence.folder / GATES
    if not path.exists():
        yield Problem(GATES, "is missing: the run was never judged")
        return
    judged = json.loads(dump(gates.judge(evidence).document()))
    told = first_difference(json.loads(path.read_bytes()), judged)
    if told:
        yield Problem(GATES, f"does not follow from the rows: {told}")


def _report(evidence: Evidence) -> Iterator[Problem]:
    """A report that is there is what the evidence gives, byte for byte."""
    if not (evidence.folder / REPORT).exists():
        return
    from openjev_lab.report.render import rebuild

    with tempfile.TemporaryDirectory() as aside:
        rebuild(evidence.folder, aside)
        made = sums.files(Path(aside))
        there = [name for name in sums.files(evidence.folder) if name == REPORT or name.split("/")[0] in DERIVED]
        for name in sorted({*made, *there}):
            ours, theirs = Path(aside, name), evidence.folder / name
            if not ours.exists():
                yield Problem(name, "is no part of the report that the evidence gives")
            elif not theirs.exists():
                yield Problem(name, "is missing from the report")
            elif ours.read_bytes() != theirs.read_bytes():
                yield Problem(name, f"is not what the evidence gives{_releases(evidence)}")


def _releases(evidence: Evidence) -> str:
    """What may explain other bytes: packages that draw, in another release than the run's."""
    recorded, here = evidence.manifest.get("packages", {}), manifest.packages()
    drawing = ("polars", "altair", "vl-convert-python", "great-tables")
    other = [
        f"{name} {recorded[name]} there, {here.get(name)} here"
        for name in drawing
        if name in recorded and recorded[name] != here.get(name)
    ]
    return f" ({'; '.join(other)})" if other else ""


CHECKS = {RESOLVED: _manifest, WORKLOAD: _workload, TIMINGS: _rows, TABLE: _table, GATES: _gates, REPORT: _report}
"""What is recomputed, under the name of the file that it is about."""
