"""Every CUDA C++ variant compiles without a GPU, for each architecture and geometry that it claims, and fits.

A spill, shared memory over the limit, more registers than a multiprocessor has, or a compiler's warning (such as ptxas
serializing wgmma) fails here, not on the GPU. python -m pytest tests/kernels/test_compile.py
"""

from pathlib import Path

import pytest

from openjev_lab.geometry import KNOWN
from openjev_lab.ops import directives
from openjev_lab.ops.families import KERNELS

SOURCES = {f"{path.parent.name}/{path.stem}": path for path in sorted(KERNELS.glob("*/*.cu"))}
GEOMETRIES = ("27b", "2b", "tiny")
REGISTERS = 65536
"""32-bit registers of a multiprocessor (CUDA C++ Programming Guide, compute capabilities 8.0 and 9.0)."""
GRANULE = 8
"""Registers are given to a thread in eights."""


def claims() -> list[tuple[str, str, str]]:
    """(source, geometry, architecture) that the sources say they serve."""
    found = []
    for name, path in SOURCES.items():
        source = directives.parse(path.read_text(), path)
        for geometry in GEOMETRIES:
            if not source.unmet(KNOWN[geometry]):
                found += [(name, geometry, arch) for arch in source.archs]
    return found


def test_every_source_serves_the_model_it_was_written_for() -> None:
    assert {name for name, geometry, _ in claims() if geometry == "27b"} == set(SOURCES)


@pytest.mark.parametrize(("name", "geometry", "arch"), claims())
def test_compiles_and_fits(name: str, geometry: str, arch: str, tmp_path: Path) -> None:
    source = directives.parse(SOURCES[name].read_text(), SOURCES[name])
    sizes = directives.names_of(KNOWN[geometry])
    built = source.build(KNOWN[geometry], arch, tmp_path)
    assert built.warnings == ()
    for kernel in source.kernels:
        report = built.kernel(kernel.name)
        assert report.spill_store_bytes == report.spill_load_bytes == report.stack_bytes == 0, report
        assert report.shared_bytes + kernel.smem(sizes) <= directives.SHARED_LIMIT_BYTES[arch]
        assert kernel.block(sizes) <= 1024
        assert -(-report.registers // GRANULE) * GRANULE * kernel.block(sizes) <= REGISTERS


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("tokens", [1, 64, 65, 16384])
def test_grids_are_launchable_at_every_length(name: str, tokens: int) -> None:
    source = directives.parse(SOURCES[name].read_text(), SOURCES[name])
    for kernel in source.kernels:
        x, y, z = (*kernel.grid(directives.names_of(KNOWN["27b"]) | {"T": tokens}), 1, 1)[:3]
        assert 1 <= x < 2**31 and 1 <= y < 2**16 and 1 <= z < 2**16
