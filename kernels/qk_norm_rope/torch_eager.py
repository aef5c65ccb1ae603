"""Plain torch, any device and dtype, with the contract's rounding points."""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    half = geometry.rotary_half
    queries = io["qkv"][:, : geometry.k_offset].unflatten(1, (geometry.heads, 2, geometry.head_dim))[:, :, 0]
    keys = io["qkv"][:, geometry.k_offset : geometry.v_offset].unflatten(1, (geometry.kv_heads, geometry.head_dim))
    rows = first_rows(queries, keys, io["cos"].unsqueeze(1), io["sin"].unsqueeze(1), io["q"], io["k"])
    q_weight, k_weight = (1 + io[name].float() for name in ("q_weight", "k_weight"))

    def normed_and_rotated(
        x: torch.Tensor, weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, out: torch.Tensor
    ) -> None:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + geometry.eps) * weight
        out.copy_(wide)
        low, high = wide.to(x.dtype)[..., : 2 * half].chunk(2, dim=-1)
        out[..., :half] = low * cos - high * sin
        out[..., half : 2 * half] = high * cos + low * sin

    def step(tokens: int) -> None:
        queries, keys, cos, sin, q, k = rows(tokens)
        normed_and_rotated(queries, q_weight, cos, sin, q)
        normed_and_rotated(keys, k_weight, cos, sin, k)

    return step
