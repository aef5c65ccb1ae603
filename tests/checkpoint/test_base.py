"""The base folder: every way in which one may be stored, and each fault in headers and values.

python -m pytest tests/checkpoint/test_base.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from broken import Tensors, cut, edit_json, edit_tensors, shard
from safetensors.torch import load_file

from openjev_lab.checkpoint import base_tensors, load_package
from openjev_lab.checkpoint.base import PREFIXES, read, shapes
from openjev_lab.checkpoint.files import Entry
from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN

WEIGHTS = "model.safetensors"
A_LOG = "model.layers.0.linear_attn.A_log"


def same_base(package_dir: Path, other_dir: Path) -> bool:
    """Whether two packages hold the same base tensors."""
    one, two = (base_tensors(load_package(folder)) for folder in (package_dir, other_dir))
    return list(one) == list(two) and all(torch.equal(one[name], two[name]) for name in one)


def wrap(base: Path) -> None:
    """Make the text model the inside of a vision-language wrapper."""
    text = json.loads((base / "config.json").read_text())
    wrapper = {"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 1}, "tie_word_embeddings": True}
    (base / "config.json").write_text(json.dumps(wrapper))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_and_a_wrapper_are_read(tiny_package: Path, copy: Path, prefix: str) -> None:
    extra = {"lm_head.weight": torch.zeros(2), "mtp.norm.weight": torch.zeros(2)}
    if "language_model" in prefix:
        wrap(copy / "base")
        extra |= {"model.visual.patch_embed.weight": torch.zeros(2), "visual.norm.weight": torch.zeros(2)}
    edit_tensors(
        copy / "base" / WEIGHTS, lambda old: {k.replace("model.", prefix, 1): v for k, v in old.items()} | extra
    )
    assert same_base(tiny_package, copy)


def test_shards_are_read_through_their_index(tiny_package: Path, copy: Path) -> None:
    shard(copy / "base")
    assert same_base(tiny_package, copy)


def test_a_missing_shard_is_named(copy: Path) -> None:
    shard(copy / "base")
    (copy / "base" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(LabError, match=r"model-00002-of-00003.safetensors is missing: .*index.json lists it"):
        load_package(copy)


def test_an_index_that_disagrees_with_a_shard_is_named(copy: Path) -> None:
    index = shard(copy / "base")
    where = json.loads(index.read_text())["weight_map"]
    where[A_LOG] = next(name for name in where.values() if name != where[A_LOG])
    edit_json(index, weight_map=where)
    with pytest.raises(LabError, match=f"and model.safetensors.index.json disagree about {A_LOG}"):
        load_package(copy)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [([], "weight_map is not an object"), ({}, "weight_map is not"), ({A_LOG: "../x.safetensors"}, "a bare name")],
)
def test_an_index_without_sense_is_named(copy: Path, weight_map: object, message: str) -> None:
    edit_json(shard(copy / "base"), weight_map=weight_map)
    with pytest.raises(LabError, match=f"index.json.*{message}"):
        load_package(copy)


def test_a_single_file_and_an_index_together_are_refused(copy: Path) -> None:
    whole = (copy / "base" / WEIGHTS).read_bytes()
    shard(copy / "base")
    (copy / "base" / WEIGHTS).write_bytes(whole)
    with pytest.raises(LabError, match="has both model.safetensors and model.safetensors.index.json"):
        load_package(copy)


def removed(weights: Tensors) -> None:
    del weights[A_LOG], weights["model.norm.weight"]


def added(weights: Tensors) -> None:
    weights["model.layers.0.linear_attn.in_proj_ba.weight"] = torch.zeros(2)


def reshaped(weights: Tensors) -> None:
    weights[A_LOG] = torch.zeros(7)


def whole_numbers(weights: Tensors) -> None:
    weights[A_LOG] = torch.zeros(6, dtype=torch.int8)


def twice(weights: Tensors) -> None:
    weights["embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()


def renamed(weights: Tensors) -> Tensors:
    return {f"transformer.{key}": value for key, value in weights.items()}


HEADER_FAULTS: dict[str, tuple[Callable[[Tensors], Tensors | None], str]] = {
    "missing": (removed, f"base lacks {A_LOG}, model.norm.weight; its config.json asks for them"),
    "unexpected": (added, "holds model.layers.0.linear_attn.in_proj_ba.weight, which its config.json has no place for"),
    "shape": (reshaped, rf"{A_LOG} is \[7\]; config.json makes it \[6\]"),
    "dtype": (whole_numbers, f"{A_LOG} is stored as I8; one of"),
    "two prefixes": (twice, "embed_tokens.weight is stored under 2 prefixes"),
    "no prefix": (renamed, "embed_tokens.weight is stored under no known prefix"),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
def test_a_fault_in_a_header_is_named(copy: Path, fault: str) -> None:
    change, message = HEADER_FAULTS[fault]
    edit_tensors(copy / "base" / WEIGHTS, change)
    with pytest.raises(LabError, match=message):
        load_package(copy)


@pytest.mark.parametrize("size_bytes", [0, 4, 500, 500_000])
def test_a_cut_off_file_is_found_by_its_size(copy: Path, size_bytes: int) -> None:
    cut(copy / "base" / WEIGHTS, size_bytes)
    with pytest.raises(LabError, match=r"base/model.safetensors .*copy it again"):
        load_package(copy)


def test_a_file_of_something_else_is_named(copy: Path) -> None:
    (copy / "base" / WEIGHTS).write_bytes(b"\x10" + b"\0" * 7 + b"not json at all!" + b"\0" * 64)
    with pytest.raises(LabError, match="is no safetensors file: its header cannot be read"):
        load_package(copy)


def test_a_value_that_is_not_finite_is_found_when_its_tensor_is_read(copy: Path) -> None:
    def spoil(weights: Tensors) -> None:
        weights["model.layers.3.mlp.up_proj.weight"][5, 7] = torch.inf
        weights["model.layers.3.mlp.up_proj.weight"][6, 7] = torch.nan

    edit_tensors(copy / "base" / WEIGHTS, spoil)
    package = load_package(copy)
    with pytest.raises(LabError, match="base/model.safetensors: model.layers.3.mlp.up_proj.weight holds 2 values that"):
        base_tensors(package)


def test_the_27b_text_model_has_its_published_tensors() -> None:
    found = shapes(KNOWN["27b"])
    assert len(found) == 2 + 48 * 14 + 16 * 11
    assert found["layers.0.linear_attn.in_proj_qkv.weight"] == (10240, 5120)
    assert found["layers.3.self_attn.q_proj.weight"] == (12288, 5120)
    assert sum(torch.Size(shape).numel() for shape in found.values()) == pytest.approx(25.6e9, rel=0.01)


def test_reading_yields_what_is_stored_in_the_order_asked(tiny_package: Path) -> None:
    file = tiny_package / "base" / WEIGHTS
    names = ["model.norm.weight", A_LOG]
    got = list(read({name: Entry(file, name, "F32", ()) for name in names}, "cpu"))
    stored = load_file(file)
    assert [name for name, _ in got] == names
    assert all(torch.equal(tensor, stored[name]) for name, tensor in got)
