"""The command line: each command takes paths and options, calls the module that does the work, and exits.

Exit status: 0 done; 1 a gate, a notebook or a check failed; 2 bad input (a ``LabError``, told in one line).
It stands apart because it must answer at once: nothing heavy is imported before a command runs.

    openjev-lab doctor            what this machine can run, and why not
    openjev-lab ladder            every rung through its notebook, to a report
    openjev-lab run X.yaml        the same measurement without notebooks
    openjev-lab serve --rung R --checkpoint C
    openjev-lab merge C OUT       a package's adapter merged into its base
    openjev-lab compile           compile the CPU kernels of every rung ahead of a run
    openjev-lab report RUN_DIR    rebuild tables, charts and report.html from a run's evidence
    openjev-lab verify RUN_DIR    recompute every hash, table and gate of a run
    openjev-lab kernels list      families and variants; also check, bench, show
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from openjev_lab.errors import LabError
from openjev_lab.workbench.commands import app as kernels_app

TINY = Path("checkpoints/tiny")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=("From raw Hugging Face to a fused decision-model engine, rung by rung: serve, measure, check, draw."),
)
app.add_typer(kernels_app, name="kernels")

Experiment = Annotated[Path, typer.Argument(help="The experiment's YAML file.")]
RunDir = Annotated[Path, typer.Argument(help="A run folder, reports/<run>.")]
RunDirOption = Annotated[Path | None, typer.Option("--run-dir", help="Where to record; default reports/<name>-<time>.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped; repeats nothing.")]
Plan = Annotated[bool, typer.Option("--plan", help="Say what would be done, and stop.")]
Profile = Annotated[str | None, typer.Option("--profile", help="A named variation of the experiment.")]


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what this machine can run, and why not."""
    from openjev_lab import doctor as module

    raise typer.Exit(0 if module.show(as_json=as_json) else 1)


@app.command()
def ladder(
    experiment: Experiment = Path("experiments/ladder-tiny.yaml"),
    run_dir: RunDirOption = None,
    resume: Resume = False,
    profile: Profile = None,
    plan: Plan = False,
) -> None:
    """Climb: run every notebook in order, record, check the gates, draw the report."""
    from openjev_lab import ladder as module

    if plan:
        print(module.plan(experiment, profile))
        return
    raise typer.Exit(module.climb(experiment, run_dir=run_dir, resume=resume, profile=profile))


@app.command()
def run(
    experiment: Experiment,
    run_dir: RunDirOption = None,
    resume: Resume = False,
    profile: Profile = None,
    plan: Plan = False,
) -> None:
    """Measure an experiment's arms without notebooks, check the gates, draw the report."""
    from openjev_lab import ladder as module

    if plan:
        print(module.plan(experiment, profile))
        return
    raise typer.Exit(module.measure_all(experiment, run_dir=run_dir, resume=resume, profile=profile))


@app.command()
def serve(
    rung: Annotated[str, typer.Option("--rung", help="raw-hf, merged-hf, scalar, ... (doctor lists them).")],
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="Package, merged export, or synthetic:GEOMETRY.")],
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option("--dtype", help="float32 on a CPU, bfloat16 on a GPU.")] = "float32",
    host: Annotated[str, typer.Option("--host", help="Any but loopback needs --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one; the ready line names it.")] = 0,
    queue: Annotated[int, typer.Option("--queue", help="Requests that may wait; past it, 503.")] = 64,
    token: Annotated[str | None, typer.Option("--token", help="Bearer token that clients must send.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="CPU threads of the forward.")] = None,
    null_endpoint: Annotated[
        bool, typer.Option("--null-endpoint", help="Add POST /null, for the client's cost.")
    ] = False,
    parent_pid: Annotated[int | None, typer.Option("--parent-pid", help="End when this process is gone.")] = None,
) -> None:
    """Serve one rung over HTTP until a signal."""
    from openjev_lab.serving.run import serve as work

    work(rung, checkpoint, device, dtype, host, port, queue, token, threads, null_endpoint, parent_pid)


@app.command()
def merge(
    package: Annotated[str, typer.Argument(help="A checkpoint package's folder.")],
    out: Annotated[Path, typer.Argument(help="A folder that must not exist yet.")],
    dtype: Annotated[str, typer.Option("--dtype", help="Of the merged weights.")] = "bfloat16",
    device: Annotated[str, typer.Option("--device", help="Where the products are formed.")] = "cpu",
) -> None:
    """Merge a package's adapter into its base and write it as one checkpoint."""
    from openjev_lab.checkpoint.merge import bar
    from openjev_lab.checkpoint.merge import merge as work

    with bar() as progress:
        folder = work(package, out, dtype, device=device, progress=progress)
    print(folder)


@app.command(name="compile")
def compile_kernels(
    checkpoint: Annotated[Path, typer.Argument(help="Any checkpoint of the geometry to compile for.")] = TINY,
) -> None:
    """Compile the CPU kernels of every rung, so that no measurement waits for a compiler."""
    from openjev_lab import ladder as module

    print(f"compiled for {', '.join(module.compile_kernels(checkpoint))}")


@app.command()
def report(run_dir: RunDir) -> None:
    """Rebuild tables, charts and report.html from a run's evidence."""
    from openjev_lab.report.render import render

    print(render(run_dir))


@app.command()
def verify(run_dir: RunDir) -> None:
    """Recompute every hash, table and gate of a run; name what differs."""
    from openjev_lab.verify import verify as work

    problems = work(run_dir)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{run_dir}: {f'{len(problems)} problems' if problems else 'as it was recorded'}")
    raise typer.Exit(1 if problems else 0)


def main() -> None:
    """The console script: a user's mistake is one line, never a traceback."""
    try:
        app()
    except LabError as error:
        print(f"openjev-lab: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
