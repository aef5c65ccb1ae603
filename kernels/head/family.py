"""Final norm of the last token and the decision head: the candidate's score.

Rounding: the last residual sum is rounded to the model dtype, the norm works in float32 and is rounded to it; that
hidden state, as float32, meets the head's float32 row in a float64 sum.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "hidden = norm(residual + delta)[last]; score = hidden . head_weight + head_bias"
INPUTS = {
    "residual": Field("tokens hidden"),
    "delta": Field("tokens hidden"),
    "norm_weight": Field("hidden"),
    "head_weight": Field("hidden", "float32"),
    "head_bias": Field("1", "float32"),
}
OUTPUTS = {"hidden": Field("hidden"), "score": Field("1", "float64")}
EXACT: tuple[tuple[str, ...], ...] = ()
TOLERANCE = {"float32": 1e-6, "bfloat16": 4e-3}
CASES = ("random",)


def make_io(make: Maker, case: str) -> Buffers:
    scale = {"residual": 3.0, "norm_weight": 0.3, "head_weight": make.geometry.hidden**-0.5}
    io = {n: make.draw(field, scale=scale.get(n, 1.0)) for n, field in INPUTS.items()}
    io["head_bias"] += 8  # keeps the score, which the error is relative to, away from 0
    return io | {name: make.new(field) for name, field in OUTPUTS.items()}


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    dtype = io["residual"].dtype
    last = (io["residual"][tokens - 1] + io["delta"][tokens - 1]).to(torch.float64)
    norm = (last.square().mean() + geometry.eps).rsqrt()
    hidden = (last * norm * (1 + io["norm_weight"].to(torch.float64))).to(dtype)
    score = hidden.to(torch.float64) @ io["head_weight"].to(torch.float64) + io["head_bias"].to(torch.float64)
    return {"hidden": hidden, "score": score}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    return Cost(bytes=geometry.hidden * (4 * dtype_bytes + 4), flops=7 * geometry.hidden)
