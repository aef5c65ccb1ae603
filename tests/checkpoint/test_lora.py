"""The adapter: counted, compared with its configuration and the geometry, and merged as the paper says.

python -m pytest tests/checkpoint/test_lora.py
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from broken import Tensors, edit_json, edit_tensors

from openjev_lab.checkpoint import load_package, lora_tensors
from openjev_lab.checkpoint.lora import merged
from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN

CONFIG, WEIGHTS = "checkpoint/adapter/adapter_config.json", "checkpoint/adapter/adapter_model.safetensors"
KEY = "base_model.model.layers.0.linear_attn.in_proj_qkv.lora_A.weight"
EVERY_MODULE = r"layers\.\d+\.(self_attn\.[qkvo]_proj|linear_attn\.(in_proj_qkv|out_proj))"

CONFIG_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "another method": ({"peft_type": "IA3"}, 'peft_type is "IA3"; it must be "LORA"'),
    "rank in conflict": ({"r": 4}, "r is 4, model.json's lora_rank 8"),
    "no rank": ({"r": ...}, "r is missing; it must be a whole number"),
    "no alpha": ({"lora_alpha": 0}, "lora_alpha is 0; it must be a finite number above 0"),
    "rank-stabilized": ({"use_rslora": True}, "use_rslora is true; only plain LoRA is read"),
    "weight-decomposed": ({"use_dora": True}, "use_dora is true"),
    "with biases": ({"bias": "all"}, 'bias is "all"'),
    "ranks by pattern": ({"rank_pattern": {"q_proj": 4}}, "rank_pattern is"),
    "other modules saved": ({"modules_to_save": ["head"]}, "modules_to_save is"),
    "some layers": ({"layers_to_transform": [0]}, "layers_to_transform is"),
    "no targets": ({"target_modules": []}, "target_modules must be a list of names or a pattern"),
    "a broken pattern": ({"target_modules": "("}, "target_modules is no pattern"),
    "targets left out": (
        {"target_modules": ["q_proj"]},
        "leaves out layers.0.linear_attn.in_proj_qkv, .* all 20 modules",
    ),
    "a strange target": ({"target_modules": ["q_proj", "gate_proj"]}, "names gate_proj; in_proj_qkv, k_proj"),
    "another base": ({"revision": "elsewhere"}, "says elsewhere; use the pinned base"),
}


@pytest.mark.parametrize("fault", CONFIG_FAULTS)
def test_a_fault_in_the_configuration_is_named(copy: Path, fault: str) -> None:
    changes, message = CONFIG_FAULTS[fault]
    edit_json(copy / CONFIG, **changes)
    with pytest.raises(LabError, match=f"adapter_config.json.*{message}"):
        load_package(copy)


@pytest.mark.parametrize("targets", [EVERY_MODULE, [f"layers.{i}.x" for i in range(8)] + ["q_proj"]])
def test_targets_may_be_a_pattern_but_must_reach_all(copy: Path, targets: Any) -> None:
    edit_json(copy / CONFIG, target_modules=targets)
    if isinstance(targets, str):
        assert load_package(copy).lora
    else:
        with pytest.raises(LabError, match="target_modules names layers.0.x"):
            load_package(copy)


def half_a_module(tensors: Tensors) -> None:
    del tensors[KEY]


def a_module_more(tensors: Tensors) -> None:
    tensors[KEY.replace("in_proj_qkv", "in_proj_z")] = tensors[KEY].clone()


def another_rank(tensors: Tensors) -> None:
    tensors[KEY] = tensors[KEY][:4].clone()


def the_wrong_way(tensors: Tensors) -> None:
    tensors[KEY] = tensors[KEY].T.contiguous()


def the_same_twice(tensors: Tensors) -> None:
    tensors[KEY.replace("layers.0", "model.layers.0")] = tensors[KEY].clone()


def not_finite(tensors: Tensors) -> None:
    tensors[KEY][0, 0] = torch.nan


def whole_numbers(tensors: Tensors) -> None:
    tensors[KEY] = tensors[KEY].to(torch.int32)


TENSOR_FAULTS: dict[str, tuple[Callable[[Tensors], Tensors | None], str]] = {
    "missing": (half_a_module, r"has 19 of the 20 LoRA modules; it lacks layers.0.linear_attn.in_proj_qkv.lora_A"),
    "unexpected": (a_module_more, "holds .*in_proj_z.lora_A.weight, for which this geometry has no LoRA module"),
    "rank": (another_rank, r"in_proj_qkv.lora_A.weight is \[4, 128\]; rank 8 makes it \[8, 128\]"),
    "transposed": (the_wrong_way, r"is \[128, 8\]; rank 8 makes it \[8, 128\]"),
    "doubled": (the_same_twice, "holds layers.0.linear_attn.in_proj_qkv.lora_A twice"),
    "not finite": (not_finite, "in_proj_qkv.lora_A.weight holds 1 values that are not finite"),
    "dtype": (whole_numbers, "in_proj_qkv.lora_A.weight is stored as I32"),
    "empty": (lambda tensors: {"x": torch.zeros(1)}, "has 0 of the 20 LoRA modules"),
}


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_a_fault_in_the_matrices_is_named(copy: Path, fault: str) -> None:
    change, message = TENSOR_FAULTS[fault]
    edit_tensors(copy / WEIGHTS, change)
    with pytest.raises(LabError, match=f"adapter_model.safetensors.*{message}"):
        load_package(copy)


@pytest.mark.parametrize("wrapping", ["", "base_model.model.model.", "base_model.model.model.language_model."])
def test_keys_are_placed_by_module_whatever_they_were_saved_around(
    tiny_package: Path, copy: Path, wrapping: str
) -> None:
    edit_tensors(copy / WEIGHTS, lambda old: {k.replace("base_model.model.", wrapping): v for k, v in old.items()})
    one, two = (lora_tensors(load_package(folder)) for folder in (tiny_package, copy))
    assert one.keys() == two.keys() and len(one) == 20
    assert all(torch.equal(one[name][part], two[name][part]) for name in one for part in (0, 1))


def test_the_27b_adapter_has_160_modules() -> None:
    assert len(KNOWN["27b"].lora_modules()) == 160


def test_merging_is_the_papers_update_and_leaves_its_inputs_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    weight, a, b = (torch.randn(shape, generator=generator) for shape in ((6, 5), (2, 5), (6, 2)))
    kept = weight.clone()
    expected = weight.double() + 4.0 * sum(torch.outer(b[:, i].double(), a[i].double()) for i in range(2))
    got = merged(weight, (a, b), 4.0)
    assert got.dtype == torch.float64 and torch.allclose(got, expected, rtol=0, atol=1e-14)
    assert torch.equal(weight, kept)
