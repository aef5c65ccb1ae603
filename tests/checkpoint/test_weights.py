"""Named tensors of a package: merged, unmerged, in which dtype, with progress.

python -m pytest tests/checkpoint/test_weights.py
"""

from pathlib import Path

import pytest
import torch
from broken import Tensors, edit_tensors

from openjev_lab.checkpoint import base_tensors, load_package, lora_tensors, tensors
from openjev_lab.checkpoint.base import shapes
from openjev_lab.errors import LabError

FRAGILE = (".linear_attn.A_log", ".linear_attn.norm.weight")


def test_tensors_have_the_shapes_and_names_of_the_text_model(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    found = tensors(package)
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == shapes(package.geometry)
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert all(tensor.is_contiguous() for tensor in found.values())


def test_the_adapter_changes_its_modules_and_nothing_else(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    assert package.lora
    base, merged = base_tensors(package), tensors(package)
    changed = {name.removesuffix(".weight") for name in base if not torch.equal(base[name], merged[name])}
    assert changed == set(package.lora.modules)


def test_what_the_base_keeps_in_float32_stays_so(tiny_package: Path) -> None:
    found = tensors(load_package(tiny_package), dtype="bfloat16")
    assert all((found[name].dtype == torch.float32) == name.endswith(FRAGILE) for name in found)


def test_what_the_base_has_in_bfloat16_is_not_widened(copy: Path) -> None:
    def halve(weights: Tensors) -> Tensors:
        return {name: tensor.bfloat16() for name, tensor in weights.items()}

    edit_tensors(copy / "base" / "model.safetensors", halve)
    package = load_package(copy)
    assert {tensor.dtype for tensor in tensors(package, dtype="bfloat16").values()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in tensors(package, dtype="float32").values()} == {torch.float32}


def test_rounding_happens_once_and_at_the_end(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    exact, rounded = tensors(package, dtype="float32"), tensors(package, dtype="bfloat16")
    for name, tensor in exact.items():
        assert torch.equal(tensor.to(rounded[name].dtype), rounded[name]), name


def test_progress_counts_every_tensor(tiny_package: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    package = load_package(tiny_package)
    found = tensors(package, progress=lambda *step: seen.append(step))
    assert seen == [(name, place, len(found)) for place, name in enumerate(found, start=1)]


@pytest.mark.parametrize("dtype", ["float16", "int8", "bf16", ""])
def test_an_unknown_dtype_is_refused_by_name(tiny_package: Path, dtype: str) -> None:
    with pytest.raises(LabError, match=f"dtype '{dtype}' is unknown; one of float32, bfloat16 is right"):
        tensors(load_package(tiny_package), dtype=dtype)


def test_lora_matrices_are_float32_whatever_they_are_stored_as(copy: Path) -> None:
    file = copy / "checkpoint" / "adapter" / "adapter_model.safetensors"
    edit_tensors(file, lambda old: {name: tensor.bfloat16() for name, tensor in old.items()})
    pairs = lora_tensors(load_package(copy))
    assert {part.dtype for pair in pairs.values() for part in pair} == {torch.float32}
