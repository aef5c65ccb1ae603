"""From an experiment to a finished run: measured (through notebooks or without), judged, drawn, sealed.

Takes an experiment's YAML and where to record; returns the exit status: 0 if every notebook is done and every gate
passed, else 1. Apart from ``__main__`` because this is what a program calls, and from ``measure`` because that knows
neither notebooks nor reports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from openjev_lab.errors import LabError
from openjev_lab.runner import ROOT, Outcome, relative, run_notebooks

if TYPE_CHECKING:
    from openjev_lab.measure.experiment import Experiment

NOTEBOOKS = ROOT / "notebooks"
COMPILED_TOKENS = 130
"""More than two chunks of the delta rule."""
EXPLORATIONS = 30
"""Notebooks with this number or a higher one are no part of a run."""


def climb(experiment: Path, *, run_dir: Path | None = None, resume: bool = False, profile: str | None = None) -> int:
    """Run the notebooks of the experiment's rungs, in order, then judge, draw and seal what they recorded.

    Raises LabError before anything is measured for a faulty experiment, a folder that another configuration wrote, or a
    parameter that a notebook lacks.
    """
    from openjev_lab.measure import passes
    from openjev_lab.measure.experiment import load

    loaded = load(experiment, profile)
    folder = choose(loaded.name, run_dir, resume)
    passes.open_run(folder, loaded, resume=resume).close()  # refuses a wrong folder, and puts this command on record
    print(f"{loaded.title}, into {relative(folder)}", flush=True)
    parameters = {"experiment": relative(experiment), "run_dir": relative(folder), "profile": profile or "none"}
    outcomes = run_notebooks(chosen_notebooks(loaded), parameters, folder, resume=resume)
    return finish(folder, outcomes)


def measure_all(
    experiment: Path, *, run_dir: Path | None = None, resume: bool = False, profile: str | None = None
) -> int:
    """The same without notebooks."""
    from openjev_lab.measure import passes
    from openjev_lab.measure.experiment import load

    loaded = load(experiment, profile)
    folder = choose(loaded.name, run_dir, resume)
    passes.run_experiment(loaded, folder, resume=resume)
    return finish(folder, ())


def plan(experiment: Path, profile: str | None = None) -> str:
    """What either would do, for a terminal; nothing is started."""
    from openjev_lab.measure import passes
    from openjev_lab.measure.experiment import load

    return passes.plan(load(experiment, profile))


def compile_kernels(checkpoint: Path) -> list[str]:
    """Run every native rung that can run here once, which compiles its kernels and keeps them; the rungs' names."""
    from openjev_lab import rungs

    names = [rung.name for rung in rungs.LADDER if rung.kind == "native" and rungs.available(rung.name)[0]]
    for name in names:
        rungs.load_arm(name, checkpoint).score(range(COMPILED_TOKENS))
    return names


def choose(name: str, run_dir: Path | None, resume: bool) -> Path:
    """The folder to record in: as given; to resume, the experiment's newest; else a new one named by the time."""
    if run_dir is not None:
        return run_dir
    reports = ROOT / "reports"
    if resume:
        found = sorted(path for path in reports.glob(f"{name}-*") if re.fullmatch(r"\d{8}-\d{6}", path.name[-15:]))
        if not found:
            raise LabError(f"there is no run reports/{name}-<time> to resume; leave --resume out, or give --run-dir")
        return found[-1]
    return reports / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def chosen_notebooks(experiment: Experiment) -> list[Path]:
    """Numbered notebooks below the explorations, without those of rungs that the experiment does not measure."""
    from openjev_lab import rungs

    absent = {rung.name for rung in rungs.LADDER} - {arm.rung for arm in experiment.arms}
    chosen = []
    for path in sorted(NOTEBOOKS.glob("[0-9][0-9]-*.ipynb")):
        number, _, name = path.stem.partition("-")
        if int(number) < EXPLORATIONS and name not in absent:
            chosen.append(path)
    return chosen


def finish(folder: Path, outcomes: Sequence[Outcome]) -> int:
    """Judge, draw and seal; print the verdict and where the report is; the exit status."""
    from openjev_lab.evidence import seal
    from openjev_lab.measure import gates, passes
    from openjev_lab.report.render import render

    judgement = passes.finalize(folder)
    report = render(folder)
    seal(folder)
    print(gates.table(judgement))
    broken = [outcome for outcome in outcomes if outcome.status != "done"]
    for outcome in broken:
        print(f"  notebook {outcome.notebook} {outcome.status}: {outcome.error}")
    print(f"\nreport: {relative(report)}")
    return 1 if broken or judgement.verdict != "passed" else 0
