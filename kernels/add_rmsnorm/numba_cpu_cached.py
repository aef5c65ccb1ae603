"""One pass: a row's sum is kept in a local array until it is scaled, so memory is read once."""

import numpy as np

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, over_rows, supports_multiples
from openjev_lab.ops.numba_lanes import load8, store
from openjev_lab.ops.numba_math import ONE, sum_squares

BACKEND = "numba_cpu"
supports = supports_multiples(8, "hidden")


@jit
def add_rmsnorm(residual, delta, weight, out, eps, first, last):
    hidden = len(weight)
    kept = np.empty(hidden, np.float32)
    for t in range(first, last):
        row = t * hidden
        for i in range(0, hidden, 8):
            x = load8(residual, row + i) + load8(delta, row + i)
            store(residual, row + i, x)
            store(kept, i, x)
        scale = ONE / np.sqrt(sum_squares(kept, 0, hidden) / np.float32(hidden) + eps)
        for i in range(0, hidden, 8):
            store(out, row + i, load8(kept, i) * scale * (ONE + load8(weight, i)))


def bind(geometry: Geometry, io: Io) -> Step:
    residual, delta, weight, out = (io[name].view(-1).numpy() for name in ("residual", "delta", "weight", "out"))
    return over_rows(add_rmsnorm, residual, delta, weight, out, np.float32(geometry.eps), grain=1500)
