"""Plain torch, any device and dtype, with the contract's rounding points."""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    rows = first_rows(io["residual"], io["delta"], io["out"])
    weight = 1 + io["weight"].float()

    def step(tokens: int) -> None:
        residual, delta, out = rows(tokens)
        residual.add_(delta)
        x = residual.float()
        out.copy_(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + geometry.eps) * weight)

    return step
