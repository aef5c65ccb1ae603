"""A run folder: opened by one writer at a time, appended to, read by everybody.

Takes an experiment (anything with ``name``, ``resolved()`` and ``config_hash``) and hashes of its inputs; keeps rows as
they come and refuses what would make them mean something else. Apart from ``measure`` because evidence does not care
how it was measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from filelock import FileLock, Timeout

from openjev_lab.errors import LabError
from openjev_lab.evidence import manifest, rows, sums
from openjev_lab.evidence.journal import Journal, read_rows
from openjev_lab.evidence.rows import ArmRow, TimingRow

RESOLVED = "resolved.json"
MANIFEST = "manifest.json"
TIMINGS = "timings.jsonl"
ARMS = "arms.jsonl"
WORKLOAD = "workload.jsonl"
TABLE = "timings.parquet"
GATES = "gates.json"
LOCK_WAIT_S = 0.5
"""Long enough for another process to finish closing, short enough that a second writer is told at once."""


class Resolved(Protocol):
    """What evidence needs of an experiment."""

    @property
    def name(self) -> str: ...
    @property
    def config_hash(self) -> str: ...
    def resolved(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run as it was recorded; nothing is locked or repaired by reading it."""

    folder: Path
    resolved: dict[str, Any]
    manifest: dict[str, Any]
    timings: tuple[TimingRow, ...]
    history: tuple[ArmRow, ...]
    """Every row about an arm, in the order written."""

    @property
    def arms(self) -> dict[str, ArmRow]:
        """The last row about each arm that has one."""
        return {row.arm: row for row in self.history}


def read(run_dir: Path | str) -> Evidence:
    """Raises LabError naming the file that is absent or not as it was written."""
    folder = Path(run_dir)
    if not (folder / RESOLVED).exists():
        raise LabError(f"{folder} is no run folder: it has no {RESOLVED}")
    timings = tuple(read_rows(folder / TIMINGS, TimingRow))
    seen: set[tuple[str | int, ...]] = set()
    for number, row in enumerate(timings, 1):
        if row.key in seen:
            raise LabError(f"{TIMINGS} line {number} repeats {row.request_id} of {row.arm}, pass {row.pass_index}")
        seen.add(row.key)
    history = tuple(read_rows(folder / ARMS, ArmRow))
    return Evidence(folder, _object(folder / RESOLVED), _object(folder / MANIFEST), timings, history)


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise LabError(f"{path.name} is missing") from None
    except ValueError as problem:
        raise LabError(f"{path.name} is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise LabError(f"{path.name} is not a JSON object")
    return value


def dump(value: Any) -> bytes:
    """JSON as evidence writes it."""
    return (json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


class Run:
    """The one writer of a run folder."""

    def __init__(self, folder: Path, lock: FileLock, resolved: dict[str, Any], facts: dict[str, Any]) -> None:
        self.folder, self.resolved, self.manifest, self._lock = folder, resolved, facts, lock
        self.run_id = str(facts["run_id"])
        self._timings = Journal(folder / TIMINGS, TimingRow)
        self._arms = Journal(folder / ARMS, ArmRow)
        self._keys = {row.key for row in self._timings.rows}

    @classmethod
    def open(
        cls,
        run_dir: Path | str,
        experiment: Resolved,
        prepare: Callable[[Path], Mapping[str, Any]],
        *,
        resume: bool = False,
    ) -> Self:
        """Start a run, or with ``resume`` continue one (or start it where there is none).

        ``prepare(folder)`` is called once the folder is locked; it leaves the inputs of a new run there, and returns
        the hashes that inputs are known by. Raises LabError if another process writes there; without ``resume``, if
        there is a run already; with it, if its experiment or inputs are not these, naming the first that differs.
        """
        folder = Path(run_dir)
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        try:
            started = (folder / RESOLVED).exists()
            if started and not resume:
                raise LabError(
                    f"{folder} holds a run already; --resume continues it, another --run-dir starts a new one"
                )
            inputs = manifest.portable_json(prepare(folder))
            facts = _continue(folder, experiment, inputs) if started else _start(folder, experiment, inputs)
            return cls(folder, lock, experiment.resolved(), facts)
        except BaseException:
            lock.release()
            raise

    @property
    def timings(self) -> Sequence[TimingRow]:
        """Every row so far, in the order written."""
        return self._timings.rows

    def arm(self, name: str) -> ArmRow | None:
        """The last row about an arm."""
        return next((row for row in reversed(self._arms.rows) if row.arm == name), None)

    def attempts(self, name: str) -> int:
        """How many server processes of an arm were ready so far."""
        return sum(row.arm == name and row.status == "running" for row in self._arms.rows)

    def done(self, arm: str, workload: str, pass_index: int) -> set[str]:
        """Requests of a measured pass that have their row."""
        wanted = (arm, workload, pass_index)
        return {row.request_id for row in self._timings.rows if (row.arm, row.workload, row.pass_index) == wanted}

    def append_timing(self, row: TimingRow) -> None:
        """Keep one row; it is on disk when this returns. Raises LabError for a row that is there already."""
        if row.key in self._keys:
            raise LabError(f"{row.arm} pass {row.pass_index} has a row for {row.request_id} already")
        self._timings.append(row)
        self._keys.add(row.key)

    def append_arm(
        self,
        arm: str,
        status: Literal["running", "measured", "skipped", "failed"],
        *,
        reason: str | None = None,
        attempt: int = 0,
        describe: Mapping[str, Any] | None = None,
    ) -> ArmRow:
        """Record what became of an arm, without this machine's paths."""
        told = None if reason is None else manifest.portable(reason)
        row = ArmRow(
            arm=arm,
            status=status,
            reason=told,
            attempt=attempt,
            at=manifest.now(),
            code_sha256=manifest.code_sha256(),  # each time: servers load what is on disk by then
            describe=manifest.portable_json(describe or {}),
        )
        self._arms.append(row)
        return row

    def close(self) -> None:
        """Let the next writer in."""
        self._timings.close()
        self._arms.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(folder: Path) -> FileLock:
    lock = FileLock(folder / sums.LOCK)
    try:
        lock.acquire(timeout=LOCK_WAIT_S)
    except Timeout:
        raise LabError(f"another process is writing to {folder}; wait for it, or give another --run-dir") from None
    return lock


def _start(folder: Path, experiment: Resolved, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Write manifest and resolved experiment; the latter last, because it is what makes the folder a run."""
    if (folder / TIMINGS).exists():
        raise LabError(f"{folder} holds {TIMINGS} without {RESOLVED}; give another --run-dir")
    facts = manifest.collect(folder.resolve().name, experiment.name, experiment.config_hash, inputs)
    sums.replace(folder / MANIFEST, dump(facts))
    sums.replace(folder / RESOLVED, dump(experiment.resolved()))
    return facts


def _continue(folder: Path, experiment: Resolved, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Check that what is there is this experiment's run; returns its manifest."""
    facts = _object(folder / MANIFEST)
    recorded = {"experiment": _object(folder / RESOLVED), "inputs": facts["inputs"]}
    told = first_difference(recorded, {"experiment": experiment.resolved(), "inputs": dict(inputs)})
    if told:
        raise LabError(f"{folder} was measured with another configuration and can't be continued: {told}")
    return facts


def first_difference(recorded: Any, now: Any, where: str = "") -> str | None:
    """``key: recorded X, now Y`` for the first place where two JSON values differ, None if they don't."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        pairs = [(key, recorded.get(key), now.get(key)) for key in sorted(recorded.keys() | now.keys())]
    elif isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(recorded, now, strict=True))]
    else:
        same = recorded == now and type(recorded) is type(now)
        return None if same else f"{where}: recorded {json.dumps(recorded)}, now {json.dumps(now)}"
    found = (first_difference(old, new, f"{where}.{key}".lstrip(".")) for key, old, new in pairs)
    return next(filter(None, found), None)


def write_timings(evidence: Evidence) -> Path:
    """Write timings.parquet from the journal, with what it needs to mean something in the file's metadata."""
    path = evidence.folder / TABLE
    aside = path.with_name(TABLE + ".tmp")
    rows.frame(evidence.timings).write_parquet(aside, metadata=table_metadata(evidence))
    aside.replace(path)
    return path


def table_metadata(evidence: Evidence) -> dict[str, str]:
    """The run's facts in the table itself: schema version, run, experiment, hashes of configuration and inputs."""
    facts = evidence.manifest
    told = {key: facts[key] for key in ("schema_version", "run_id", "experiment", "config_hash", "created", "inputs")}
    return {"openjev_lab": manifest.canonical(told).decode()}
