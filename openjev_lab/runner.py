"""The notebook runner: in order, each in a fresh kernel, into one run folder.

Takes notebooks and parameters; leaves executed copies and an index with a row a notebook. A notebook that fails or
whose kernel dies is a row like any other: the rest still runs. Apart from ``ladder``, which chooses notebooks and
parameters, because this knows no experiment.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from openjev_lab.errors import LabError
from openjev_lab.evidence.manifest import portable
from openjev_lab.evidence.sums import replace, sha256

ROOT = Path(__file__).resolve().parents[1]
# The longest a single cell may take: on the largest geometry a rung's passes take minutes, so an hour means it hangs.
CELL_TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of index.json. ``executed_sha256`` is that of the executed copy; ``error`` is null only for ``done``."""

    notebook: str
    status: Literal["done", "failed", "dead"]
    started: str
    duration_s: float
    error: str | None
    parameters: dict[str, Any]
    source_sha256: str
    executed_sha256: str | None


def relative(path: Path) -> str:
    """The path as written into evidence: from the project's root where it lies inside, so that a run can move."""
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def run_notebooks(
    notebooks: Sequence[Path], parameters: Mapping[str, Any], run_dir: Path, *, resume: bool = False
) -> list[Outcome]:
    """Execute ``notebooks`` in order with ``parameters``; one Outcome each, also written to ``run_dir/index.json``.

    With ``resume``, a notebook whose row is ``done`` for the same source and parameters, and whose executed copy is
    still what was recorded, is kept, up to the first that has to run: later ones may show what it changes.
    Raises LabError, before anything runs, for a parameter that a notebook lacks.
    """
    from tqdm import tqdm

    for notebook in notebooks:
        check_parameters(notebook, parameters)
    (run_dir / "notebooks").mkdir(parents=True, exist_ok=True)
    index = run_dir / "index.json"
    known = read_index(index) if resume else {}
    outcomes: list[Outcome] = []
    kept = resume
    with tqdm(notebooks, disable=None, unit="notebook") as bar:  # None: no bar without a terminal
        for notebook in bar:
            bar.set_description(notebook.stem)
            outcome = known.get(notebook.stem)
            kept = kept and outcome is not None and is_current(outcome, notebook, parameters, run_dir)
            if outcome is None or not kept:
                outcome = execute(notebook, parameters, run_dir)
                took = f"{outcome.notebook:20} {outcome.status:7} {outcome.duration_s:6.1f} s"
                tqdm.write(f"{took}  {outcome.error or ''}".rstrip())
            outcomes.append(outcome)
            write_index(index, outcomes)
    return outcomes


def check_parameters(notebook: Path, parameters: Mapping[str, Any]) -> None:
    """Papermill only logs a name that the notebook lacks, and the notebook then runs with its default: refuse it."""
    import papermill

    declared = papermill.inspect_notebook(str(notebook))
    unknown = sorted(set(parameters) - set(declared))
    if unknown:
        raise LabError(
            f"{relative(notebook)} has no parameter {', '.join(unknown)}; "
            f"its parameters cell declares {', '.join(declared) or 'none'}"
        )


def execute(notebook: Path, parameters: Mapping[str, Any], run_dir: Path) -> Outcome:
    """Run one notebook in a fresh kernel; its executed copy appears under its own name only once it is complete."""
    import papermill
    from nbclient.exceptions import DeadKernelError

    target = run_dir / "notebooks" / notebook.name
    partial = target.with_suffix(".partial.ipynb")
    target.unlink(missing_ok=True)
    status: Literal["done", "failed", "dead"] = "done"
    error = None
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    try:
        papermill.execute_notebook(
            str(notebook),
            str(partial),
            parameters=dict(parameters),
            kernel_name="python3",
            cwd=str(notebook.parent),
            progress_bar=False,
            execution_timeout=CELL_TIMEOUT_S,
            shutdown_kernel="immediate",  # nothing of a notebook's is left to do; a graceful end takes a second
            extra_arguments=["--log-level=CRITICAL"],  # else every kernel warns of plain loopback sockets
        )
    except DeadKernelError:  # papermill marks every cell completed all the same, so only this tells
        status, error = "dead", "the kernel died before the notebook ended"
    except Exception as problem:  # whatever a notebook raises becomes its row: the rest of the ladder still runs
        status, error = "failed", one_line(problem)
    duration_s = round(time.monotonic() - clock, 3)
    if partial.exists():
        forget_paths(partial)
        os.replace(partial, target)
    executed = sha256(target) if target.exists() else None
    return Outcome(notebook.stem, status, started, duration_s, error, dict(parameters), sha256(notebook), executed)


def one_line(problem: Exception) -> str:
    """``Type: message`` of what a cell raised (papermill wraps a traceback around it), without this machine's paths."""
    name, message = getattr(problem, "ename", type(problem).__name__), getattr(problem, "evalue", str(problem))
    return portable(f"{name}: {message}".strip().splitlines()[0])


def forget_paths(executed: Path) -> None:
    """Rewrite this machine's paths in an executed copy: papermill's own, and those in what cells printed (warnings)."""
    import nbformat

    notebook = nbformat.read(executed, as_version=4)
    recorded = notebook.metadata.get("papermill", {})
    for key in ("input_path", "output_path"):
        if recorded.get(key):
            recorded[key] = relative(Path(recorded[key].replace(".partial.ipynb", ".ipynb")))
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = portable(output.text)
    nbformat.write(notebook, executed)


def is_current(outcome: Outcome, notebook: Path, parameters: Mapping[str, Any], run_dir: Path) -> bool:
    """Whether a recorded outcome still stands: done, same source, same parameters, executed copy untouched."""
    executed = run_dir / "notebooks" / notebook.name
    return (
        outcome.status == "done"
        and outcome.source_sha256 == sha256(notebook)
        and outcome.parameters == dict(parameters)
        and executed.exists()
        and outcome.executed_sha256 == sha256(executed)
    )


def read_index(index: Path) -> dict[str, Outcome]:
    """The rows of an index.json by notebook; none where there is no index yet."""
    if not index.exists():
        return {}
    return {row["notebook"]: Outcome(**row) for row in json.loads(index.read_text())["notebooks"]}


def write_index(index: Path, outcomes: Sequence[Outcome]) -> None:
    """Replace index.json at once, so that a kill leaves the old one or the new one."""
    text = json.dumps(
        {"notebooks": [asdict(outcome) for outcome in outcomes]}, indent=1, sort_keys=True, allow_nan=False
    )
    replace(index, (text + "\n").encode())
