"""Attention in blocks, written whole; then a second pass over the output multiplies every row by its gate."""

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_attention import attention_step, gate_rows
from openjev_lab.ops.numba_cpu import over_rows, supports_multiples

BACKEND = "numba_cpu"
supports = supports_multiples(8, "head_dim")


def bind(geometry: Geometry, io: Io) -> Step:
    attend = attention_step(geometry, io, epilogue=False)
    packed, out = (io[name].view(-1).numpy() for name in ("qkv", "out"))
    gate = over_rows(gate_rows, packed, out, geometry.heads, geometry.head_dim, geometry.qkv_out, grain=1200)

    def step(tokens: int) -> None:
        attend(tokens)
        gate(tokens)

    return step
