"""The gated delta rule: a recurrent state a head that forgets by g, then learns the error of its own recall by beta.

Per value head, with the state S of key dim x value dim, float32 whatever the model dtype, S_0 = 0 (q and k come
normalised; value head h uses key head h // v_heads_per_k):

    S_t = exp(g_t) S_(t-1) + k_t (beta_t (v_t - exp(g_t) S_(t-1)^T k_t))^T        o_t = S_t^T q_t / sqrt(key dim)

Only o is rounded to the model dtype. The reference walks the recurrence in float64; a chunked variant rounds in other
places than a recurrent one, hence a tolerance and no promise of equal bits.
Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", ICLR 2025, and ``torch_recurrent_gated_delta_rule`` in
transformers' modeling_qwen3_5.py.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "S = exp(g) S + k (beta (v - exp(g) S^T k))^T; o = S^T q / sqrt(dim)"
INPUTS = {
    "q": Field("tokens linear_k_heads linear_k_dim"),
    "k": Field("tokens linear_k_heads linear_k_dim"),
    "v": Field("tokens linear_v_heads linear_v_dim"),
    "beta": Field("tokens linear_v_heads", "float32"),
    "g": Field("tokens linear_v_heads", "float32"),
}
OUTPUTS = {"o": Field("tokens linear_v_heads linear_v_dim")}
EXACT: tuple[tuple[str, ...], ...] = ()
TOLERANCE = {"float32": 1e-5, "bfloat16": 1.5e-2}
CASES = ("random", "beta_0_1", "zero_qk", "tiny", "forgets", "remembers", "repeated_keys")


def make_io(make: Maker, case: str) -> Buffers:
    io = {name: make.draw(field) for name, field in INPUTS.items()}
    if case == "repeated_keys":
        io["k"] = io["k"][:1].expand(make.rows, -1, -1).contiguous()
    for name in ("q", "k"):
        unit = torch.nn.functional.normalize(io[name].float(), dim=-1).to(io[name].dtype)
        io[name] = unit * 0 if case == "zero_qk" else unit * 1e-9 if case == "tiny" else unit
    io["v"] *= 1e-9 if case == "tiny" else 1.0
    io["beta"] = (io["beta"] > 0).float() if case == "beta_0_1" else io["beta"].sigmoid()
    # decay a token: from a third of the state (-1) down to a thousandth; "forgets": all of it; "remembers": none
    low, high = {"forgets": (20.0, 80.0), "remembers": (0.0, 1e-5)}.get(case, (1e-3, 1.0))
    uniform = torch.rand(io["g"].shape, generator=make.generator).to(make.device)
    io["g"] = -(low * (high / low) ** uniform if low else high * uniform)
    return io | {"o": make.new(OUTPUTS["o"])}


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    q, k, v, beta, g = (io[name][:tokens].to(torch.float64) for name in INPUTS)
    q, k = (x.repeat_interleave(geometry.v_heads_per_k, dim=1) for x in (q, k))
    state = v.new_zeros(geometry.linear_v_heads, geometry.linear_k_dim, geometry.linear_v_dim)
    o = torch.empty_like(v)
    for t in range(tokens):
        state = state * g[t].exp()[:, None, None]
        recalled = torch.einsum("hkv,hk->hv", state, k[t])
        state = state + torch.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - recalled))
        o[t] = torch.einsum("hkv,hk->hv", state, q[t]) * geometry.linear_k_dim**-0.5
    return {"o": o.to(io["v"].dtype)}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    """FLOPs of the recurrence: decay, recall, learn, read; a chunked form does more of them, as matrix products."""
    row = (2 * geometry.key_dim + 2 * geometry.value_dim) * dtype_bytes + 8 * geometry.linear_v_heads
    state = geometry.linear_v_heads * geometry.linear_k_dim * geometry.linear_v_dim
    return Cost(bytes=tokens * row, flops=7 * tokens * state)
