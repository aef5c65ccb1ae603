"""Zero-centred RMSNorm of every query and key head, then rotary embedding on its leading dimensions.

Takes the packed row ``[q gate, head by head | k | v]``; values and gates stay there, where attention reads them. For
text, the three position streams of the multimodal rotary embedding are equal, so it is the ordinary one. Rounding, as
transformers has it: the norm works in float32 and is rounded; cos and sin come in the model dtype; each of the two
products is rounded, and so is their sum.
Source: ``Qwen3_5Attention.forward`` and ``apply_rotary_pos_emb`` in transformers' modeling_qwen3_5.py; Su et al.,
"RoFormer", 2021.
"""

import torch
from torch import Tensor

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "q, k = rotate(norm(q), t), rotate(norm(k), t), from the packed row into heads"
INPUTS = {
    "qkv": Field("tokens qkv_out"),
    "q_weight": Field("head_dim"),
    "k_weight": Field("head_dim"),
    "cos": Field("tokens rotary_half"),
    "sin": Field("tokens rotary_half"),
}
OUTPUTS = {"q": Field("tokens heads head_dim"), "k": Field("tokens kv_heads head_dim")}
EXACT: tuple[tuple[str, ...], ...] = ()
TOLERANCE = {"float32": 1e-6, "bfloat16": 6e-3}
CASES = ("random", "tiny")


def make_io(make: Maker, case: str) -> Buffers:
    angles = torch.rand(make.rows, make.geometry.rotary_half, generator=make.generator) * 6.28
    io = {
        "qkv": make.draw(INPUTS["qkv"], scale=1e-9 if case == "tiny" else 1.0),
        "q_weight": make.draw(INPUTS["q_weight"], scale=0.3),
        "k_weight": make.draw(INPUTS["k_weight"], scale=0.3),
    }
    io |= {"cos": angles.cos().to(io["qkv"]), "sin": angles.sin().to(io["qkv"])}
    return io | {name: make.new(field) for name, field in OUTPUTS.items()}


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    dtype = io["qkv"].dtype
    q_gate, k, _ = io["qkv"][:tokens].split([2 * geometry.q_out, geometry.kv_out, geometry.kv_out], dim=-1)
    q = q_gate.reshape(tokens, geometry.heads, 2, geometry.head_dim)[:, :, 0]
    k = k.reshape(tokens, geometry.kv_heads, geometry.head_dim)
    cos, sin = (io[name][:tokens].to(torch.float64).repeat(1, 2).unsqueeze(1) for name in ("cos", "sin"))

    def rounded(x: Tensor) -> Tensor:
        return x.to(dtype).to(torch.float64)

    def normed_and_rotated(x: Tensor, weight: Tensor) -> Tensor:
        x = x.to(torch.float64)
        x = x * (x.square().mean(-1, keepdim=True) + geometry.eps).rsqrt() * (1 + weight.to(torch.float64))
        x, passed = rounded(x).split([geometry.rotary_dim, geometry.head_dim - geometry.rotary_dim], dim=-1)
        turned = torch.cat((-x[..., geometry.rotary_half :], x[..., : geometry.rotary_half]), dim=-1)
        return torch.cat((rounded(x * cos) + rounded(turned * sin), passed), dim=-1).to(dtype)

    return {"q": normed_and_rotated(q, io["q_weight"]), "k": normed_and_rotated(k, io["k_weight"])}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    width = geometry.q_out + geometry.kv_out
    row = 2 * width + 2 * geometry.rotary_half
    return Cost(bytes=tokens * row * dtype_bytes, flops=8 * tokens * width)
