"""Whether a variant computes its family's op: fresh inputs, poisoned outputs, guard rows, a reference beside it.

Takes a ``Variant``, a geometry and a length; returns a ``Verdict`` that lists every fault. Apart from the tests, which
assert on it, because the command line and the notebooks ask the same question before they time anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Field, Io, Maker
from openjev_lab.ops.families import Family, Variant

if TYPE_CHECKING:
    from torch import Tensor

GUARD_ROWS = 5
"""Rows past the length in every buffer: NaN before the step, and still the same bits after it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found."""

    family: str
    variant: str
    geometry: str
    tokens: int
    device: str
    dtype: str
    case: str
    seed: int
    errors: dict[str, float]
    """Per output, the largest error of a row: RMS over the row, relative to the reference's RMS (of that row or of
    all rows, whichever is larger). NaN where the output is not finite."""
    tolerance: float
    faults: tuple[str, ...]
    """Each in words; empty if the variant is right."""

    @property
    def ok(self) -> bool:
        return not self.faults


def prepare(
    family: Family, geometry: Geometry, tokens: int, *, device: str, dtype: str, seed: int, case: str
) -> dict[str, Tensor]:
    """Fresh buffers for a check: ``GUARD_ROWS`` more rows than ``tokens``, everything past ``tokens`` NaN."""
    import torch

    if case not in family.module.CASES:
        raise LabError(f"kernel family {family.name!r} has no case {case!r}; it has {', '.join(family.module.CASES)}")
    generator = torch.Generator().manual_seed(seed)
    io = family.module.make_io(Maker(geometry, tokens + GUARD_ROWS, generator, device, dtype), case)
    for name, field in {**family.module.INPUTS, **family.module.OUTPUTS}.items():
        if field.per_token and io[name].is_floating_point():
            io[name][tokens:] = float("nan")
    return io


def check(
    variant: Variant,
    geometry: Geometry,
    tokens: int,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    seed: int = 0,
    case: str | None = None,
) -> Verdict:
    """Run one step on fresh inputs and compare it with the reference. Raises ``LabError`` if it can't run here."""
    family = variant.family
    able, reason = variant.supports(geometry, device, dtype)
    if not able:
        raise LabError(f"{family.name}/{variant.name} can't run {geometry.name} in {dtype} on {device}: {reason}")
    case = case or family.module.CASES[0]
    io = prepare(family, geometry, tokens, device=device, dtype=dtype, seed=seed, case=case)
    before = {name: tensor.clone() for name, tensor in io.items()}
    wanted = family.module.reference(geometry, before, tokens)
    variant.bind(geometry, io, dtype)(tokens)
    tolerance = family.module.TOLERANCE[dtype]
    errors: dict[str, float] = {}
    faults: list[str] = []
    for name, field in family.module.OUTPUTS.items():
        found, right = (io[name][:tokens], wanted[name]) if field.per_token else (io[name][None], wanted[name][None])
        errors[name] = row_error(found, right)
        if not errors[name] <= tolerance:
            faults.append(_describe(name, found, errors[name], tolerance))
    faults += _disturbed(family.module.INPUTS, family.module.OUTPUTS, before, io, tokens)
    return Verdict(
        family.name, variant.name, geometry.name, tokens, device, dtype, case, seed, errors, tolerance, tuple(faults)
    )


def row_error(found: Tensor, wanted: Tensor) -> float:
    """The largest row's RMS error over the larger of the reference's RMS in that row and in all; NaN if not finite."""
    import torch

    if found.shape != wanted.shape:
        raise LabError(f"the reference is {list(wanted.shape)} where the output is {list(found.shape)}")
    if not torch.isfinite(found).all():
        return float("nan")
    found, wanted = (t.to(torch.float64).reshape(t.shape[0], -1) for t in (found, wanted))
    row_rms = wanted.square().mean(1).sqrt()
    scale = torch.maximum(row_rms, wanted.square().mean().sqrt())
    error = (found - wanted).square().mean(1).sqrt()
    return float(torch.where(error == 0, 0.0, error / scale).max())  # an all-zero reference allows zeros only


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, NaN included."""
    import torch

    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.shape == b.shape and bool((a.contiguous().view(kind) == b.contiguous().view(kind)).all())


def _describe(name: str, found: Tensor, error: float, tolerance: float) -> str:
    import torch

    bad = int((~torch.isfinite(found)).sum())
    if bad:
        return f"{name}: {bad} of {found.numel()} values are not finite (never written, or computed from such)"
    return f"{name}: error {error:.3g} is over the tolerance {tolerance:.3g}"


def _disturbed(
    inputs: Mapping[str, Field], outputs: Mapping[str, Field], before: Io, after: Io, tokens: int
) -> list[str]:
    """Inputs that changed and rows past the length that were written."""
    faults = [f"{n}: an input was changed" for n in inputs if n not in outputs and not same_bits(before[n], after[n])]
    for name, field in outputs.items():
        if field.per_token and not same_bits(before[name][tokens:], after[name][tokens:]):
            faults.append(f"{name}: rows past the length were written")
    return faults
