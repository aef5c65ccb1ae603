"""One call for the one row: sum, norm, and the dot product in float64."""

import numpy as np

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, supports_multiples
from openjev_lab.ops.numba_lanes import load8, store
from openjev_lab.ops.numba_math import ONE, sum_squares

BACKEND = "numba_cpu"
supports = supports_multiples(8, "hidden")


@jit
def head(residual, delta, norm_weight, head_weight, head_bias, hidden, score, eps, tokens):
    dim = len(hidden)
    last = (tokens - 1) * dim
    for i in range(0, dim, 8):
        store(hidden, i, load8(residual, last + i) + load8(delta, last + i))
    scale = ONE / np.sqrt(sum_squares(hidden, 0, dim) / np.float32(dim) + eps)
    total = np.float64(head_bias[0])
    for i in range(dim):
        hidden[i] = hidden[i] * scale * (ONE + norm_weight[i])
        total += np.float64(hidden[i]) * np.float64(head_weight[i])
    score[0] = total


def bind(geometry: Geometry, io: Io) -> Step:
    names = ("residual", "delta", "norm_weight", "head_weight", "head_bias", "hidden", "score")
    buffers = tuple(io[name].view(-1).numpy() for name in names)
    eps = np.float32(geometry.eps)
    return lambda tokens: head(*buffers, eps, tokens)
