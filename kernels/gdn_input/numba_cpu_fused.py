"""One pass a token: convolution and SiLU eight channels at a time, then norms, beta and decay of its heads."""

import numpy as np

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, over_rows, supports_multiples
from openjev_lab.ops.numba_lanes import fma, load8, store
from openjev_lab.ops.numba_math import ONE, sigmoid, silu, softplus, sum_squares

BACKEND = "numba_cpu"
L2_EPS = np.float32(1e-6)
supports = supports_multiples(8, "linear_k_dim", "linear_v_dim")


@jit
def convolved(packed, width, taps, t, channel, channels, taps_back, out, place):
    """silu(sum over the last rows up to t) of eight channels; ``taps`` is (taps, channels), latest token last."""
    latest = (taps_back - 1) * channels + channel
    x = load8(packed, t * width + channel) * load8(taps, latest)
    for back in range(1, min(taps_back, t + 1)):
        x = fma(load8(packed, (t - back) * width + channel), load8(taps, latest - back * channels), x)
    store(out, place, silu(x))


@jit
def made_unit(values, start, dim):
    scale = ONE / np.sqrt(sum_squares(values, start, dim) + L2_EPS)
    for i in range(start, start + dim, 8):
        store(values, i, load8(values, i) * scale)


@jit
def gdn_input(packed, taps, dt_bias, decay, q, k, v, beta, g, sizes, first, last):
    width, key_dim, value_dim, head_dim, taps_back = sizes
    channels, heads = 2 * key_dim + value_dim, len(decay)
    for t in range(first, last):
        for i in range(0, key_dim, 8):
            convolved(packed, width, taps, t, i, channels, taps_back, q, t * key_dim + i)
            convolved(packed, width, taps, t, key_dim + i, channels, taps_back, k, t * key_dim + i)
        for i in range(0, value_dim, 8):
            convolved(packed, width, taps, t, 2 * key_dim + i, channels, taps_back, v, t * value_dim + i)
        for start in range(t * key_dim, (t + 1) * key_dim, head_dim):
            made_unit(q, start, head_dim)
            made_unit(k, start, head_dim)
        b_start = t * width + channels + value_dim
        for head in range(heads):
            beta[t * heads + head] = sigmoid(packed[b_start + head])
            g[t * heads + head] = decay[head] * softplus(packed[b_start + heads + head] + dt_bias[head])


def bind(geometry: Geometry, io: Io) -> Step:
    names = ("qkvzba", "dt_bias", "q", "k", "v", "beta", "g")
    packed, dt_bias, q, k, v, beta, g = (io[name].view(-1).numpy() for name in names)
    taps = np.ascontiguousarray(io["conv_weight"].numpy().T).reshape(-1)
    decay = -np.exp(io["a_log"].numpy())
    g_ = geometry
    sizes = (g_.qkvzba_out, g_.key_dim, g_.value_dim, g_.linear_k_dim, g_.conv_width)
    return over_rows(gdn_input, packed, taps, dt_bias, decay, q, k, v, beta, g, sizes, grain=512)
