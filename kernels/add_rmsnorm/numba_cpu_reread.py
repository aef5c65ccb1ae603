"""Two passes: sums and mean squares of all rows; then every row is read again from memory, scaled and written."""

import numpy as np

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, over_rows, supports_multiples
from openjev_lab.ops.numba_lanes import load8, store
from openjev_lab.ops.numba_math import ONE, sum_squares

BACKEND = "numba_cpu"
supports = supports_multiples(8, "hidden")


@jit
def add_rmsnorm(residual, delta, weight, out, scales, eps, first, last):
    hidden = len(weight)
    for t in range(first, last):
        row = t * hidden
        for i in range(0, hidden, 8):
            store(residual, row + i, load8(residual, row + i) + load8(delta, row + i))
        scales[t] = ONE / np.sqrt(sum_squares(residual, row, hidden) / np.float32(hidden) + eps)
    for t in range(first, last):
        row = t * hidden
        for i in range(0, hidden, 8):
            store(out, row + i, load8(residual, row + i) * scales[t] * (ONE + load8(weight, i)))


def bind(geometry: Geometry, io: Io) -> Step:
    residual, delta, weight, out = (io[name].view(-1).numpy() for name in ("residual", "delta", "weight", "out"))
    scales = np.empty(len(io["residual"]), np.float32)
    return over_rows(add_rmsnorm, residual, delta, weight, out, scales, np.float32(geometry.eps), grain=1500)
