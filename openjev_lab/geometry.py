"""The sizes of a model: which layer is which, how wide each projection is, and where a packed row is cut.

Takes a transformers ``qwen3_5_text`` configuration or one of the known names; returns a frozen ``Geometry``. Apart, and
free of torch, because everything else asks it: the checkpoint for shapes, the forward for offsets, kernels for
compile-time constants, reports for bytes and FLOPs.

Packed rows (one GEMM each): ``[q k v | z | b | a]`` in a Gated DeltaNet layer, ``[q gate, head by head | k | v]`` in a
full attention layer, ``[gate | up]`` in the MLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from openjev_lab.errors import LabError

LINEAR, FULL = "linear_attention", "full_attention"
LORA_FULL = ("q_proj", "k_proj", "v_proj", "o_proj")
LORA_LINEAR = ("in_proj_qkv", "out_proj")


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in elements, not bytes. ``KNOWN`` holds those of the published models."""

    name: str
    vocab_size: int
    hidden: int
    intermediate: int
    layers: int
    layer_types: tuple[str, ...]
    """``linear_attention`` (Gated DeltaNet) or ``full_attention``, one a layer."""
    heads: int
    """Query heads of a full attention layer."""
    kv_heads: int
    head_dim: int
    rotary_dim: int
    """Leading dimensions of a head that are rotated; the rest pass."""
    rope_theta: float
    linear_k_heads: int
    """Query and key heads of a Gated DeltaNet layer; each serves ``v_heads_per_k`` consecutive value heads."""
    linear_v_heads: int
    linear_k_dim: int
    linear_v_dim: int
    conv_width: int
    eps: float
    tie_embeddings: bool

    def __post_init__(self) -> None:
        if len(self.layer_types) != self.layers or set(self.layer_types) - {LINEAR, FULL}:
            raise LabError(f"layer_types must be {self.layers} of {LINEAR!r} or {FULL!r}; got {self.layer_types}")
        for many, few in (("heads", "kv_heads"), ("linear_v_heads", "linear_k_heads")):
            if getattr(self, many) % getattr(self, few):
                raise LabError(f"{many} ({getattr(self, many)}) must be a multiple of {few} ({getattr(self, few)})")
        if self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.head_dim:
            raise LabError(f"rotary_dim must be even and in 2..head_dim ({self.head_dim}); got {self.rotary_dim}")

    @property
    def q_out(self) -> int:
        """Width of all query heads, which is also the width of attention's output."""
        return self.heads * self.head_dim

    @property
    def kv_out(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def qkv_out(self) -> int:
        """Packed row of a full attention layer: per query head its query and its output gate; then keys, values."""
        return 2 * self.q_out + 2 * self.kv_out

    @property
    def k_offset(self) -> int:
        return 2 * self.q_out

    @property
    def v_offset(self) -> int:
        return self.k_offset + self.kv_out

    @property
    def heads_per_kv(self) -> int:
        return self.heads // self.kv_heads

    @property
    def rotary_half(self) -> int:
        """Frequencies: dimension i is rotated with dimension i + rotary_half."""
        return self.rotary_dim // 2

    @property
    def key_dim(self) -> int:
        return self.linear_k_heads * self.linear_k_dim

    @property
    def value_dim(self) -> int:
        return self.linear_v_heads * self.linear_v_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: queries, keys, values."""
        return 2 * self.key_dim + self.value_dim

    @property
    def qkvzba_out(self) -> int:
        """Packed row of a Gated DeltaNet layer: conv channels, z, b, a."""
        return self.conv_dim + self.value_dim + 2 * self.linear_v_heads

    @property
    def z_offset(self) -> int:
        return self.conv_dim

    @property
    def b_offset(self) -> int:
        return self.conv_dim + self.value_dim

    @property
    def a_offset(self) -> int:
        return self.b_offset + self.linear_v_heads

    @property
    def v_heads_per_k(self) -> int:
        return self.linear_v_heads // self.linear_k_heads

    @property
    def gate_up_out(self) -> int:
        return 2 * self.intermediate

    @property
    def linear_layers(self) -> int:
        return self.layer_types.count(LINEAR)

    @property
    def full_layers(self) -> int:
        return self.layer_types.count(FULL)

    @property
    def projection_params(self) -> int:
        """Weights that every token multiplies: all GEMMs of the forward, without embedding and head."""
        linear = self.hidden * (self.qkvzba_out + self.value_dim)
        full = self.hidden * (self.qkv_out + self.q_out)
        mlp = 3 * self.hidden * self.intermediate
        return self.linear_layers * linear + self.full_layers * full + self.layers * mlp

    def with_layers(self, layers: int) -> Geometry:
        """The same model cut to its first ``layers`` layers, for tests and probes of a large geometry."""
        return replace(self, name=f"{self.name}-{layers}l", layers=layers, layer_types=self.layer_types[:layers])

    def lora_modules(self) -> list[str]:
        """The modules that the adapter trains, by name relative to the text model; 160 for 27B."""
        found = []
        for index, kind in enumerate(self.layer_types):
            block, names = ("self_attn", LORA_FULL) if kind == FULL else ("linear_attn", LORA_LINEAR)
            found += [f"layers.{index}.{block}.{name}" for name in names]
        return found

    def to_config(self) -> dict[str, Any]:
        """A transformers ``qwen3_5_text`` configuration; ``from_config`` reads it back."""
        third = self.rotary_half // 3
        return {
            "model_type": "qwen3_5_text",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "layer_types": list(self.layer_types),
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "linear_num_key_heads": self.linear_k_heads,
            "linear_num_value_heads": self.linear_v_heads,
            "linear_key_head_dim": self.linear_k_dim,
            "linear_value_head_dim": self.linear_v_dim,
            "linear_conv_kernel_dim": self.conv_width,
            "rms_norm_eps": self.eps,
            "tie_word_embeddings": self.tie_embeddings,
            "hidden_act": "silu",
            "attention_bias": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.rotary_dim / self.head_dim,
                "mrope_section": [self.rotary_half - 2 * third, third, third],  # of no effect on text positions
            },
        }

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> Geometry:
        """The geometry of a ``qwen3_5_text`` configuration (a wrapper's ``text_config``, not the wrapper).

        Raises ``LabError`` for a missing size and for what this forward does not compute (another activation, biases,
        a scaled rotary embedding).
        """
        rope = config.get("rope_parameters") or config
        _refuse(config, "hidden_act", "silu")
        _refuse(config, "attention_bias", False)
        _refuse(rope, "rope_type", "default")
        layers, head_dim = _size(config, "num_hidden_layers"), _size(config, "head_dim")
        interval = int(config.get("full_attention_interval", 4))
        types = config.get("layer_types") or [FULL if (i + 1) % interval == 0 else LINEAR for i in range(layers)]
        found = Geometry(
            name="custom",
            vocab_size=_size(config, "vocab_size"),
            hidden=_size(config, "hidden_size"),
            intermediate=_size(config, "intermediate_size"),
            layers=layers,
            layer_types=tuple(types),
            heads=_size(config, "num_attention_heads"),
            kv_heads=_size(config, "num_key_value_heads"),
            head_dim=head_dim,
            rotary_dim=int(head_dim * float(rope.get("partial_rotary_factor", 0.25))),
            rope_theta=float(rope.get("rope_theta", 10000.0)),
            linear_k_heads=_size(config, "linear_num_key_heads"),
            linear_v_heads=_size(config, "linear_num_value_heads"),
            linear_k_dim=_size(config, "linear_key_head_dim"),
            linear_v_dim=_size(config, "linear_value_head_dim"),
            conv_width=_size(config, "linear_conv_kernel_dim"),
            eps=float(config.get("rms_norm_eps", 1e-6)),
            tie_embeddings=bool(config.get("tie_word_embeddings", False)),
        )
        return replace(found, name=_known_name(found))


def _size(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LabError(f"{name} is {value!r}; a qwen3_5_text configuration gives a whole number above 0")
    return value


def _refuse(config: Mapping[str, Any], name: str, only: object) -> None:
    if config.get(name, only) != only:
        raise LabError(f"{name} is {config[name]!r}; this forward computes {only!r} only")


def _known_name(found: Geometry) -> str:
    """The known geometry with these sizes, whatever its vocabulary and rotary base; else a name made of sizes."""
    free = {"name", "vocab_size", "rope_theta", "tie_embeddings"}
    for name, known in KNOWN.items():
        if all(getattr(found, f.name) == getattr(known, f.name) for f in fields(Geometry) if f.name not in free):
            return name
    return f"h{found.hidden}-l{found.layers}"


def _published(name: str, hidden: int, intermediate: int, layers: int, heads: str, tied: bool) -> Geometry:
    """A released size; ``heads`` is "query/kv linear-key/linear-value"."""
    full, linear = ([int(n) for n in part.split("/")] for part in heads.split())
    return Geometry(
        name=name,
        vocab_size=248320,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        layer_types=(LINEAR, LINEAR, LINEAR, FULL) * (layers // 4),
        heads=full[0],
        kv_heads=full[1],
        head_dim=256,
        rotary_dim=64,
        rope_theta=1e7,
        linear_k_heads=linear[0],
        linear_v_heads=linear[1],
        linear_k_dim=128,
        linear_v_dim=128,
        conv_width=4,
        eps=1e-6,
        tie_embeddings=tied,
    )


KNOWN: dict[str, Geometry] = {
    "27b": _published("27b", 5120, 17408, 64, "24/4 16/48", tied=False),
    "9b": _published("9b", 4096, 12288, 32, "16/4 16/32", tied=False),
    "4b": _published("4b", 2560, 9216, 32, "16/4 16/32", tied=True),
    "2b": _published("2b", 2048, 6144, 24, "8/2 16/16", tied=True),
    "tiny": replace(
        _published("tiny", 128, 256, 8, "4/2 2/6", tied=True),
        vocab_size=1000,
        head_dim=32,
        rotary_dim=8,
        rope_theta=1e4,
        linear_k_dim=16,
        linear_v_dim=16,
    ),
}
"""Geometries of the released models (sizes from their ``config.json``) and of the tiny one in this repository."""
