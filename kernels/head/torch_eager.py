"""Plain torch, any device and dtype, with the contract's rounding points."""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    norm_weight = 1 + io["norm_weight"].float()
    head_weight, bias = io["head_weight"].double(), io["head_bias"].double()

    def step(tokens: int) -> None:
        x = (io["residual"][tokens - 1] + io["delta"][tokens - 1]).float()
        io["hidden"].copy_(x * torch.rsqrt(x.square().mean() + geometry.eps) * norm_weight)
        io["score"].copy_((io["hidden"].double() * head_weight).sum() + bias)

    return step
