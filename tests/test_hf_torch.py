"""Torch's own code is what runs, although faster libraries are installed and transformers would take them.

The libraries are stand-ins that compute the right numbers, so that only the witness can tell; transformers' own
decorators bind them. python -m pytest tests/test_hf_torch.py
"""

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from openjev_lab import hf_torch
from openjev_lab.errors import LabError
from openjev_lab.hf import MergedHF, RawHF
from openjev_lab.hf_witness import watch

pytestmark = pytest.mark.usefixtures("one_thread")
FLA = """
from openjev_lab import hf_torch
TORCH = hf_torch.torch_function(hf_torch.modeling(), "torch_chunk_gated_delta_rule")
def chunk_gated_delta_rule(query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False,
                           use_qk_l2norm_in_kernel=False, **kwargs):
    return TORCH(query, key, value, g, beta, chunk_size, initial_state, output_final_state, use_qk_l2norm_in_kernel)
def fused_recurrent_gated_delta_rule(*args, **kwargs):
    raise RuntimeError("never reached without a cache")
"""
CONVOLUTION = """
import torch
def causal_conv1d_fn(x, weight, bias=None, activation=None, **kwargs):
    width = weight.shape[-1]
    padded = torch.nn.functional.pad(x, (width - 1, 0)).unfold(-1, width, 1)
    return torch.nn.functional.silu((padded * weight[None, :, None, :]).sum(-1))
def causal_conv1d_update(*args, **kwargs):
    raise RuntimeError("never reached without a cache")
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """flash-linear-attention and causal-conv1d as transformers would find and bind them."""
    (tmp_path / "fla" / "ops" / "gated_delta_rule").mkdir(parents=True)
    (tmp_path / "causal_conv1d").mkdir()
    for folder in ("fla", "fla/ops"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "fla" / "ops" / "gated_delta_rule" / "__init__.py").write_text(FLA)
    (tmp_path / "causal_conv1d" / "__init__.py").write_text(CONVOLUTION)
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in bound(hf_torch.modeling()).items():
        monkeypatch.setattr(hf_torch.modeling(), name, value)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in ("fla", "causal_conv1d")]:
        del sys.modules[name]


def bound(module: types.ModuleType) -> dict[str, Any]:
    """What transformers would have bound at import, had the libraries been there."""
    import causal_conv1d
    from fla.ops import gated_delta_rule

    if hasattr(module, "FusedRMSNormGated"):  # up to 5.10: the functions themselves
        return {
            "chunk_gated_delta_rule": gated_delta_rule.chunk_gated_delta_rule,
            "causal_conv1d_fn": causal_conv1d.causal_conv1d_fn,
        }
    from transformers.integrations import use_kernel_func_from_hub_with_fallback as decorate

    function = hf_torch.torch_function
    return {
        "torch_chunk_gated_delta_rule": decorate("chunk_gated_delta_rule", "fla")(
            function(module, "torch_chunk_gated_delta_rule")
        ),
        "causal_conv1d_fn": decorate("causal_conv1d_fn", "causal_conv1d")(function(module, "causal_conv1d_fn")),
    }


@contextmanager
def nothing(_: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize("arm", [RawHF, MergedHF])
def test_an_arm_keeps_installed_libraries_out(tiny_package: Path, libraries: None, arm: type) -> None:
    record = arm(tiny_package).describe()
    assert record["functions"]["transformers/models/qwen3_5/modeling_qwen3_5.py:torch_chunk_gated_delta_rule"] == 6
    assert record["torch_calls"]["conv1d"] == 6


def test_an_arm_that_used_them_refuses_to_serve(
    tiny_package: Path, libraries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf_torch, "forced", nothing)
    with pytest.raises(LabError, match=r"entered \['causal_conv1d.causal_conv1d_fn', 'fla.ops.gated_delta_rule.chunk_"):
        MergedHF(tiny_package)


def test_the_bindings_come_back_when_a_forward_fails() -> None:
    module = hf_torch.modeling()
    before = dict(vars(module))
    with pytest.raises(ZeroDivisionError), hf_torch.forced(hf_torch.torch_bindings(module)):
        raise ZeroDivisionError
    assert dict(vars(module)) == before


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A stand-in for a modeling file with one function in it."""
    (tmp_path / "modeling_stand_in.py").write_text("def rule(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "modeling_stand_in", raising=False)
    import modeling_stand_in

    return modeling_stand_in


def hub_layer(function: Any) -> torch.nn.Module:
    """A function as the ``kernels`` hub client keeps it: a layer whose forward has it in a closure."""

    class Func(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Func()


def library_or(function: Any, other: Any) -> Any:
    """A decorator's result that knows both and calls the other."""

    def wrapped(*args: Any) -> Any:
        return function(*args) if other is None else other(*args)

    return wrapped


def test_a_function_is_dug_out_of_decorators_and_hub_layers(module: Any) -> None:
    rule = module.rule
    for hidden in (rule, library_or(rule, len), hub_layer(library_or(rule, len)), library_or(hub_layer(rule), len)):
        module.rule = hidden
        assert hf_torch.torch_function(module, "rule") is rule


def test_a_function_that_is_not_there_is_said(module: Any) -> None:
    for hidden in (None, len, library_or(None, len)):
        module.rule = hidden
        with pytest.raises(LabError, match="is not understood: rule in modeling_stand_in hides 0 torch functions"):
            hf_torch.torch_function(module, "rule")


def test_the_record_says_versions_and_what_was_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_torch, "LIBRARIES", ("torch", "no-such-distribution"))
    record = hf_torch.describe()
    assert record["libraries_kept_out"] == {"torch": torch.__version__}
    assert record["versions"]["peft"] and record["versions"]["python"].startswith("3.")


def test_the_witness_sees_what_ran_and_changes_nothing() -> None:
    layer = torch.nn.Conv1d(2, 2, 1)
    before = sys.getprofile()
    witness = watch(
        lambda: (layer(torch.ones(1, 2, 3)), torch.nn.functional.conv1d(torch.ones(1, 1, 3), torch.ones(1, 1, 1)))
    )
    assert witness.calls == {"conv1d": 2} and witness.strangers == {} and sys.getprofile() is before
    with pytest.raises(ZeroDivisionError):
        watch(lambda: 1 / 0)
    assert sys.getprofile() is before
