"""The machine's notebook: the doctor's findings as tables, the ceilings of this machine, and a forward's floor.

Takes nothing; returns tables. Measures with numpy alone, whose GEMM and copy are as good as a CPU has, and with torch
where there is a GPU. Apart from ``doctor``, which measures nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from openjev_lab import doctor
from openjev_lab.geometry import KNOWN
from openjev_lab.notebook.arithmetic import CASES, TOKENS
from openjev_lab.notebook.show import Text, table

COPY_BYTES = 256 * 2**20  # several times the last-level cache of a server CPU
GEMM_SIDE = 2048
REPEATS = 7


def findings() -> Text:
    """What this machine is: everything the doctor says but the lists of packages and rungs."""
    left_out = ("packages", "rungs")
    found = [f for f in doctor.findings() if f.group not in left_out and f.name != "project"]  # no path of this machine
    return table([{"group": f.group, "what": f.name, "ok": doctor.MARKS[f.ok], "found": f.detail} for f in found])


def rungs() -> Text:
    """Each rung on each device, or why not."""
    return table([{"rung": name, "ok": doctor.MARKS[ok], "why": detail} for name, ok, detail in doctor.rung_rows()])


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Best and median of several runs of work that is known: a spread says that the machine is shared."""

    name: str
    best_per_s: float
    median_per_s: float


def measure(name: str, work: float, run: Callable[[], Any]) -> Ceiling:
    """``work`` units a call of ``run``, after one call that is left out."""
    run()
    times_s = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - start)
    return Ceiling(name, work / min(times_s), work / sorted(times_s)[len(times_s) // 2])


def cpu_ceilings() -> list[Ceiling]:
    """Copy (bytes read plus written) and float32 GEMM of the CPU."""
    import numpy as np

    source = np.ones(COPY_BYTES // 8)
    target = np.empty_like(source)
    square = np.random.default_rng(0).standard_normal((GEMM_SIDE, GEMM_SIDE), dtype=np.float32)
    product = np.empty_like(square)
    return [
        measure("CPU copy, GB/s", 2 * COPY_BYTES / 1e9, lambda: np.copyto(target, source)),
        measure("CPU GEMM float32, GFLOP/s", 2 * GEMM_SIDE**3 / 1e9, lambda: np.matmul(square, square, out=product)),
    ]


def gpu_ceilings() -> list[Ceiling]:
    """Copy and BF16 GEMM of the first GPU; nothing where there is none."""
    import torch

    if not torch.cuda.is_available():
        return []
    side = 4 * GEMM_SIDE
    source = torch.ones(8 * COPY_BYTES // 4, device="cuda")
    square = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)

    def finished(run: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: (run(), torch.cuda.synchronize())

    return [
        measure("GPU copy, GB/s", 16 * COPY_BYTES / 1e9, finished(source.clone)),
        measure("GPU GEMM BF16, GFLOP/s", 2 * side**3 / 1e9, finished(lambda: square @ square)),
    ]


def ceilings() -> Text:
    """What this machine does at best, beside its median."""
    found = cpu_ceilings() + gpu_ceilings()
    return table([{"ceiling": c.name, "best": c.best_per_s, "median": c.median_per_s} for c in found])


def work() -> Text:
    """What a forward must read and compute at least, by geometry and length: projections only."""
    return table(
        [
            {
                "geometry": name,
                "tokens": tokens,
                "weights MB": KNOWN[name].projection_params * dtype_bytes / 1e6,
                "GFLOP": 2 * tokens * KNOWN[name].projection_params / 1e9,
                "FLOP a weight byte": 2 * tokens / dtype_bytes,
            }
            for name, dtype_bytes in CASES
            for tokens in TOKENS
        ]
    )
