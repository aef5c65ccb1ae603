"""Weights by transformers' names -> weights as the forward multiplies them: one matrix a GEMM.

Takes the text model's merged tensors and the head; returns ``forward.Weights``: per layer ``[qkv | z | b | a]`` or
``[q gate | k | v]``, and ``[gate | up]``, in the order in which ``geometry`` cuts a packed row. Apart from ``engine``
because only here do the names of another library appear.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import torch
from torch import Tensor

from openjev_lab.errors import LabError
from openjev_lab.forward import FullLayer, Layer, LinearLayer, Weights
from openjev_lab.geometry import LINEAR, Geometry
from openjev_lab.ops.contract import torch_dtype


def pack(
    geometry: Geometry,
    tensors: MutableMapping[str, Tensor],
    head_weight: Tensor,
    head_bias: float,
    *,
    device: str,
    dtype: str,
) -> Weights:
    """Empties ``tensors`` on the way, so that a large model is held once. ``LabError`` if one is missing or left over.

    Matrices, convolution and zero-centred norms get ``dtype``; A_log, dt_bias and the gated norm stay float32.
    """
    packer = _Packer(geometry, tensors, device, dtype)
    found = Weights(
        packer.take("embed_tokens.weight"),
        tuple(packer.layer(index, kind) for index, kind in enumerate(geometry.layer_types)),
        packer.take("norm.weight"),
        head_weight.to(device=device, dtype=torch.float32).contiguous(),
        torch.tensor([head_bias], dtype=torch.float32, device=device),
    )
    if tensors:
        raise LabError(f"the weights hold {', '.join(sorted(tensors)[:3])}, which a {geometry.name} model has not")
    return found


class _Packer:
    """Takes tensors out of a mapping, by name, and joins them."""

    def __init__(self, geometry: Geometry, tensors: MutableMapping[str, Tensor], device: str, dtype: str) -> None:
        self.geometry, self.tensors, self.device, self.dtype = geometry, tensors, device, dtype

    def take(self, name: str, *, dtype: str | None = None) -> Tensor:
        if name not in self.tensors:
            raise LabError(f"the weights lack {name!r}, which a {self.geometry.name} model has")
        kind = torch_dtype(dtype or self.dtype)
        return self.tensors.pop(name).to(device=self.device, dtype=kind).contiguous()

    def joined(self, prefix: str, *names: str) -> Tensor:
        return torch.cat([self.take(f"{prefix}.{name}.weight") for name in names])

    def layer(self, index: int, kind: str) -> Layer:
        prefix = f"layers.{index}"
        return Layer(
            self.take(f"{prefix}.input_layernorm.weight"),
            self.linear(f"{prefix}.linear_attn") if kind == LINEAR else self.full(f"{prefix}.self_attn"),
            self.take(f"{prefix}.post_attention_layernorm.weight"),
            self.joined(f"{prefix}.mlp", "gate_proj", "up_proj"),
            self.take(f"{prefix}.mlp.down_proj.weight"),
        )

    def linear(self, prefix: str) -> LinearLayer:
        return LinearLayer(
            qkvzba=self.joined(prefix, "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"),
            conv_weight=self.take(f"{prefix}.conv1d.weight").squeeze(1),
            dt_bias=self.take(f"{prefix}.dt_bias", dtype="float32"),
            a_log=self.take(f"{prefix}.A_log", dtype="float32"),
            norm=self.take(f"{prefix}.norm.weight", dtype="float32"),
            out=self.take(f"{prefix}.out_proj.weight"),
        )

    def full(self, prefix: str) -> FullLayer:
        return FullLayer(
            qkv=self.joined(prefix, "q_proj", "k_proj", "v_proj"),
            q_norm=self.take(f"{prefix}.q_norm.weight"),
            k_norm=self.take(f"{prefix}.k_norm.weight"),
            out=self.take(f"{prefix}.o_proj.weight"),
        )
