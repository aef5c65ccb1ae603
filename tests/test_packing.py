"""Packed weights: the order in which the geometry cuts a row, dtypes, and names that are missing or left over.

python -m pytest tests/test_packing.py
"""

import pytest
import torch

from openjev_lab.checkpoint import load_package, tensors
from openjev_lab.errors import LabError
from openjev_lab.forward import FullLayer, LinearLayer
from openjev_lab.geometry import KNOWN
from openjev_lab.packing import pack

TINY = KNOWN["tiny"]


def weights() -> dict[str, torch.Tensor]:
    return tensors(load_package("synthetic:tiny?seed=3"))


def packed(given: dict[str, torch.Tensor], dtype: str = "float32"):
    return pack(TINY, given, torch.ones(TINY.hidden), 0.5, device="cpu", dtype=dtype)


def test_rows_are_joined_in_the_order_that_the_geometry_cuts() -> None:
    named, given = weights(), weights()
    found = packed(given)
    assert given == {}, "a large model would be held twice"
    linear, full = found.layers[0].mixer, found.layers[3].mixer
    assert isinstance(linear, LinearLayer) and isinstance(full, FullLayer)
    prefix = "layers.0.linear_attn.in_proj"
    for name, start in (("qkv", 0), ("z", TINY.z_offset), ("b", TINY.b_offset), ("a", TINY.a_offset)):
        part = named[f"{prefix}_{name}.weight"]
        assert torch.equal(linear.qkvzba[start : start + len(part)], part)
    for name, start in (("q", 0), ("k", TINY.k_offset), ("v", TINY.v_offset)):
        part = named[f"layers.3.self_attn.{name}_proj.weight"]
        assert torch.equal(full.qkv[start : start + len(part)], part)
    assert torch.equal(found.layers[0].gate_up[TINY.intermediate :], named["layers.0.mlp.up_proj.weight"])
    assert linear.qkvzba.shape == (TINY.qkvzba_out, TINY.hidden) and full.qkv.shape == (TINY.qkv_out, TINY.hidden)


def test_what_decays_and_what_scores_stays_float32() -> None:
    found = packed(weights(), "bfloat16")
    linear = found.layers[0].mixer
    assert isinstance(linear, LinearLayer)
    kept = (linear.a_log, linear.dt_bias, linear.norm, found.head_weight, found.head_bias)
    assert {tensor.dtype for tensor in kept} == {torch.float32}
    assert {linear.qkvzba.dtype, linear.conv_weight.dtype, found.norm.dtype} == {torch.bfloat16}


def test_a_missing_or_unexpected_tensor_is_named() -> None:
    short = weights()
    del short["layers.3.self_attn.k_norm.weight"]
    with pytest.raises(LabError, match="lack 'layers.3.self_attn.k_norm.weight'"):
        packed(short)
    with pytest.raises(LabError, match="hold lm_head.weight"):
        packed(weights() | {"lm_head.weight": torch.zeros(1)})
