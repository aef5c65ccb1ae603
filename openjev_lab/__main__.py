"""The command line: each command takes paths and options, calls the module that does the work, and exits.

Exit status: 0 done; 1 a gate, a notebook or a check failed; 2 bad input (a ``LabError``, told in one line).
It stands apart because it must answer at once: nothing heavy is imported before a command runs.

    openjev-lab doctor            what this machine can run, and why not
    openjev-lab ladder            every rung through its notebook, to a report
    openjev-lab run X.yaml        the same measurement without notebooks
    openjev-lab serve --rung R --checkpoint C
    openjev-lab merge C OUT       a package's adapter merged into its base
    openjev-lab report RUN_DIR    rebuild tables, charts and report.html from a run's evidence
    openjev-lab verify RUN_DIR    recompute every hash, table and gate of a run
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from openjev_lab.errors import LabError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=("From raw Hugging Face to a fused decision-model engine, rung by rung: serve, measure, check, draw."),
)

Experiment = Annotated[Path, typer.Argument(help="The experiment's YAML file.")]
RunDir = Annotated[Path, typer.Argument(help="A run folder, reports/<run>.")]
RunDirOption = Annotated[Path | None, typer.Option("--run-dir", help="Where to record; default reports/<name>-<time>.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped; repeats nothing.")]
Profile = Annotated[str | None, typer.Option("--profile", help="A named variation of the experiment.")]


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what this machine can run, and why not."""
    from openjev_lab import doctor as module

    module.show(as_json=as_json)


@app.command()
def ladder(
    experiment: Experiment = Path("experiments/ladder-tiny.yaml"),
    run_dir: RunDirOption = None,
    resume: Resume = False,
    profile: Profile = None,
) -> None:
    """Climb: run every notebook in order, record, check the gates, draw the report."""
    from openjev_lab import ladder as module

    raise typer.Exit(module.climb(experiment, run_dir=run_dir, resume=resume, profile=profile))


@app.command()
def run(experiment: Experiment, run_dir: RunDirOption = None, resume: Resume = False, profile: Profile = None) -> None:
    """Measure an experiment's arms without notebooks, check the gates, draw the report."""
    from openjev_lab import ladder as module

    raise typer.Exit(module.measure_all(experiment, run_dir=run_dir, resume=resume, profile=profile))


def main() -> None:
    """The console script: a user's mistake is one line, never a traceback."""
    try:
        app()
    except LabError as error:
        print(f"openjev-lab: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
