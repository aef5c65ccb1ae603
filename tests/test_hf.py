"""The Hugging Face arms: what they compute, that it is what transformers and PEFT compute, what they refuse and record.

python -m pytest tests/test_hf.py
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from openjev_lab import hf, hf_torch
from openjev_lab.checkpoint import load_package
from openjev_lab.checkpoint.merge import merge
from openjev_lab.errors import LabError
from openjev_lab.hf import MergedHF, RawHF

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = (1, 2, 3, 63, 64, 65, 130)


def ids(tokens: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 1000, (tokens,), generator=generator).tolist()


@pytest.fixture(scope="module")
def raw(tiny_package: Path) -> RawHF:
    return RawHF(tiny_package)


@pytest.fixture(scope="module")
def merged(tiny_package: Path) -> MergedHF:
    return MergedHF(tiny_package)


@pytest.fixture(scope="module")
def plain(tiny_package: Path) -> torch.nn.Module:
    """What anybody gets from transformers and PEFT, by their own loaders."""
    from peft import PeftModel
    from transformers import AutoModel

    base = AutoModel.from_pretrained(tiny_package / "base", dtype=torch.float32, attn_implementation="sdpa")
    return PeftModel.from_pretrained(base, tiny_package / "checkpoint" / "adapter").eval()


@pytest.mark.parametrize("tokens", LENGTHS)
def test_merging_changes_nothing_but_rounding(raw: RawHF, merged: MergedHF, tokens: int) -> None:
    assert raw.score(ids(tokens)) == pytest.approx(merged.score(ids(tokens)), rel=0, abs=1e-5)


def test_the_trained_checkpoint_agrees_with_itself_merged() -> None:
    checkpoint = Path(__file__).resolve().parents[1] / "checkpoints" / "tiny"
    raw, merged = RawHF(checkpoint), MergedHF(checkpoint)
    for tokens in (3, 65):
        assert raw.score(ids(tokens)) == pytest.approx(merged.score(ids(tokens)), rel=0, abs=1e-5)


@pytest.mark.parametrize("tokens", LENGTHS)
def test_the_raw_arm_is_transformers_and_peft_to_the_bit(raw: RawHF, plain: Any, tokens: int) -> None:
    with torch.inference_mode():
        last = plain(input_ids=torch.tensor([ids(tokens)]), use_cache=False).last_hidden_state[0, -1]
    package = raw.package
    expected = float(last.double() @ package.head_weight.double()) + package.head_bias
    assert raw.score(ids(tokens)) == expected


def test_the_adapter_matters(raw: RawHF, tiny_package: Path) -> None:
    from openjev_lab.checkpoint import base_tensors

    class Bare(MergedHF):
        def _weights(self) -> dict[str, Tensor]:
            return base_tensors(self.package, self.device, self.dtype)

    assert abs(raw.score(ids(40)) - Bare(tiny_package).score(ids(40))) > 1e-3


def test_an_export_scores_as_its_package(tiny_package: Path, merged: MergedHF, tmp_path: Path) -> None:
    arm = MergedHF(merge(tiny_package, tmp_path / "export", "float32"))
    assert [arm.score(ids(n)) for n in (1, 70)] == [merged.score(ids(n)) for n in (1, 70)]
    with pytest.raises(LabError, match="export is merged; the raw arm needs the package that it came from"):
        RawHF(arm.package)


def test_hidden_states_are_the_residual_after_each_layer_and_the_last_norm(raw: RawHF) -> None:
    states = raw.hidden_states(ids(9))
    assert [tuple(state.shape) for state in states] == [(9, 128)] * 8 + [(128,)]
    normed = states[7][-1] * torch.rsqrt(states[7][-1].pow(2).mean() + 1e-6)
    assert torch.allclose(states[-1], normed * (1 + raw._text.norm.weight), atol=1e-6)
    assert raw.score(ids(9)) == float(states[-1].double() @ raw.package.head_weight.double()) + 0.25
    assert all(float(state.pow(2).mean().sqrt()) == pytest.approx(1.0, abs=0.5) for state in states)


def test_answers_do_not_depend_on_what_was_asked_before(raw: RawHF) -> None:
    first = raw.score(ids(20))
    raw.score(ids(70, seed=1))
    assert raw.score(ids(20)) == first


def test_bfloat16_keeps_the_fragile_weights_in_float32(tiny_package: Path, merged: MergedHF) -> None:
    arm = MergedHF(tiny_package, dtype="bfloat16")
    assert arm.describe()["float32_parameters"] == ["linear_attn.A_log", "linear_attn.norm.weight"]
    assert arm.hidden_states(ids(5))[0].dtype == torch.bfloat16
    assert arm.score(ids(60)) == pytest.approx(merged.score(ids(60)), abs=0.25)


@pytest.mark.parametrize(
    ("bad", "message"),
    [([], "0 tokens; this checkpoint takes 1 to 4096"), ([1] * 4097, "4097 tokens"), ([1, 1000], "vocabulary of 1000")],
)
def test_bad_ids_are_refused(raw: RawHF, bad: list[int], message: str) -> None:
    with pytest.raises(LabError, match=message):
        raw.score(bad)
    with pytest.raises(LabError, match="vocabulary"):
        raw.score([-1])


def test_an_unknown_dtype_or_checkpoint_is_refused(tiny_package: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="dtype 'half' is unknown"):
        RawHF(tiny_package, dtype="half")
    with pytest.raises(LabError, match="absent is no folder"):
        MergedHF(tmp_path / "absent")


def test_what_really_ran_is_on_record(raw: RawHF, merged: MergedHF) -> None:
    import json

    said = json.loads(json.dumps(raw.describe()))
    where = "transformers/models/qwen3_5/modeling_qwen3_5.py"
    assert said["functions"][f"{where}:torch_chunk_gated_delta_rule"] == 6
    assert said["functions"][f"{where}:Qwen3_5RMSNormGated.forward"] == 6
    assert said["functions"]["transformers/integrations/sdpa_attention.py:sdpa_attention_forward"] == 2
    assert said["functions"]["peft/tuners/lora/layer.py:Linear.forward"] == said["lora_modules"] == 20
    assert said["torch_calls"]["conv1d"] == 6 and said["torch_calls"]["scaled_dot_product_attention"] == 2
    assert said["attention_kernels"] == {"aten._scaled_dot_product_flash_attention_for_cpu.default": 2}
    assert said["attention_requested"] == "sdpa" and said["model_class"].endswith("Qwen3_5TextModel")
    assert said["versions"]["torch"] == torch.__version__ and said["versions"]["transformers"]
    assert (said["arm"], said["dtype"], said["threads"]) == ("RawHF", "float32", torch.get_num_threads())
    other = merged.describe()
    assert other["arm"] == "MergedHF" and other["lora_modules"] == 0
    assert "peft/tuners/lora/layer.py:Linear.forward" not in other["functions"]


def test_transformers_globals_are_put_back(tiny_package: Path) -> None:
    before = dict(vars(hf_torch.modeling()))
    RawHF(tiny_package).score([1, 2, 3])
    assert dict(vars(hf_torch.modeling())) == before


def test_threads_are_set(tiny_package: Path) -> None:
    before = torch.get_num_threads()
    try:
        assert MergedHF(tiny_package, threads=1).describe()["threads"] == 1
    finally:
        torch.set_num_threads(before)


def test_an_adapter_that_peft_places_otherwise_is_refused(tiny_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hf.lora_tensors(load_package(tiny_package))
    name = "layers.3.self_attn.q_proj"
    monkeypatch.setattr(hf, "lora_tensors", lambda *_: {k: v for k, v in whole.items() if k != name})
    with pytest.raises(LabError, match="PEFT wrapped 20 modules, the adapter has 19"):
        RawHF(tiny_package)
    a, b = whole[name]
    monkeypatch.setattr(hf, "lora_tensors", lambda *_: whole | {name: (a[:, :64], b)})
    with pytest.raises(LabError, match=r"PEFT made layers.3.self_attn.q_proj of shape \[8, 128\]; \[8, 64\] is right"):
        RawHF(tiny_package)


def test_a_model_that_transformers_builds_otherwise_is_refused(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openjev_lab.checkpoint import tensors

    less = {name: tensor for name, tensor in tensors(load_package(tiny_package)).items() if name != "norm.weight"}
    monkeypatch.setattr(hf, "tensors", lambda *_: less)
    with pytest.raises(LabError, match=r"wants \['norm.weight'\] and has no place for \[\]"):
        MergedHF(tiny_package)
