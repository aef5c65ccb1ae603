"""Opening packages: what a whole one says, and one clear error for each fault, before any weight is read.

python -m pytest tests/checkpoint/test_load.py
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from broken import cut, edit_json, edit_tensors, shard

from openjev_lab.checkpoint import load_package
from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN

ROOT = Path(__file__).resolve().parents[2]
HEAD = torch.zeros(1, 128)
MODEL, TEMPERATURE, HEAD_FILE = "checkpoint/model.json", "checkpoint/temperature.json", "checkpoint/head.pt"


def test_a_package_says_what_it_is(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    assert (package.kind, package.model_id, package.base_revision) == ("package", "tests/tiny", "base-of-the-tests")
    assert package.geometry == KNOWN["tiny"]
    assert package.aliases == ("tests/tiny", "open-jev", "jev-latest", "open-jev-tiny")
    assert (package.temperature, package.max_length, package.head_bias) == (1.5, 4096, 0.25)
    assert package.tokenizer_dir == package.base_dir == tiny_package / "base"
    assert package.adapter_dir == tiny_package / "checkpoint" / "adapter"
    saved = torch.load(tiny_package / HEAD_FILE, weights_only=True)["weight"]
    assert torch.equal(package.head_weight, saved[0]) and package.head_weight.dtype == torch.float32
    assert package.lora and (package.lora.rank, package.lora.scaling, len(package.lora.modules)) == (8, 2.0, 20)


def test_the_tiny_checkpoint_of_the_repository_opens_and_its_base_is_the_one_pinned() -> None:
    package = load_package(ROOT / "checkpoints" / "tiny")
    assert package.aliases == ("openjev-lab/tiny", "open-jev", "jev-latest", "open-jev-tiny")
    weights = ROOT / "checkpoints" / "tiny" / "base" / "model.safetensors"
    assert package.base_revision == f"sha256:{hashlib.sha256(weights.read_bytes()).hexdigest()}"
    assert package.lora and len(package.lora.modules) == 20


def test_the_revision_names_the_content(tiny_package: Path, copy: Path) -> None:
    before = load_package(copy).revision
    assert before == load_package(tiny_package).revision and before.startswith("sha256:")
    edit_json(copy / TEMPERATURE, temperature=1.25)
    assert load_package(copy).revision != before


def content(base: Path) -> str:
    """The content of a base's weights as a revision: a file's hash, or the hash of ``sha256sum``'s lines for shards."""
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(base.glob("*.safetensors"))}
    lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    return "sha256:" + (hashlib.sha256(lines.encode()).hexdigest() if len(sums) > 1 else next(iter(sums.values())))


@pytest.mark.parametrize("shards", [1, 2])
def test_a_base_may_be_pinned_by_its_content(copy: Path, shards: int) -> None:
    weights = copy / "base" / "model.safetensors"
    edit_tensors(weights, lambda tensors: None, metadata={"format": "pt"})
    if shards > 1:
        weights = shard(copy / "base", shards).with_name("model-00001-of-00002.safetensors")
    pinned = content(copy / "base")
    edit_json(copy / MODEL, revision=pinned)
    assert load_package(copy).base_revision == pinned
    edit_tensors(weights, lambda tensors: None, metadata={"format": "pt", "touched": "yes"})
    with pytest.raises(
        LabError, match=f"pins base revision {pinned}, .*its weights' content.* says {content(copy / 'base')}"
    ):
        load_package(copy)


def test_a_download_says_its_own_commit(copy: Path) -> None:
    record = copy / ".cache/huggingface/download/checkpoint/model.json.metadata"
    record.parent.mkdir(parents=True)
    record.write_text("28cf73067d5b337860bbef3c85b8b82ba8730956\netag\n1.0\n")
    assert load_package(copy).revision == "28cf73067d5b337860bbef3c85b8b82ba8730956"


def test_a_base_may_be_a_link_into_a_hub_cache(copy: Path, tmp_path: Path) -> None:
    commit = "c202236235762e1c871ad0ccb60c8ee5ba337b9a"
    snapshot = tmp_path / "hub" / "snapshots" / commit
    snapshot.parent.mkdir(parents=True)
    shutil.move(copy / "base", snapshot)
    (copy / "base").symlink_to(snapshot)
    edit_tensors(snapshot / "model.safetensors", lambda tensors: None, metadata={"format": "pt"})
    edit_json(copy / MODEL, revision=commit, model_id="Qwen/Qwen3.5-9B")
    assert load_package(copy).aliases[-1] == "open-jev-9b"
    edit_json(copy / MODEL, revision=commit[::-1])
    with pytest.raises(LabError, match=f"pins base revision {commit[::-1]}, .*as downloaded.* says {commit}"):
        load_package(copy)


def test_content_hashes_cover_every_file(copy: Path) -> None:
    (copy / "base" / ".cache").mkdir()
    (copy / "base" / ".cache" / "x").write_text("not content")
    hashes = load_package(copy).content_hashes()
    assert hashes[MODEL] == hashlib.sha256((copy / MODEL).read_bytes()).hexdigest()
    assert sorted(hashes) == [
        "base/chat_template.jinja",
        "base/config.json",
        "base/model.safetensors",
        "base/tokenizer.json",
        "base/tokenizer_config.json",
        "checkpoint/adapter/adapter_config.json",
        "checkpoint/adapter/adapter_model.safetensors",
        HEAD_FILE,
        MODEL,
        TEMPERATURE,
    ]


JSON_FAULTS = {
    "no model_id": (MODEL, {"model_id": ...}, "model_id is missing; it must be text"),
    "empty revision": (MODEL, {"revision": " "}, "revision is .* must be text, and not empty"),
    "moving revision": (MODEL, {"revision": "main"}, "revision 'main' moves; it must pin"),
    "other revision": (
        MODEL,
        {"revision": "another"},
        "pins base revision another, .*metadata.* says base-of-the-tests",
    ),
    "no method": (MODEL, {"method": ...}, "method is missing"),
    "rank as text": (MODEL, {"lora_rank": "8"}, 'lora_rank is "8"; it must be a whole number from 1'),
    "other rank": (MODEL, {"lora_rank": 16}, "r is 8, model.json's lora_rank 16"),
    "no length": (MODEL, {"max_length": 0}, "max_length is 0; it must be a whole number from 1 to 16384"),
    "length past the limit": (MODEL, {"max_length": 16385}, "max_length is 16385; .* to 16384"),
    "true is no length": (MODEL, {"max_length": True}, "max_length is true"),
    "temperature 0": (TEMPERATURE, {"temperature": 0}, "temperature is 0; it must be a finite number above 0"),
    "temperature below 0": (TEMPERATURE, {"temperature": -1.0}, "temperature is -1.0"),
    "temperature infinite": (TEMPERATURE, {"temperature": float("inf")}, "temperature is Infinity; .*finite"),
    "temperature as text": (TEMPERATURE, {"temperature": "1"}, 'temperature is "1"'),
    "no temperature": (TEMPERATURE, {"temperature": ...}, "temperature is missing"),
    "other model type": (
        "base/config.json",
        {"model_type": "llama"},
        "model_type is 'llama'; it must be 'qwen3_5_text'",
    ),
    "size missing": ("base/config.json", {"hidden_size": ...}, "config.json: hidden_size is None"),
    "other activation": ("base/config.json", {"hidden_act": "gelu"}, "config.json: hidden_act is 'gelu'"),
}


@pytest.mark.parametrize("fault", JSON_FAULTS)
def test_a_fault_in_json_is_named(copy: Path, fault: str) -> None:
    file, changes, message = JSON_FAULTS[fault]
    edit_json(copy / file, **changes)
    with pytest.raises(LabError, match=message) as caught:
        load_package(copy)
    assert Path(file).name in str(caught.value)


@pytest.mark.parametrize(
    "file",
    [MODEL, TEMPERATURE, HEAD_FILE, "base/config.json", "base/model.safetensors", "base/tokenizer.json"]
    + ["checkpoint/adapter/adapter_config.json", "checkpoint/adapter/adapter_model.safetensors"],
)
def test_a_missing_file_is_named(copy: Path, file: str) -> None:
    (copy / file).unlink()
    with pytest.raises(LabError, match=f"{file} is missing: "):
        load_package(copy)


@pytest.mark.parametrize("text", ["{", "[1]", '{"temperature": 1, "temperature": 2}', b"\xff\xfe"])
def test_what_is_no_json_object_is_named(copy: Path, text: str | bytes) -> None:
    (copy / TEMPERATURE).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(
        LabError, match=r"temperature\.json (is not JSON|holds a JSON list|gives .* twice|is not UTF-8)"
    ):
        load_package(copy)


class Code:
    """A pickle that would run code when it is read."""

    def __reduce__(self):
        return print, ("code ran",)


HEAD_FAULTS = {
    "code": ({"weight": Code(), "bias": torch.zeros(1)}, "cannot be read as tensors alone"),
    "no bias": ({"weight": HEAD}, r"holds \['weight'\]; a dict of exactly weight and bias"),
    "a third": ({"weight": HEAD, "bias": torch.zeros(1), "scale": torch.ones(1)}, "exactly weight and bias"),
    "a tensor": (HEAD, "holds Tensor"),
    "wrong width": ({"weight": torch.zeros(1, 64), "bias": torch.zeros(1)}, r"weight is torch.float32 \[1, 64\]"),
    "flat": ({"weight": HEAD[0], "bias": torch.zeros(1)}, r"shape \[1, 128\] is right"),
    "scalar bias": ({"weight": HEAD, "bias": torch.tensor(0.0)}, r"bias is .*shape \[1\] is right"),
    "whole numbers": ({"weight": HEAD.long(), "bias": torch.zeros(1)}, "weight is torch.int64"),
    "not a number": ({"weight": HEAD / 0, "bias": torch.zeros(1)}, "weight holds values that are not finite"),
    "infinite bias": ({"weight": HEAD, "bias": torch.ones(1) / 0}, "bias holds values that are not finite"),
}


@pytest.mark.parametrize("fault", HEAD_FAULTS)
def test_a_fault_in_the_head_is_named(copy: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    value, message = HEAD_FAULTS[fault]
    torch.save(value, copy / HEAD_FILE)
    with pytest.raises(LabError, match=f"head.pt.*{message}"):
        load_package(copy)
    assert "code ran" not in capsys.readouterr().out


def test_a_cut_off_head_is_named(copy: Path) -> None:
    cut(copy / HEAD_FILE, 100)
    with pytest.raises(LabError, match="head.pt cannot be read as tensors alone"):
        load_package(copy)


def test_faults_without_weights_are_found_before_any_weight_is_read(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr("torch.load", refuse)
    monkeypatch.setattr("safetensors.safe_open", refuse)
    edit_json(copy / "checkpoint/adapter/adapter_config.json", r=4)
    with pytest.raises(LabError, match="r is 4"):
        load_package(copy)


def test_what_is_no_checkpoint_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="absent is no folder; a checkpoint is a package, a merged export or synthetic"):
        load_package(tmp_path / "absent")
    with pytest.raises(LabError, match="base has no open_jev_export.json, .*incomplete, or this is a plain base"):
        load_package(copy / "base")
    shutil.rmtree(copy / "base")
    with pytest.raises(LabError, match="has checkpoint/ only"):
        load_package(copy)


def test_a_fault_is_one_sentence_for_a_person(copy: Path) -> None:
    (copy / MODEL).write_text(json.dumps({"model_id": "x" * 500, "revision": 1}))
    with pytest.raises(LabError) as caught:
        load_package(copy)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
