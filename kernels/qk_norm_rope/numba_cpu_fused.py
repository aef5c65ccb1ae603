"""One pass a token: every head is normalised into place, then its leading dimensions are rotated there."""

import numpy as np

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, over_rows, supports_multiples
from openjev_lab.ops.numba_lanes import load8, store
from openjev_lab.ops.numba_math import ONE, sum_squares

BACKEND = "numba_cpu"
supports = supports_multiples(8, "head_dim")


@jit
def normed_and_rotated(packed, start, weight, cos, sin, angle, half, eps, out, place):
    dim = len(weight)
    scale = ONE / np.sqrt(sum_squares(packed, start, dim) / np.float32(dim) + eps)
    for i in range(0, dim, 8):
        store(out, place + i, load8(packed, start + i) * scale * (ONE + load8(weight, i)))
    for i in range(half):
        low, high = out[place + i], out[place + half + i]
        out[place + i] = low * cos[angle + i] - high * sin[angle + i]
        out[place + half + i] = high * cos[angle + i] + low * sin[angle + i]


@jit
def qk_norm_rope(packed, q_weight, k_weight, cos, sin, q, k, sizes, eps, first, last):
    width, heads, kv_heads, half = sizes
    dim = len(q_weight)
    for t in range(first, last):
        for head in range(heads):  # in the packed row, a query and then its gate
            start, place = t * width + 2 * head * dim, (t * heads + head) * dim
            normed_and_rotated(packed, start, q_weight, cos, sin, t * half, half, eps, q, place)
        for head in range(kv_heads):
            start, place = t * width + (2 * heads + head) * dim, (t * kv_heads + head) * dim
            normed_and_rotated(packed, start, k_weight, cos, sin, t * half, half, eps, k, place)


def bind(geometry: Geometry, io: Io) -> Step:
    names = ("qkv", "q_weight", "k_weight", "cos", "sin", "q", "k")
    sizes = (geometry.qkv_out, geometry.heads, geometry.kv_heads, geometry.rotary_half)
    buffers = (io[name].view(-1).numpy() for name in names)
    return over_rows(qk_norm_rope, *buffers, sizes, np.float32(geometry.eps), grain=900)
