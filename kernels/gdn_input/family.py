"""What a Gated DeltaNet layer does between its projection and the delta rule.

Takes the packed row ``[q k v | z | b | a]``; the convolution runs over the q, k and v channels alone. Rounding, as
transformers has it: the convolution and SiLU are each rounded to the model dtype; beta is rounded to it and handed on
as float32; g is float32. Queries and keys are normalised in float32; transformers keeps that float32 inside its delta
rule, here (as in flash-linear-attention) it is rounded to the model dtype, so that the delta rule's operands are ready.
Source: ``Qwen3_5GatedDeltaNet.forward``, ``causal_conv1d_fn`` and ``l2norm`` in transformers' modeling_qwen3_5.py.
"""

import torch
from torch import Tensor
from torch.nn import functional

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "q k v = silu(causal conv(row)); q, k /= norm; beta = sigmoid(b); g = -exp(a_log) softplus(a + dt_bias)"
L2_EPS = 1e-6
INPUTS = {
    "qkvzba": Field("tokens qkvzba_out"),
    "conv_weight": Field("conv_dim conv_width"),
    "dt_bias": Field("linear_v_heads", "float32"),
    "a_log": Field("linear_v_heads", "float32"),
}
OUTPUTS = {
    "q": Field("tokens linear_k_heads linear_k_dim"),
    "k": Field("tokens linear_k_heads linear_k_dim"),
    "v": Field("tokens linear_v_heads linear_v_dim"),
    "beta": Field("tokens linear_v_heads", "float32"),
    "g": Field("tokens linear_v_heads", "float32"),
}
EXACT: tuple[tuple[str, ...], ...] = ()
TOLERANCE = {"float32": 2e-6, "bfloat16": 6e-3}
CASES = ("random", "zero", "large")


def make_io(make: Maker, case: str) -> Buffers:
    scale = {"random": 1.0, "zero": 0.0, "large": 30.0}[case]  # large: SiLU and softplus far from their bends
    io = {
        "qkvzba": make.draw(INPUTS["qkvzba"], scale=scale),
        "conv_weight": make.draw(INPUTS["conv_weight"], scale=0.5),
        "dt_bias": make.draw(INPUTS["dt_bias"], scale=2.0),
    }
    io["a_log"] = (
        torch.empty(make.geometry.linear_v_heads).uniform_(0.01, 16, generator=make.generator).log().to(make.device)
    )
    return io | {name: make.new(field) for name, field in OUTPUTS.items()}


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    dtype = io["qkvzba"].dtype

    def rounded(x: Tensor) -> Tensor:
        return x.to(dtype).to(torch.float64)

    row = io["qkvzba"][:tokens].to(torch.float64)
    channels, _, b, a = row.split(
        [geometry.conv_dim, geometry.value_dim, geometry.linear_v_heads, geometry.linear_v_heads], dim=-1
    )
    padded = functional.pad(channels.T, (geometry.conv_width - 1, 0))
    mixed = functional.conv1d(padded, io["conv_weight"].to(torch.float64).unsqueeze(1), groups=geometry.conv_dim).T
    mixed = rounded(functional.silu(rounded(mixed)))
    q, k, v = mixed.split([geometry.key_dim, geometry.key_dim, geometry.value_dim], dim=-1)
    q, k = (x.reshape(tokens, geometry.linear_k_heads, geometry.linear_k_dim) for x in (q, k))
    q, k = (x * (x.square().sum(-1, keepdim=True) + L2_EPS).rsqrt() for x in (q, k))
    g = -io["a_log"].to(torch.float64).exp() * functional.softplus(a + io["dt_bias"].to(torch.float64))
    return {
        "q": q.to(dtype),
        "k": k.to(dtype),
        "v": v.reshape(tokens, geometry.linear_v_heads, geometry.linear_v_dim).to(dtype),
        "beta": b.sigmoid().to(dtype).to(torch.float32),
        "g": g.to(torch.float32),
    }


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    read = (geometry.conv_dim + 2 * geometry.linear_v_heads) * dtype_bytes
    written = geometry.conv_dim * dtype_bytes + 8 * geometry.linear_v_heads
    flops = geometry.conv_dim * (2 * geometry.conv_width + 8)
    return Cost(bytes=tokens * (read + written), flops=tokens * flops)
