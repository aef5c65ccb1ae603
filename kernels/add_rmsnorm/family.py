"""Residual add and zero-centred RMSNorm: the seam between two blocks of the model.

Rounding, as transformers has it: the sum is rounded to the model dtype and kept; the norm works in float32 on the
rounded sum and is rounded once. The weight is zero-centred: a stored 0 scales by 1.
Source: ``Qwen3_5RMSNorm`` and ``Qwen3_5DecoderLayer`` in transformers' modeling_qwen3_5.py; Zhang and Sennrich, "Root
Mean Square Layer Normalization", NeurIPS 2019.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "residual += delta; out = residual / sqrt(mean(residual^2) + eps) * (1 + weight)"
INPUTS = {"residual": Field("tokens hidden"), "delta": Field("tokens hidden"), "weight": Field("hidden")}
OUTPUTS = {"residual": Field("tokens hidden"), "out": Field("tokens hidden")}
EXACT = (("numba_cpu_reread", "numba_cpu_cached"), ("cuda_reread", "cuda_cached"))
TOLERANCE = {"float32": 1e-6, "bfloat16": 4e-3}
CASES = ("random", "tiny")


def make_io(make: Maker, case: str) -> Buffers:
    scale = {"residual": 3.0, "delta": 1.0, "weight": 0.3}
    if case == "tiny":  # the mean square is far below eps
        scale = {"residual": 1e-9, "delta": 1e-9, "weight": 0.3}
    io = {name: make.draw(field, scale=scale[name]) for name, field in INPUTS.items()}
    return io | {"out": make.new(OUTPUTS["out"])}


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    dtype = io["residual"].dtype
    residual = io["residual"][:tokens] + io["delta"][:tokens]
    x = residual.to(torch.float64)
    out = x * (x.square().mean(-1, keepdim=True) + geometry.eps).rsqrt() * (1 + io["weight"].to(torch.float64))
    return {"residual": residual, "out": out.to(dtype)}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    return Cost(bytes=4 * tokens * geometry.hidden * dtype_bytes, flops=5 * tokens * geometry.hidden)
