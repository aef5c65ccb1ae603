"""What an op is, so that many implementations can serve it and every one can be checked.

A *family* (a folder of ``kernels/``) declares one op in ``family.py``; a *variant* is one file beside it that computes
the op. Both are plain modules; this file names what they must hold, and owns the little arithmetic that all of them
share: shapes from declared axes, poisoned buffers, random inputs. Apart from ``families``, so that kernels import it.

Life of a variant: ``supports`` says whether it can serve a geometry, device and dtype, and why not; ``bind(geometry,
io)`` is called once per set of buffers, resolves everything that does not depend on the length (pointers, compiled
kernels, packed arguments), and returns ``step``; ``step(tokens)`` computes the first ``tokens`` rows, on the current
stream, without allocating or synchronizing where the backend lets it, so that a list of steps is also what a CUDA graph
captures. A step must read and write nothing past row ``tokens``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry

if TYPE_CHECKING:
    from torch import Generator, Tensor

BACKENDS = ("torch", "numba_cpu", "numba_cuda", "cuda")
"""What a variant is written in; its file name starts with it. ``cuda`` is CUDA C++ in a ``.cu`` file."""

Io = Mapping[str, "Tensor"]
Buffers = dict[str, "Tensor"]
Step = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What the op must move and compute at least: each input read once, each output written once."""

    bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Field:
    """One tensor of an op. Always contiguous, rows first.

    ``axes``: names separated by blanks. ``tokens`` is the row axis (buffers may hold more rows than a step uses); a
    ``Geometry`` attribute is its value; a number is itself; any other name is free, and equal wherever it is used in
    the family (the widths of a GEMM).
    """

    axes: str
    dtype: str = "model"
    """``model`` for the dtype that the engine runs in, else a torch dtype's name."""

    @property
    def per_token(self) -> bool:
        return self.axes.split()[0] == "tokens"

    def dtype_in(self, model: str) -> str:
        """The dtype's name in an engine that runs in ``model``."""
        return model if self.dtype == "model" else self.dtype


class FamilyModule(Protocol):
    """What ``family.py`` defines."""

    SUMMARY: str
    """One line: the formula."""
    INPUTS: Mapping[str, Field]
    OUTPUTS: Mapping[str, Field]
    """What a step writes; an in-place tensor stands in both."""
    EXACT: tuple[tuple[str, ...], ...]
    """Groups of variants that promise equal bits."""
    TOLERANCE: Mapping[str, float]
    """Per model dtype, the largest error of a row (RMS, relative to the reference's RMS; see ``ops.check``)."""
    CASES: tuple[str, ...]
    """Names of input distributions; the first is the ordinary one."""

    def make_io(self, make: Maker, case: str) -> Buffers:
        """Buffers of ``make.rows`` rows: inputs drawn from its generator, outputs full of NaN."""
        ...

    def reference(self, geometry: Geometry, io: Io, tokens: int) -> Buffers:
        """Every output's first ``tokens`` rows from plain torch; reads ``io`` and changes nothing."""
        ...

    def cost(self, geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
        """Bytes and FLOPs of one step."""
        ...


class VariantModule(Protocol):
    """What a variant's file defines; for a ``.cu`` file, what ``ops.launch`` makes of it. A Python file also says
    its ``BACKEND``."""

    def supports(self, geometry: Geometry, device: str, dtype: str) -> tuple[bool, str]:
        """(can it serve this, why not; the reason is empty where it can)."""
        ...

    def bind(self, geometry: Geometry, io: Io) -> Step:
        """The step over these very buffers."""
        ...


def anywhere(geometry: Geometry, device: str, dtype: str) -> tuple[bool, str]:
    """``supports`` of plain torch: every geometry, device and floating dtype."""
    return True, ""


def torch_dtype(name: str) -> Any:
    """``torch.float32`` for "float32"; ``LabError`` for a name that is no torch dtype."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise LabError(f"dtype {name!r} is unknown; float32 or bfloat16 is right")
    return found


def shape_of(field: Field, geometry: Geometry, rows: int, free: Mapping[str, int] | None = None) -> tuple[int, ...]:
    """A field's shape with ``rows`` rows; ``free`` gives the axes that the geometry does not name."""
    known = {"tokens": rows, **(free or {})}
    sizes = []
    for axis in field.axes.split():
        if axis.isdigit():
            sizes.append(int(axis))
        elif axis in known:
            sizes.append(known[axis])
        elif hasattr(geometry, axis):
            sizes.append(int(getattr(geometry, axis)))
        else:
            raise LabError(f"axis {axis!r} of {field.axes!r} is no size of the geometry and was not given")
    return tuple(sizes)


def check_io(family: FamilyModule, name: str, geometry: Geometry, io: Io, dtype: str) -> None:
    """Raises ``LabError`` for the first tensor of ``io`` that is missing, misshapen, mistyped, elsewhere, strided."""
    free: dict[str, int] = {}
    fields = {**family.INPUTS, **family.OUTPUTS}
    device = io[next(iter(fields))].device if next(iter(fields)) in io else None
    for key, field in fields.items():
        if key not in io:
            raise LabError(f"{name}: io lacks {key!r}; it needs {', '.join(fields)}")
        tensor, axes = io[key], field.axes.split()
        for axis, size in zip(axes, tensor.shape, strict=False):
            if axis != "tokens" and not axis.isdigit() and not hasattr(geometry, axis):
                free.setdefault(axis, size)
        rows = tensor.shape[0] if tensor.dim() else 0
        if tuple(tensor.shape) != shape_of(field, geometry, rows, free):
            raise LabError(f"{name}: {key} is {list(tensor.shape)}; {field.axes!r} of {geometry.name} is right")
        if tensor.dtype != torch_dtype(field.dtype_in(dtype)):
            raise LabError(f"{name}: {key} is {tensor.dtype}; {field.dtype} is right ({dtype} model)")
        if tensor.device != device or not tensor.is_contiguous():
            raise LabError(f"{name}: {key} must be contiguous and on {device}; it is on {tensor.device}")


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes a family's buffers for a check or a timing: one geometry, number of rows, device and model dtype."""

    geometry: Geometry
    rows: int
    generator: Generator
    """On the CPU whatever the device, so that every device gets the same values."""
    device: str
    dtype: str

    def new(self, field: Field, *, free: Mapping[str, int] | None = None) -> Tensor:
        """A buffer full of NaN: what no step has written cannot pass for a result."""
        return new(field, self.geometry, self.rows, device=self.device, dtype=self.dtype, free=free)

    def draw(self, field: Field, *, scale: float = 1.0, free: Mapping[str, int] | None = None) -> Tensor:
        """Normal values of standard deviation ``scale``, drawn in float32, then rounded to the field's dtype."""
        import torch

        shape = shape_of(field, self.geometry, self.rows, free)
        values = torch.randn(shape, generator=self.generator, dtype=torch.float32) * scale
        return values.to(device=self.device, dtype=torch_dtype(field.dtype_in(self.dtype)))


def new(
    field: Field, geometry: Geometry, rows: int, *, device: str, dtype: str, free: Mapping[str, int] | None = None
) -> Tensor:
    """A tensor for a field, full of NaN (-1 if of integers); ``free`` gives the axes that no geometry names."""
    import torch

    shape, kind = shape_of(field, geometry, rows, free), torch_dtype(field.dtype_in(dtype))
    return torch.full(shape, float("nan") if kind.is_floating_point else -1, device=device, dtype=kind)


def first_rows(*tensors: Tensor) -> Callable[[int], tuple[Tensor, ...]]:
    """``f(tokens)`` -> each tensor's first rows, views kept for the lengths used last: slicing costs a microsecond."""

    @lru_cache(maxsize=128)
    def views(tokens: int) -> tuple[Tensor, ...]:
        return tuple(tensor[:tokens] for tensor in tensors)

    return views


def require(module: ModuleType, names: tuple[str, ...], what: str) -> None:
    """Raises ``LabError`` if a loaded kernel file lacks one of the names that its kind must define."""
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise LabError(f"{module.__file__} is no {what}: it does not define {', '.join(missing)}")
