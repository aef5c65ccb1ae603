"""The ladder as data: every rung, the one thing that it changes from the rung below, and what loads it.

Takes a rung's name and a checkpoint; ``load_arm`` returns an ``Arm`` that scores token ids. A native rung is a full
choice of variants, one an op, made by walking down its bases and laying one change over another; that is why a rung
can't differ from its base in more than it says. Importing this imports nothing heavy, so that a command line can list
rungs, and say which can run here, without torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from openjev_lab.errors import LabError

if TYPE_CHECKING:
    from openjev_lab.checkpoint import Package
    from openjev_lab.engine import Engine
    from openjev_lab.geometry import Geometry

Kind = Literal["hf-raw", "hf-merged", "native"]
ByDevice = Mapping[str, str]
"""Variant names by device kind: {"cpu": ..., "cuda": ...}."""


class Arm(Protocol):
    """Something that scores; used from one thread."""

    package: Package
    geometry: Geometry

    def score(self, ids: Sequence[int]) -> float:
        """The head's score of a candidate's tokens; ``LabError`` for none, too many, or ids outside the vocabulary."""
        ...

    def describe(self) -> dict[str, Any]:
        """What really ran, JSON-able."""
        ...


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder."""

    name: str
    base: str | None
    """The rung below, which it is compared with; None for the lowest."""
    change: Mapping[str, Any]
    """Exactly one of ``{"kind": ...}``, ``{"ops": {op: {device: variant}}}``, ``{"graphs": entries}``."""
    hypothesis: str
    """What it should gain and why, said before it is measured."""
    exact: bool
    """Whether it promises its base's scores bit for bit."""

    @property
    def kind(self) -> Kind:
        """What runs it: its own change says so, or its base."""
        return self.change.get("kind") or get(self.base or "").kind


@dataclass(frozen=True, slots=True)
class Resolved:
    """All of a rung's settings on a kind of device."""

    kind: Kind
    ops: Mapping[str, str]
    """Op -> variant; empty for the Hugging Face arms."""
    graphs: int
    """CUDA graphs kept, one a length; 0 runs eagerly."""


NATIVE_OPS: dict[str, ByDevice] = {
    "embed": {"cpu": "torch_gather", "cuda": "cuda_packed8"},
    "add_rmsnorm": {"cpu": "numba_cpu_reread", "cuda": "cuda_reread"},
    "linear": {"cpu": "torch_mm_turned", "cuda": "torch_mm"},
    "gdn_input": {"cpu": "numba_cpu_fused", "cuda": "cuda_walk"},
    "gated_delta": {"cpu": "numba_cpu_recurrent", "cuda": "cuda_recurrent"},
    "gated_norm": {"cpu": "numba_cpu_fused", "cuda": "cuda_packed8"},
    "qk_norm_rope": {"cpu": "numba_cpu_fused", "cuda": "cuda_packed8"},
    "attention": {"cpu": "numba_cpu_separate", "cuda": "cuda_separate"},
    "silu_mul": {"cpu": "numba_cpu_scalar", "cuda": "cuda_scalar"},
    "head": {"cpu": "numba_cpu_fused", "cuda": "cuda_block"},
}
"""What the lowest native rung runs: for every op the straightforward kernel."""

LADDER: tuple[Rung, ...] = (
    Rung(
        "raw-hf",
        None,
        {"kind": "hf-raw"},
        "The start: transformers with the adapter unmerged in PEFT, SDPA, and its torch code for the delta rule.",
        exact=False,
    ),
    Rung(
        "merged-hf",
        "raw-hf",
        {"kind": "hf-merged"},
        "Folding the adapter into the weights removes two small GEMMs and an add from each of its modules.",
        exact=False,
    ),
    Rung(
        "scalar",
        "merged-hf",
        {"kind": "native"},
        "Packed projections, buffers made once and one kernel an op remove most of what transformers spends between "
        "its GEMMs; the kernels themselves are the straightforward ones.",
        exact=False,
    ),
    Rung(
        "fused-gate",
        "scalar",
        {"ops": {"attention": {"cpu": "numba_cpu_epilogue", "cuda": "cuda_epilogue"}}},
        "The sigmoid gate in attention's epilogue saves a pass over its output, read and written, in every full "
        "attention layer: little, since these are a quarter of the layers.",
        exact=True,
    ),
    Rung(
        "cached-rmsnorm",
        "fused-gate",
        {"ops": {"add_rmsnorm": {"cpu": "numba_cpu_cached", "cuda": "cuda_cached"}}},
        "Keeping a row until it is scaled saves one of five passes over the residual stream, twice a layer.",
        exact=True,
    ),
    Rung(
        "packed-silu",
        "cached-rmsnorm",
        {"ops": {"silu_mul": {"cpu": "numba_cpu_packed8", "cuda": "cuda_packed8"}}},
        "Eight elements at a time: wide loads, and arithmetic that keeps up with memory. The MLP is the widest row of "
        "the model, so this is the largest gain of the three.",
        exact=True,
    ),
    Rung(
        "graph-64",
        "packed-silu",
        {"graphs": 64},
        "Replaying a captured graph removes the host's work for every launch, which bounds short requests.",
        exact=True,
    ),
)


def names() -> tuple[str, ...]:
    """The rungs from the bottom."""
    return tuple(rung.name for rung in LADDER)


def get(name: str) -> Rung:
    """The rung of that name; ``LabError`` with the names there are."""
    for rung in LADDER:
        if rung.name == name:
            return rung
    raise LabError(f"there is no rung {name!r}; there are {', '.join(names())}")


def resolve(name: str, device: str = "cpu") -> Resolved:
    """All settings of a rung: its base's, with its own change laid over them."""
    rung, place = get(name), _place(device)
    base = resolve(rung.base, device) if rung.base else Resolved("hf-raw", {}, 0)
    ((what, change),) = rung.change.items()
    if what == "kind":
        ops = {op: variants[place] for op, variants in NATIVE_OPS.items()} if change == "native" else {}
        return Resolved(change, ops, 0)
    if what == "ops":
        return Resolved(base.kind, {**base.ops, **{op: variants[place] for op, variants in change.items()}}, 0)
    return Resolved(base.kind, base.ops, change)


def available(name: str, device: str = "cpu") -> tuple[bool, str]:
    """(whether the rung can run on this device, why not), without loading anything of a model."""
    place, settings = _place(device), resolve(name, device)
    if settings.graphs:
        if place == "cpu":
            return False, "CUDA graphs need a CUDA device; this rung has no meaning on a CPU"
        return False, "this engine runs eagerly and captures no CUDA graphs yet"
    if place == "cuda":
        import torch

        if not torch.cuda.is_available():
            return False, "needs a CUDA device, and PyTorch sees none"
    return True, ""


def load_arm(
    rung: str,
    checkpoint: str | Path,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    max_tokens: int | None = None,
) -> Arm:
    """Load a checkpoint into a rung. Raises ``LabError`` if the rung can't run here, or the checkpoint is faulty.

    ``threads``: of torch and of our CPU kernels; None leaves torch's choice. ``max_tokens``: the longest request
    expected; memory for it is taken at once instead of when it comes.
    """
    able, reason = available(rung, device)
    if not able:
        raise LabError(f"rung {rung} can't run on {device}: {reason}")
    calm_threads()
    settings = resolve(rung, device)
    if settings.kind != "native":
        from openjev_lab.hf import MergedHF, RawHF

        arm = RawHF if settings.kind == "hf-raw" else MergedHF
        return arm(checkpoint, device=device, dtype=dtype, threads=threads)
    return NativeArm(rung, checkpoint, settings, device=device, dtype=dtype, threads=threads, max_tokens=max_tokens)


def calm_threads() -> None:
    """Let torch's idle threads sleep soon instead of spinning for a long while, unless the environment says otherwise.

    A thread that spins at the end of every GEMM holds a core that the client, or a kernel's thread, needs; on two cores
    that costs whole time slices. Read by the OpenMP runtime when torch is first imported, so it has no effect later.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


class NativeArm:
    """Our engine behind the ``Arm`` protocol."""

    def __init__(
        self,
        rung: str,
        checkpoint: str | Path,
        settings: Resolved,
        *,
        device: str,
        dtype: str,
        threads: int | None,
        max_tokens: int | None,
    ) -> None:
        import torch

        from openjev_lab.checkpoint import load_package, tensors
        from openjev_lab.engine import ROW_STEP, Engine

        if threads is not None:
            torch.set_num_threads(threads)
        self.rung, self.settings = rung, settings
        self.package = load_package(checkpoint)
        self.geometry = self.package.geometry
        self.engine: Engine = Engine(
            self.geometry,
            tensors(self.package, device, dtype),
            self.package.head_weight,
            self.package.head_bias,
            ops=settings.ops,
            device=device,
            dtype=dtype,
            rows=max_tokens or ROW_STEP,
        )

    def score(self, ids: Sequence[int]) -> float:
        """See ``Arm``."""
        if len(ids) > self.package.max_length:
            raise LabError(f"a candidate of {len(ids)} tokens; this checkpoint takes 1 to {self.package.max_length}")
        return self.engine.score(ids)

    def describe(self) -> dict[str, Any]:
        """See ``Arm``."""
        return {"arm": "native", "rung": self.rung, "checkpoint": self.package.path, **self.engine.describe()}


def _place(device: str) -> str:
    """The kind of a device: "cpu" or "cuda"."""
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise LabError(f"device {device!r} is unknown; cpu or cuda (cuda:0, ...) is right")
    return kind
