"""One element at a time, as one CUDA thread would: find its row and column, load two values, store one."""

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, over_rows, supports
from openjev_lab.ops.numba_math import silu

__all__ = ["supports"]
BACKEND = "numba_cpu"


@jit
def silu_mul(gate_up, out, first, last):
    width = out.shape[1]
    for element in range(first * width, last * width):
        row = element // width
        column = element - row * width
        out[row, column] = silu(gate_up[row, column]) * gate_up[row, width + column]


def bind(geometry: Geometry, io: Io) -> Step:
    return over_rows(silu_mul, io["gate_up"].numpy(), io["out"].numpy(), grain=64)
