"""The recurrence as it is written, sixteen value columns at a time, a token after the other.

The value heads of a key head lie side by side, so their columns are one long row; the state is kept in blocks of
sixteen of them, a block's key rows one after another: (columns / 16, key dim, 16).
"""

import numpy as np
import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, run_pieces, supports_multiples
from openjev_lab.ops.numba_lanes import fma, load16, store, zero16
from openjev_lab.ops.numba_math import exp

BACKEND = "numba_cpu"
supports = supports_multiples(16, "linear_k_dim", "linear_v_dim")


@jit
def one_block(q, k, key, keys, v, place, beta, decay, state, block, scale, o):
    """S = decay S + k (beta (v - decay S^T k))^T; o = S^T q scale, for sixteen columns. Two chains of sums, not one."""
    even, odd = zero16(), zero16()
    for i in range(0, keys, 2):
        even = fma(load16(state, block + 16 * i), k[key + i], even)
        odd = fma(load16(state, block + 16 * i + 16), k[key + i + 1], odd)
    learnt = (load16(v, place) - (even + odd) * decay) * beta
    even, odd = zero16(), zero16()
    for i in range(0, keys, 2):
        s = fma(learnt, k[key + i], load16(state, block + 16 * i) * decay)
        store(state, block + 16 * i, s)
        even = fma(s, q[key + i], even)
        s = fma(learnt, k[key + i + 1], load16(state, block + 16 * i + 16) * decay)
        store(state, block + 16 * i + 16, s)
        odd = fma(s, q[key + i + 1], odd)
    store(o, place, (even + odd) * scale)


@jit
def gated_delta(q, k, v, beta, g, o, sizes, scale, tokens, first_head, last_head):
    """Key heads ``first_head`` to ``last_head`` and the value heads that they serve."""
    k_heads, group, keys, dim = sizes
    columns = group * dim
    state = np.empty(keys * columns, np.float32)
    for head in range(first_head, last_head):
        state[:] = 0
        for t in range(tokens):
            key = (t * k_heads + head) * keys
            for member in range(group):
                value_head = (t * k_heads + head) * group + member
                decay, b = exp(g[value_head]), beta[value_head]
                for c in range(0, dim, 16):
                    block = (member * dim + c) * keys
                    one_block(q, k, key, keys, v, value_head * dim + c, b, decay, state, block, scale, o)


def bind(geometry: Geometry, io: Io) -> Step:
    heads = geometry.linear_k_heads
    buffers = tuple(io[name].view(-1).numpy() for name in ("q", "k", "v", "beta", "g", "o"))
    sizes = (heads, geometry.v_heads_per_k, geometry.linear_k_dim, geometry.linear_v_dim)
    scale = np.float32(geometry.linear_k_dim**-0.5)

    def step(tokens: int) -> None:
        pieces = min(torch.get_num_threads(), heads) if tokens >= 600 else 1
        bounds = [heads * piece // pieces for piece in range(pieces + 1)]
        ranges = zip(bounds, bounds[1:], strict=False)
        run_pieces(gated_delta, [(*buffers, sizes, scale, tokens, first, last) for first, last in ranges])

    return step
