"""``openjev-lab kernels``: list, check, bench and show what is in the families' folders.

Exit status: 0 done; 1 a kernel is wrong; 2 bad input, or a variant that was named can't run here. Nothing heavy is
imported before a command runs. Apart from ``__main__``, which it would crowd.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from openjev_lab.errors import LabError

app = typer.Typer(no_args_is_help=True, help="Kernels by family: what there is, is it right, is it faster.")

Target = Annotated[str, typer.Argument(metavar="FAMILY[/VARIANT]", help="A family, or one variant of it.")]
GeometryName = Annotated[str | None, typer.Option("--geometry", help="Default: tiny on a CPU, 27b on a GPU.")]
Device = Annotated[str, typer.Option("--device", help="cpu or cuda.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="Default: float32 on a CPU, bfloat16 on a GPU.")]
Tokens = Annotated[list[int] | None, typer.Option("--tokens", min=1, help="A length; may be repeated.")]
Root = Annotated[Path | None, typer.Option("--root", help="Another folder of families than the checkout's kernels/.")]
Seed = Annotated[int, typer.Option("--seed", help="Of the inputs.")]


@app.command(name="list")
def list_kernels(
    geometry: GeometryName = None,
    device: Device = "cpu",
    dtype: Dtype = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    root: Root = None,
) -> None:
    """Every family with its formula, every variant with whether it can run here."""
    from openjev_lab.workbench import listing, targets

    where = targets.place(geometry, device, dtype)
    found = listing.listing(where, root or targets.KERNELS)
    print(json.dumps(found, indent=2) if as_json else listing.text(found, where))


@app.command()
def check(
    target: Target,
    tokens: Tokens = None,
    geometry: GeometryName = None,
    device: Device = "cpu",
    dtype: Dtype = None,
    seed: Seed = 0,
    root: Root = None,
) -> None:
    """Compare with the reference at odd sizes, in every case; and bits where equal bits are promised."""
    from openjev_lab.workbench import checking, targets

    where = targets.place(geometry, device, dtype)
    meant = targets.target(target, root or targets.KERNELS)
    results = checking.check(meant, where, tokens or checking.TOKENS, seed)
    print(f"{meant.family.name}: {meant.family.module.SUMMARY}\n{where}\n{checking.text(results)}")
    if checking.faulty(results):
        raise typer.Exit(1)
    if not any(result.checks for result in results):
        raise LabError(f"no variant of {meant.family.name} can run {where}, so nothing was checked")


@app.command()
def bench(
    target: Target,
    tokens: Tokens = None,
    geometry: GeometryName = None,
    dtype: Dtype = None,
    device: Device = "cpu",
    rounds: Annotated[int, typer.Option("--rounds", help="Samples of each variant.")] = 25,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads; default PyTorch's.")] = None,
    seed: Seed = 0,
    root: Root = None,
) -> None:
    """Check, then time every variant of the family that runs here, in turns (on a CPU)."""
    from openjev_lab.workbench import bench as work
    from openjev_lab.workbench import checking, targets

    # on a GPU, bench refuses before it looks for one
    where = targets.Place(targets.known(geometry or "tiny"), device, dtype or "float32")
    if device == "cpu":
        where = targets.place(geometry, device, dtype)
    if threads:
        import torch

        torch.set_num_threads(threads)
    try:
        found = work.bench(
            targets.target(target, root or targets.KERNELS), where, tokens or [64, 512], rounds=rounds, seed=seed
        )
    except work.Wrong as wrong:
        print(f"Nothing was timed: a variant is wrong.\n{checking.text(wrong.results)}")
        raise typer.Exit(1) from wrong
    print("\n\n".join(work.text(one, where) for one in found))


@app.command()
def show(
    target: Annotated[str, typer.Argument(metavar="FAMILY/VARIANT", help="One variant.")],
    geometry: Annotated[
        str | None, typer.Option("--geometry", help="Default: 27b for CUDA C++, tiny for the others.")
    ] = None,
    arch: Annotated[str, typer.Option("--arch", help="To compile CUDA C++ for.")] = "sm_90a",
    root: Root = None,
) -> None:
    """A variant's summary and how it compiled; needs no GPU."""
    from openjev_lab.workbench import showing, targets

    meant = targets.target(target, root or targets.KERNELS)
    usual = "27b" if meant.variant and meant.family.variant(meant.variant).backend == "cuda" else "tiny"
    print(showing.text(meant, targets.known(geometry or usual), arch))
