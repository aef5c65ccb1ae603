"""Chunks of 64 tokens as matrix products in float32, any device: the form of transformers' fallback.

Inside a chunk, with G the running sum of g: A_ij = beta_i (k_i . k_j) exp(G_i - G_j) for i > j; the chunk's corrections
are (I + A)^-1 applied to beta v and to beta exp(G) k. Differences of G only: exp(G) alone could flush to 0.
Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule", NeurIPS 2024.
"""

import torch
from torch.nn import functional

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"
CHUNK = 64


def bind(geometry: Geometry, io: Io) -> Step:
    rows = first_rows(*(io[name] for name in ("q", "k", "v", "beta", "g", "o")))
    device, scale = io["q"].device, geometry.linear_k_dim**-0.5
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=device).triu(1)

    def chunks(x: torch.Tensor, repeats: int) -> torch.Tensor:
        """(tokens, heads, ...) -> (value heads, chunks, 64, ...), float32, zeros after the end."""
        x = x.float().repeat_interleave(repeats, dim=1).transpose(0, 1)
        padding = -x.shape[1] % CHUNK
        return functional.pad(x, (0, 0) * (x.dim() - 2) + (0, padding)).unflatten(1, (-1, CHUNK))

    def step(tokens: int) -> None:
        q, k, v, beta, g, o = rows(tokens)
        q, k = chunks(q, geometry.v_heads_per_k) * scale, chunks(k, geometry.v_heads_per_k)
        v, beta, g = chunks(v, 1), chunks(beta, 1).unsqueeze(-1), chunks(g, 1).cumsum(-1)
        decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).masked_fill(later, float("-inf")).exp()
        system = (beta * k) @ k.mT * decay
        read = q @ k.mT * decay
        from_v, from_state = (
            torch.linalg.solve_triangular(system, x, upper=False, unitriangular=True)
            for x in (beta * v, beta * g.exp().unsqueeze(-1) * k)
        )
        q = q * g.exp().unsqueeze(-1)
        k = k * (g[..., -1:] - g).exp().unsqueeze(-1)
        kept = g[..., -1].exp()[..., None, None]
        state = v.new_zeros(geometry.linear_v_heads, geometry.linear_k_dim, geometry.linear_v_dim)
        out = torch.empty_like(v)
        for c in range(v.shape[1]):
            learnt = from_v[:, c] - from_state[:, c] @ state
            out[:, c] = q[:, c] @ state + read[:, c] @ learnt
            state = state * kept[:, c] + k[:, c].mT @ learnt
        o.copy_(out.flatten(1, 2)[:, :tokens].transpose(0, 1))

    return step
