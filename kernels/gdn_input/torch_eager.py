"""Plain torch, any device and dtype, with the contract's rounding points."""

import torch
from torch.nn import functional

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"
L2_EPS = 1e-6


def bind(geometry: Geometry, io: Io) -> Step:
    rows = first_rows(*(io[name] for name in ("qkvzba", "q", "k", "v", "beta", "g")))
    taps, decay = io["conv_weight"].unsqueeze(1), -io["a_log"].exp()
    widths = [geometry.conv_dim, geometry.value_dim, geometry.linear_v_heads, geometry.linear_v_heads]

    def unit(x: torch.Tensor) -> torch.Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + L2_EPS)

    def step(tokens: int) -> None:
        packed, q, k, v, beta, g = rows(tokens)
        channels, _, b, a = packed.split(widths, dim=-1)
        padded = functional.pad(channels.T, (geometry.conv_width - 1, 0))
        mixed = functional.silu(functional.conv1d(padded, taps, groups=geometry.conv_dim)).T
        mixed_q, mixed_k, mixed_v = mixed.split([geometry.key_dim, geometry.key_dim, geometry.value_dim], dim=-1)
        q.copy_(unit(mixed_q.reshape(q.shape)))
        k.copy_(unit(mixed_k.reshape(k.shape)))
        v.copy_(mixed_v.reshape(v.shape))
        beta.copy_(b.sigmoid())
        g.copy_(decay * functional.softplus(a.float() + io["dt_bias"]))

    return step
