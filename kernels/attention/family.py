"""Causal attention with grouped queries, times the sigmoid of the output gate.

q and k come rotated; v and the gates lie in the packed row ``[q gate, head by head | k | v]``. Query head h uses key
head h // heads_per_kv. Rounding, as transformers has it: scores, softmax and their sum over values in float32 (SDPA),
rounded to the model dtype; the sigmoid is rounded; their product is rounded.
A *separate* variant writes the attention and multiplies by the gate in a second pass; an *epilogue* variant multiplies
while a block of rows is still at hand. Both round in the same places, so their bits are equal.
Source: ``Qwen3_5Attention.forward`` in transformers' modeling_qwen3_5.py.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "out = softmax(q k^T / sqrt(dim), causal) v * sigmoid(gate)"
INPUTS = {
    "q": Field("tokens heads head_dim"),
    "k": Field("tokens kv_heads head_dim"),
    "qkv": Field("tokens qkv_out"),
}
OUTPUTS = {"out": Field("tokens q_out")}
EXACT = (("numba_cpu_separate", "numba_cpu_epilogue"), ("cuda_separate", "cuda_epilogue"))
TOLERANCE = {"float32": 2e-5, "bfloat16": 1e-2}
CASES = ("random", "peaked")


def make_io(make: Maker, case: str) -> Buffers:
    scale = {"q": 1.0, "k": 1.0, "qkv": 1.0}
    if case == "peaked":  # scores of a hundred and more: exp of a raw score would overflow float32
        scale |= {"q": 15.0, "k": 5.0}
    io = {name: make.draw(field, scale=scale[name]) for name, field in INPUTS.items()}
    return io | {"out": make.new(OUTPUTS["out"])}


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    """Blocks of queries, one head at a time: all scores of a long request at once would not fit."""
    dtype = io["qkv"].dtype
    q_gate, _, v = io["qkv"][:tokens].split([2 * geometry.q_out, geometry.kv_out, geometry.kv_out], dim=-1)
    gate = q_gate.reshape(tokens, geometry.heads, 2, geometry.head_dim)[:, :, 1].to(torch.float64).sigmoid().to(dtype)
    q, k = (io[name][:tokens].to(torch.float64) for name in ("q", "k"))
    v = v.reshape(tokens, geometry.kv_heads, geometry.head_dim).to(torch.float64)
    out = torch.empty(tokens, geometry.heads, geometry.head_dim, dtype=dtype, device=q.device)
    for first in range(0, tokens, 512):
        last = min(first + 512, tokens)
        future = torch.ones(last - first, last, dtype=torch.bool, device=q.device).triu(first + 1)
        for head in range(geometry.heads):
            group = head // geometry.heads_per_kv
            scores = q[first:last, head] @ k[:last, group].T * geometry.head_dim**-0.5
            weights = scores.masked_fill(future, float("-inf")).softmax(-1)
            out[first:last, head] = (weights @ v[:last, group]).to(dtype)
    out = out.to(torch.float64) * gate.to(torch.float64)
    return {"out": out.to(dtype).reshape(tokens, geometry.q_out)}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    """Scores and values over the causal half; reads q, k, v and the gate once, writes the output once."""
    row = 3 * geometry.q_out + 2 * geometry.kv_out
    return Cost(bytes=tokens * row * dtype_bytes, flops=2 * tokens * (tokens + 1) * geometry.q_out)
