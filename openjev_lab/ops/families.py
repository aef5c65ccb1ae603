"""Finds the kernels: which families there are, which variants each has, and the one that was asked for.

Takes names; returns ``Family`` and ``Variant``. The ``kernels/`` folder is no Python package (its name is also that of
a distribution that transformers looks for), so its files are loaded by path; a file dropped into a family's folder is
found at the next look, with no other edit. Selection never falls back: what was asked for runs, or a ``LabError`` says
why it can't and what could.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import BACKENDS, FamilyModule, Io, Step, VariantModule, check_io, require

if TYPE_CHECKING:
    from collections.abc import Mapping

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
"""The families' folder, beside the package in a checkout."""
FAMILY_NAMES = ("SUMMARY", "INPUTS", "OUTPUTS", "EXACT", "TOLERANCE", "CASES", "make_io", "reference", "cost")
VARIANT_NAMES = ("BACKEND", "supports", "bind")


@dataclass(frozen=True, slots=True)
class Variant:
    """One implementation of a family's op."""

    family: Family
    name: str
    backend: str
    path: Path
    module: VariantModule

    @property
    def summary(self) -> str:
        """The file's first line: of its docstring, or of a ``.cu`` file's leading comment."""
        return self.path.read_text().lstrip().lstrip('/*" ').partition("\n")[0].rstrip(' "')

    def supports(self, geometry: Geometry, device: str, dtype: str) -> tuple[bool, str]:
        """(can it serve this, why not)."""
        return self.module.supports(geometry, device, dtype)

    def bind(self, geometry: Geometry, io: Io, dtype: str) -> Step:
        """The step over these buffers; ``LabError`` if they are not what the family declares."""
        check_io(self.family.module, f"{self.family.name}/{self.name}", geometry, io, dtype)
        return self.module.bind(geometry, io)


@dataclass(frozen=True, slots=True)
class Family:
    """One op: its contract, and the folder that holds its variants."""

    name: str
    folder: Path
    module: FamilyModule

    def variants(self) -> dict[str, Variant]:
        """Every variant in the folder, by name, sorted."""
        paths = [p for p in self.folder.iterdir() if p.suffix in {".py", ".cu"} and p.name != "family.py"]
        return {path.stem: self.variant(path.stem) for path in sorted(paths)}

    def variant(self, name: str) -> Variant:
        """The variant of that name; ``LabError`` with the names there are if the folder has none."""
        for suffix in (".py", ".cu"):
            path = self.folder / f"{name}{suffix}"
            if name != "family" and path.is_file():
                return Variant(self, name, *_implementation(path, self.module))
        there = sorted(p.stem for p in self.folder.iterdir() if p.suffix in {".py", ".cu"} and p.name != "family.py")
        raise LabError(f"kernel family {self.name!r} has no variant {name!r}; it has {', '.join(there) or 'none'}")


def family_names(root: Path = KERNELS) -> list[str]:
    """Every family, sorted: the folders of ``root`` that hold a ``family.py``."""
    if not root.is_dir():
        raise LabError(f"{root} is missing: kernels are read from a checkout; install the package from one (pip -e)")
    return sorted(path.parent.name for path in root.glob("*/family.py"))


def load_family(name: str, root: Path = KERNELS) -> Family:
    """The family of that name; ``LabError`` with the names there are if there is none."""
    path = root / name / "family.py"
    if not path.is_file():
        raise LabError(f"there is no kernel family {name!r}; there are {', '.join(family_names(root))}")
    module = _load(path, path.stat().st_mtime_ns)
    require(module, FAMILY_NAMES, "kernel family")
    return Family(name, path.parent, cast(FamilyModule, module))


def select(family: str, variant: str, geometry: Geometry, device: str, dtype: str) -> Variant:
    """The variant asked for, if it can serve this; else ``LabError`` with its reason and who could."""
    found = load_family(family)
    chosen = found.variant(variant)
    able, reason = chosen.supports(geometry, device, dtype)
    if not able:
        others = [v.name for v in found.variants().values() if v.supports(geometry, device, dtype)[0]]
        raise LabError(
            f"{family}/{variant} can't run {geometry.name} in {dtype} on {device}: {reason}; "
            f"here {', '.join(others) or 'no variant'} can"
        )
    return chosen


def select_all(ops: Mapping[str, str], geometry: Geometry, device: str, dtype: str) -> dict[str, Variant]:
    """``select`` for each family -> variant name."""
    return {family: select(family, name, geometry, device, dtype) for family, name in ops.items()}


def _implementation(path: Path, family: FamilyModule) -> tuple[str, Path, VariantModule]:
    """(backend, path, what supports and binds) of a variant's file."""
    if path.suffix == ".cu":
        from openjev_lab.ops import launch

        return "cuda", path, launch.load(path, family)
    module = _load(path, path.stat().st_mtime_ns)
    require(module, VARIANT_NAMES, "kernel variant")
    backend = module.BACKEND
    if backend not in BACKENDS or not path.stem.startswith(f"{backend}_"):
        raise LabError(f"{path}: BACKEND is {backend!r}; one of {', '.join(BACKENDS)} that starts the file's name")
    return backend, path, cast(VariantModule, module)


@cache
def _load(path: Path, mtime_ns: int) -> ModuleType:
    """Executes a kernel file as a module, once for each time that it was saved.

    It is registered under a name made of its place: Numba's cache finds a compiled function's module by name.
    """
    name = f"openjev_lab_kernels.{path.parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        del sys.modules[name]
        raise LabError(f"{path} can't be loaded: {type(problem).__name__}: {problem}") from problem
    return module
