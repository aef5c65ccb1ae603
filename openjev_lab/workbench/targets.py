"""What a workbench command is about: ``FAMILY[/VARIANT]``, and the geometry, device and dtype to run it in.

Takes what a user typed; returns loaded families and a ``Place``, or raises ``LabError`` with what would be right. Apart
because every command of the workbench begins with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN, Geometry
from openjev_lab.ops.families import KERNELS, Family, Variant, load_family


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel is to run."""

    geometry: Geometry
    device: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.geometry.name} in {self.dtype} on {self.device}"


@dataclass(frozen=True, slots=True)
class Target:
    """A family, or one variant of it."""

    family: Family
    variant: str | None

    def members(self) -> dict[str, Variant | LabError]:
        """The variants that are meant, by name; for a file that does not load, why."""
        found = members(self.family)
        return {self.variant: found[self.variant]} if self.variant else found


def place(geometry: str | None = None, device: str = "cpu", dtype: str | None = None) -> Place:
    """Fills in what was left out: tiny and float32 on a CPU, 27b and bfloat16 on a GPU."""
    on_gpu = device.startswith("cuda")
    if device != "cpu" and not on_gpu:
        raise LabError(f"device {device!r} is unknown; cpu or cuda is right")
    if on_gpu:
        import torch

        if not torch.cuda.is_available():
            raise LabError(f"device {device!r} needs a CUDA device, and PyTorch sees none; --device cpu is right here")
    dtype = dtype or ("bfloat16" if on_gpu else "float32")
    if dtype not in ("float32", "bfloat16"):
        raise LabError(f"dtype {dtype!r} is unknown; float32 or bfloat16 is right")
    return Place(known(geometry or ("27b" if on_gpu else "tiny")), device, dtype)


def known(geometry: str) -> Geometry:
    """The geometry of that name; ``LabError`` with the names there are."""
    if geometry not in KNOWN:
        raise LabError(f"geometry {geometry!r} is unknown; {', '.join(KNOWN)} are known")
    return KNOWN[geometry]


def target(text: str, root: Path = KERNELS) -> Target:
    """``FAMILY`` or ``FAMILY/VARIANT``; ``LabError`` with the names there are if there is no such."""
    name, slash, variant = text.partition("/")
    family = load_family(name, root)
    if not slash:
        return Target(family, None)
    family.variant(variant)
    return Target(family, variant)


def members(family: Family) -> dict[str, Variant | LabError]:
    """Every variant's file by name, sorted: the variant, or why its file does not load."""
    found: dict[str, Variant | LabError] = {}
    for path in sorted(p for p in family.folder.iterdir() if p.suffix in {".py", ".cu"} and p.name != "family.py"):
        try:
            found[path.stem] = family.variant(path.stem)
        except LabError as problem:
            found[path.stem] = problem
    return found
