"""The whole forward, a line a step: from token ids to one score, over buffers that exist already.

Takes a geometry, packed weights, buffers and a variant for every op; returns the plan, a list of steps to be run in
order for any number of tokens T up to the buffers' rows. Eager running and capture in a CUDA graph are the same list.
Apart from ``engine``, which owns the buffers, so that this file is the model and nothing else; it knows ops by name and
imports none of their variants.

A block's result is not added to the residual stream by the block: it stays in ``delta``, and the next norm adds it
while it reads the stream anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Field, Step
from openjev_lab.ops.families import Variant

if TYPE_CHECKING:
    from torch import Tensor

OPS = (
    "embed",
    "add_rmsnorm",
    "linear",
    "gdn_input",
    "gated_delta",
    "gated_norm",
    "qk_norm_rope",
    "attention",
    "silu_mul",
    "head",
)
"""Every op of the forward, in the order of first use; each is a kernel family."""

BUFFERS: dict[str, Field] = {
    "ids": Field("tokens", "int64"),
    "cos": Field("tokens rotary_half"),  # of position t; written when the buffers are made
    "sin": Field("tokens rotary_half"),
    "residual": Field("tokens hidden"),
    "delta": Field("tokens hidden"),  # what the next norm adds to the residual
    "normed": Field("tokens hidden"),
    "qkvzba": Field("tokens qkvzba_out"),
    "linear_q": Field("tokens linear_k_heads linear_k_dim"),
    "linear_k": Field("tokens linear_k_heads linear_k_dim"),
    "linear_v": Field("tokens linear_v_heads linear_v_dim"),
    "beta": Field("tokens linear_v_heads", "float32"),
    "g": Field("tokens linear_v_heads", "float32"),
    "o": Field("tokens linear_v_heads linear_v_dim"),
    "gated": Field("tokens value_dim"),
    "qkv": Field("tokens qkv_out"),
    "q": Field("tokens heads head_dim"),
    "k": Field("tokens kv_heads head_dim"),
    "attended": Field("tokens q_out"),
    "gate_up": Field("tokens gate_up_out"),
    "activated": Field("tokens intermediate"),
    "hidden": Field("hidden"),
    "score": Field("1", "float64"),
}
"""One set for all layers: a layer is done with a buffer before the next one writes it."""


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A Gated DeltaNet block's weights. Matrices are (out, in)."""

    qkvzba: Tensor
    conv_weight: Tensor
    dt_bias: Tensor
    a_log: Tensor
    norm: Tensor
    out: Tensor


@dataclass(frozen=True, slots=True)
class FullLayer:
    """A full attention block's weights."""

    qkv: Tensor
    q_norm: Tensor
    k_norm: Tensor
    out: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's weights: a token mixer, then the MLP, a norm before each."""

    input_norm: Tensor
    mixer: LinearLayer | FullLayer
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """Packed for the GEMMs (``packing``)."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head_weight: Tensor
    head_bias: Tensor


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One entry of the plan."""

    op: str
    layer: int | None
    """None before the first layer and after the last."""
    starts_layer: bool
    """Whether it adds the previous layer's last result to the residual stream: that stream is then complete."""
    run: Step


class _Planner:
    """Binds ops to buffers and collects the steps."""

    def __init__(self, geometry: Geometry, ops: Mapping[str, Variant], dtype: str) -> None:
        self.geometry, self.ops, self.dtype = geometry, ops, dtype
        self.steps: list[PlannedStep] = []
        self.layer: int | None = None

    def __call__(self, op: str, *, starts_layer: bool = False, **io: Tensor) -> None:
        step = self.ops[op].bind(self.geometry, io, self.dtype)
        self.steps.append(PlannedStep(op, self.layer, starts_layer, step))


def plan(
    geometry: Geometry, weights: Weights, buffers: Mapping[str, Tensor], ops: Mapping[str, Variant], dtype: str
) -> list[PlannedStep]:
    """The steps of a forward. Raises ``LabError`` where a tensor is not what an op's family declares."""
    b, step = buffers, _Planner(geometry, ops, dtype)
    residual, delta, normed = b["residual"], b["delta"], b["normed"]

    step("embed", ids=b["ids"], weight=weights.embedding, residual=residual, delta=delta)  # (T) -> (T, hidden)
    for index, layer in enumerate(weights.layers):
        step.layer = index
        step("add_rmsnorm", starts_layer=True, residual=residual, delta=delta, weight=layer.input_norm, out=normed)
        if isinstance(layer.mixer, LinearLayer):
            _linear_attention(step, layer.mixer, b)  # normed (T, hidden) -> delta (T, hidden)
        else:
            _full_attention(step, layer.mixer, b)  # normed (T, hidden) -> delta (T, hidden)
        step("add_rmsnorm", residual=residual, delta=delta, weight=layer.post_norm, out=normed)
        _mlp(step, layer, b)  # normed (T, hidden) -> delta (T, hidden)
    step.layer = None
    head = {"norm_weight": weights.norm, "head_weight": weights.head_weight, "head_bias": weights.head_bias}
    step("head", residual=residual, delta=delta, hidden=b["hidden"], score=b["score"], **head)  # row T - 1 -> (1)
    return step.steps


def _linear_attention(step: _Planner, w: LinearLayer, b: Mapping[str, Tensor]) -> None:
    """Gated DeltaNet (Yang, Kautz, Hatamizadeh, ICLR 2025)."""
    q, k, v, beta, g = b["linear_q"], b["linear_k"], b["linear_v"], b["beta"], b["g"]
    conv = {"conv_weight": w.conv_weight, "dt_bias": w.dt_bias, "a_log": w.a_log}
    step("linear", x=b["normed"], weight=w.qkvzba, out=b["qkvzba"])  # -> (T, qkvzba_out)
    step("gdn_input", qkvzba=b["qkvzba"], q=q, k=k, v=v, beta=beta, g=g, **conv)  # -> heads, (T, v heads) x 2
    step("gated_delta", q=q, k=k, v=v, beta=beta, g=g, o=b["o"])  # -> (T, v heads, v dim)
    step("gated_norm", o=b["o"], qkvzba=b["qkvzba"], weight=w.norm, out=b["gated"])  # z is in the row -> (T, value_dim)
    step("linear", x=b["gated"], weight=w.out, out=b["delta"])  # -> (T, hidden)


def _full_attention(step: _Planner, w: FullLayer, b: Mapping[str, Tensor]) -> None:
    """Causal attention with grouped queries and an output gate."""
    norms = {"q_weight": w.q_norm, "k_weight": w.k_norm}
    step("linear", x=b["normed"], weight=w.qkv, out=b["qkv"])  # -> (T, qkv_out)
    step("qk_norm_rope", qkv=b["qkv"], cos=b["cos"], sin=b["sin"], q=b["q"], k=b["k"], **norms)  # -> heads
    step("attention", q=b["q"], k=b["k"], qkv=b["qkv"], out=b["attended"])  # v, gate are in the row -> (T, q_out)
    step("linear", x=b["attended"], weight=w.out, out=b["delta"])  # -> (T, hidden)


def _mlp(step: _Planner, layer: Layer, b: Mapping[str, Tensor]) -> None:
    """SwiGLU."""
    step("linear", x=b["normed"], weight=layer.gate_up, out=b["gate_up"])  # -> (T, 2 intermediate)
    step("silu_mul", gate_up=b["gate_up"], out=b["activated"])  # -> (T, intermediate)
    step("linear", x=b["activated"], weight=layer.down, out=b["delta"])  # -> (T, hidden)
