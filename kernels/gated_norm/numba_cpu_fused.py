"""One pass, head by head: mean square, then norm, weight and gate while the head is in registers."""

import numpy as np

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, over_rows, supports_multiples
from openjev_lab.ops.numba_lanes import load8, store
from openjev_lab.ops.numba_math import ONE, silu, sum_squares

BACKEND = "numba_cpu"
supports = supports_multiples(8, "linear_v_dim")


@jit
def gated_norm(o, packed, weight, out, heads, width, z_offset, eps, first, last):
    dim = len(weight)
    for t in range(first, last):
        for head in range(heads):
            start = (t * heads + head) * dim
            z_start = t * width + z_offset + head * dim
            scale = ONE / np.sqrt(sum_squares(o, start, dim) / np.float32(dim) + eps)
            for i in range(0, dim, 8):
                normed = load8(weight, i) * (load8(o, start + i) * scale)
                store(out, start + i, normed * silu(load8(packed, z_start + i)))


def bind(geometry: Geometry, io: Io) -> Step:
    o, packed, weight, out = (io[name].view(-1).numpy() for name in ("o", "qkvzba", "weight", "out"))
    sizes = (geometry.linear_v_heads, geometry.qkvzba_out, geometry.z_offset, np.float32(geometry.eps))
    return over_rows(gated_norm, o, packed, weight, out, *sizes, grain=1200)
