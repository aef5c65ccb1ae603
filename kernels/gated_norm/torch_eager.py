"""Plain torch, any device and dtype, with the contract's rounding points."""

import torch
from torch.nn import functional

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    z = io["qkvzba"][:, geometry.z_offset : geometry.b_offset].unflatten(1, io["o"].shape[1:])
    rows = first_rows(io["o"], z, io["out"].view_as(io["o"]))

    def step(tokens: int) -> None:
        o, z, out = rows(tokens)
        x = o.float()
        normed = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + geometry.eps)).to(o.dtype)
        out.copy_(io["weight"] * normed * functional.silu(z.float()))

    return step
