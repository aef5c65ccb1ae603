"""Plain torch, any device and dtype, with the contract's rounding points."""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    rows = first_rows(io["gate_up"], io["out"])

    def step(tokens: int) -> None:
        gate_up, out = rows(tokens)
        gate, up = gate_up.chunk(2, dim=-1)
        torch.ops.aten.silu.out(gate, out=out)
        out.mul_(up)

    return step
