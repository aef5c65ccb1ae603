"""How a variant compiled: registers, shared memory and spills of CUDA C++, the types that Numba compiled for.

Takes one variant and a geometry; returns text. Apart from ``listing`` because a compiler runs for it; no GPU is needed.
"""

from __future__ import annotations

from typing import Any, cast

from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry
from openjev_lab.notebook.show import table
from openjev_lab.ops import check, directives
from openjev_lab.ops.families import Variant
from openjev_lab.ops.launch import CudaVariant
from openjev_lab.workbench.targets import Target

TOKENS = 3
"""Rows of the step that makes Numba compile."""


def text(target: Target, geometry: Geometry, arch: str = "sm_90a") -> str:
    """Formula, summary and file of one variant, then its compile report."""
    if target.variant is None:
        raise LabError(f"show takes one variant: {target.family.name}/{'|'.join(target.members())}")
    variant = target.family.variant(target.variant)
    source = variant.path.read_text()
    head = [
        f"{target.family.name}/{variant.name} ({variant.backend}): {variant.summary}",
        f"formula: {target.family.module.SUMMARY}",
        f"source: {variant.path.name}, {len(source.splitlines())} lines",
    ]
    if variant.backend == "cuda":
        report = _cuda(variant, geometry, arch)
    elif variant.backend == "numba_cpu":
        report = _numba(variant, geometry)
    else:
        report = f"{variant.backend} compiles nothing of its own here; the source:\n{source.rstrip()}"
    return "\n".join([*head, "", report])


def cuda_rows(source: directives.Source, geometry: Geometry, arch: str) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """A row a kernel, and the compiler's warnings; `LabError` if it does not serve that geometry or arch."""
    if unmet := source.unmet(geometry):
        raise LabError(f"{source.path.name} needs {unmet}, which {geometry.name} does not meet")
    if source.arch == "sm_90a" and arch != "sm_90a":
        raise LabError(f"{source.path.name} is written for sm_90a and can't be compiled for {arch}")
    built = source.build(geometry, arch)
    names = directives.names_of(geometry)
    rows = []
    for kernel in source.kernels:
        found = built.kernel(kernel.name)
        rows.append(
            {
                "kernel": kernel.name,
                "threads": int(kernel.block(names)),
                "registers": found.registers,
                "static shared B": found.shared_bytes,
                "dynamic shared B": int(kernel.smem(names)),
                "stack B": found.stack_bytes,
                "spill stores B": found.spill_store_bytes,
                "spill loads B": found.spill_load_bytes,
            }
        )
    return rows, built.warnings


def _cuda(variant: Variant, geometry: Geometry, arch: str) -> str:
    from openjev_lab.ops.build import compiler_version

    rows, warnings = cuda_rows(cast(CudaVariant, variant.module).source, geometry, arch)
    return "\n".join([f"{compiler_version()}, {arch}, {geometry.name}", table(rows).markdown, *warnings])


def _numba(variant: Variant, geometry: Geometry) -> str:
    """Runs one small step, then asks which types each of the file's functions was compiled for."""
    from numba.core.dispatcher import Dispatcher

    able, reason = variant.supports(geometry, "cpu", "float32")
    if not able:
        raise LabError(f"{variant.family.name}/{variant.name} can't run {geometry.name}: {reason}")
    case = variant.family.module.CASES[0]
    io = check.prepare(variant.family, geometry, TOKENS, device="cpu", dtype="float32", seed=0, case=case)
    variant.bind(geometry, io, "float32")(TOKENS)
    functions = [it for it in vars(variant.module).values() if isinstance(it, Dispatcher)]
    lines = [
        f"{function.py_func.__name__}{signature}"
        for function in dict.fromkeys(functions)
        for signature in function.signatures
    ]
    return "\n".join([f"compiled by Numba for {geometry.name}:", *(lines or ["nothing"])])
