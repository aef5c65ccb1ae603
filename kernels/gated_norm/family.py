"""RMSNorm of each head's output, times SiLU of the gate z.

Rounding, as transformers has it where a checkpoint keeps this weight in float32 (the released ones do): the normalised
value is rounded to the model dtype; its products with the weight (not zero-centred here) and with SiLU(z) are float32,
and the last one is rounded.
Source: ``Qwen3_5RMSNormGated`` in transformers' modeling_qwen3_5.py.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "out = weight * (o / sqrt(mean(o^2) + eps)) * silu(z), head by head"
INPUTS = {
    "o": Field("tokens linear_v_heads linear_v_dim"),
    "qkvzba": Field("tokens qkvzba_out"),
    "weight": Field("linear_v_dim", "float32"),
}
OUTPUTS = {"out": Field("tokens value_dim")}
EXACT: tuple[tuple[str, ...], ...] = ()
TOLERANCE = {"float32": 1e-6, "bfloat16": 8e-3}
CASES = ("random", "tiny")


def make_io(make: Maker, case: str) -> Buffers:
    return {
        "o": make.draw(INPUTS["o"], scale=1e-9 if case == "tiny" else 0.3),
        "qkvzba": make.draw(INPUTS["qkvzba"], scale=2.0),
        "weight": make.draw(INPUTS["weight"]),
        "out": make.new(OUTPUTS["out"]),
    }


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    dtype = io["o"].dtype
    o = io["o"][:tokens].to(torch.float64)
    z = io["qkvzba"][:tokens, geometry.z_offset : geometry.b_offset].to(torch.float64).reshape(o.shape)
    normed = (o * (o.square().mean(-1, keepdim=True) + geometry.eps).rsqrt()).to(dtype)
    out = normed.to(torch.float64) * io["weight"].to(torch.float64) * torch.nn.functional.silu(z)
    return {"out": out.to(dtype).reshape(tokens, geometry.value_dim)}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    return Cost(bytes=3 * tokens * geometry.value_dim * dtype_bytes, flops=10 * tokens * geometry.value_dim)
