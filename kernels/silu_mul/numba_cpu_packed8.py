"""Eight elements at a time: two vector loads, the scalar variant's arithmetic in eight lanes, one vector store."""

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, over_rows, supports_multiples
from openjev_lab.ops.numba_lanes import load8, store
from openjev_lab.ops.numba_math import silu

BACKEND = "numba_cpu"
supports = supports_multiples(8, "intermediate")


@jit
def silu_mul(gate_up, out, width, first, last):
    for row in range(first, last):
        gate_row = 2 * row * width
        for column in range(0, width, 8):
            gate = load8(gate_up, gate_row + column)
            up = load8(gate_up, gate_row + width + column)
            store(out, row * width + column, silu(gate) * up)


def bind(geometry: Geometry, io: Io) -> Step:
    gate_up, out = (io[name].view(-1).numpy() for name in ("gate_up", "out"))
    return over_rows(silu_mul, gate_up, out, geometry.intermediate, grain=750)
