"""Sizes: the published ones, the round trip through a configuration, what is refused.

python -m pytest tests/test_geometry.py
"""

import pytest

from openjev_lab.errors import LabError
from openjev_lab.geometry import FULL, KNOWN, LINEAR, Geometry


def test_published_sizes_of_the_27b_model() -> None:
    g = KNOWN["27b"]
    assert (g.layers, g.linear_layers, g.full_layers) == (64, 48, 16)
    assert (g.q_out, g.kv_out, g.key_dim, g.value_dim) == (6144, 1024, 2048, 6144)
    assert (g.heads_per_kv, g.v_heads_per_k) == (6, 3)
    assert g.projection_params == pytest.approx(24.36e9, rel=1e-3)


@pytest.mark.parametrize(("name", "count"), [("27b", 160), ("9b", 80), ("tiny", 20)])
def test_lora_modules_are_counted(name: str, count: int) -> None:
    modules = KNOWN[name].lora_modules()
    assert len(modules) == len(set(modules)) == count
    assert modules[:2] == ["layers.0.linear_attn.in_proj_qkv", "layers.0.linear_attn.out_proj"]
    assert "layers.3.self_attn.o_proj" in modules


@pytest.mark.parametrize("name", KNOWN)
def test_packed_rows_are_cut_without_gap_or_overlap(name: str) -> None:
    g = KNOWN[name]
    assert (g.z_offset, g.b_offset, g.a_offset) == (
        2 * g.key_dim + g.value_dim,
        2 * g.key_dim + 2 * g.value_dim,
        2 * g.key_dim + 2 * g.value_dim + g.linear_v_heads,
    )
    assert g.a_offset + g.linear_v_heads == g.qkvzba_out
    assert g.k_offset == 2 * g.heads * g.head_dim and g.v_offset + g.kv_out == g.qkv_out


@pytest.mark.parametrize("name", KNOWN)
def test_a_configuration_round_trips_through_transformers(name: str) -> None:
    from transformers import Qwen3_5TextConfig

    config = Qwen3_5TextConfig(**KNOWN[name].to_config())
    assert Geometry.from_config(config.to_dict()) == KNOWN[name]


def test_layer_types_follow_the_interval_where_none_are_given() -> None:
    config = KNOWN["tiny"].to_config() | {"full_attention_interval": 2}
    del config["layer_types"]
    assert Geometry.from_config(config).layer_types == (LINEAR, FULL) * 4


def test_a_vocabulary_of_its_own_keeps_the_name_and_other_sizes_do_not() -> None:
    config = KNOWN["tiny"].to_config()
    assert Geometry.from_config(config | {"vocab_size": 777}).name == "tiny"
    assert Geometry.from_config(config | {"hidden_size": 64}).name == "h64-l8"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "hidden_size is None"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"layer_types": ["full_attention"]}, "layer_types must be 8"),
        ({"num_key_value_heads": 3}, "must be a multiple of kv_heads"),
        ({"linear_num_value_heads": 5}, "must be a multiple of linear_k_heads"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type is 'yarn'"),
        ({"rope_parameters": {"partial_rotary_factor": 2.0}}, "rotary_dim must be even"),
    ],
)
def test_what_this_forward_does_not_compute_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(LabError, match=words):
        Geometry.from_config(KNOWN["tiny"].to_config() | change)


def test_a_model_can_be_cut_to_its_first_layers() -> None:
    cut = KNOWN["27b"].with_layers(4)
    assert cut.layers == 4 and cut.layer_types == (LINEAR, LINEAR, LINEAR, FULL) and cut.name == "27b-4l"
