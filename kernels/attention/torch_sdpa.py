"""torch's scaled_dot_product_attention, any device and dtype, then the gate as a separate pass."""

from torch.nn.functional import scaled_dot_product_attention

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    heads, dim = geometry.heads, geometry.head_dim
    gates = io["qkv"][:, : geometry.k_offset].unflatten(1, (heads, 2, dim))[:, :, 1]
    values = io["qkv"][:, geometry.v_offset :].unflatten(1, (geometry.kv_heads, dim))
    rows = first_rows(io["q"], io["k"], values, gates, io["out"].view(-1, heads, dim))

    def step(tokens: int) -> None:
        q, k, v, gate, out = rows(tokens)
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        attended = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        out.copy_(attended[0].transpose(0, 1) * gate.sigmoid())

    return step
