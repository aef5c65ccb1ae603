"""The merged export: what it holds, that it appears whole or not at all, and each fault when it is opened again.

python -m pytest tests/checkpoint/test_merge.py
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from broken import Tensors, cut, edit_json, edit_tensors
from safetensors import safe_open

from openjev_lab.checkpoint import load_package, lora_tensors, tensors
from openjev_lab.checkpoint import merge as merge_module
from openjev_lab.checkpoint.files import sha256
from openjev_lab.checkpoint.merge import merge
from openjev_lab.errors import LabError
from openjev_lab.tokens import Prompter

MARKER = "open_jev_export.json"


@pytest.fixture(scope="module")
def export(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return merge(tiny_package, tmp_path_factory.mktemp("merged") / "export", "bfloat16")


def test_an_export_says_what_it_is(tiny_package: Path, export: Path) -> None:
    package, said = load_package(tiny_package), json.loads((export / MARKER).read_text())
    assert (said["format"], said["dtype"]) == ("open-jev-text-merged/1", "bfloat16")
    assert (said["model_id"], said["base_revision"]) == (package.model_id, package.base_revision)
    assert said["checkpoint_revision"] == package.revision
    assert (said["temperature"], said["max_length"], said["head_bias"]) == (1.5, 4096, 0.25)
    assert said["head_weight"] == package.head_weight.tolist()
    prompter = Prompter.load(package.tokenizer_dir)
    assert (said["chat_prefix"], said["chat_suffix"]) == (prompter.chat_prefix, prompter.chat_suffix)
    assert len({path.stat().st_mode for path in export.iterdir()}) == 1
    assert set(said["files"]) == {path.name for path in export.iterdir()} - {MARKER}
    for name, entry in said["files"].items():
        assert entry == {"bytes": (export / name).stat().st_size, "sha256": sha256(export / name)}


def test_opening_an_export_gives_the_package_merged(tiny_package: Path, export: Path) -> None:
    package, opened = load_package(tiny_package), load_package(export)
    assert (opened.kind, opened.lora, opened.adapter_dir, opened.base_dir) == ("merged", None, None, export)
    for field in ("model_id", "revision", "base_revision", "geometry", "temperature", "max_length", "aliases"):
        assert getattr(opened, field) == getattr(package, field)
    assert torch.equal(opened.head_weight, package.head_weight) and opened.head_bias == package.head_bias
    one, two = tensors(package, dtype="bfloat16"), tensors(opened, dtype="bfloat16")
    assert list(one) == list(two)
    assert all(torch.equal(one[name], two[name]) and one[name].dtype == two[name].dtype for name in one)
    assert opened.content_hashes().keys() == {path.name for path in export.iterdir()}


def test_an_export_has_no_adapter_to_give_or_to_merge(export: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is merged and has no adapter"):
        lora_tensors(load_package(export))
    with pytest.raises(LabError, match="is merged already"):
        merge(export, tmp_path / "again")


def test_weights_go_into_shards_of_a_limited_size(tiny_package: Path, tmp_path: Path) -> None:
    out = merge(tiny_package, tmp_path / "out", "float32", shard_bytes=1_000_000)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    shards = sorted(out.glob("model-*.safetensors"))
    assert len(shards) > 2 and {path.name for path in shards} == set(index["weight_map"].values())
    assert [path.name for path in shards] == [
        f"model-{n:05}-of-{len(shards):05}.safetensors" for n in range(1, len(shards) + 1)
    ]
    for path in shards:
        with safe_open(path, "pt") as file:
            sizes = [file.get_tensor(key).nbytes for key in file.keys()]  # noqa: SIM118
            assert file.metadata()["format"] == "pt" and file.metadata()["dtype"] == "float32"
            assert sum(sizes) <= 1_000_000 or len(sizes) == 1
    package = load_package(tiny_package)
    expected, got = tensors(package), tensors(load_package(out))
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in expected.values())
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def test_transformers_opens_an_export_by_itself(export: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    model, report = AutoModel.from_pretrained(export, dtype=torch.bfloat16, output_loading_info=True)
    assert type(model).__name__ == "Qwen3_5TextModel"
    assert not report["missing_keys"] and not report["unexpected_keys"]
    expected = tensors(load_package(export), dtype="bfloat16")
    assert all(torch.equal(expected[name].bfloat16(), tensor) for name, tensor in model.state_dict().items())
    assert AutoTokenizer.from_pretrained(export).chat_template


def test_nothing_is_ever_overwritten(tiny_package: Path, tmp_path: Path) -> None:
    for name in ("folder", "file", "dangling"):
        out = tmp_path / name
        {"folder": out.mkdir, "file": out.touch, "dangling": lambda out=out: out.symlink_to(tmp_path / "absent")}[
            name
        ]()
        with pytest.raises(LabError, match=f"{name} exists already; a merge never overwrites"):
            merge(tiny_package, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file", "folder"]
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("when", ["a shard", "the marker"])
def test_a_failed_attempt_leaves_nothing(
    tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(merge_module, {"a shard": "_write_shard", "the marker": "_marker"}[when], fail)
    with pytest.raises(OSError, match="No space"):
        merge(tiny_package, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert merge(tiny_package, tmp_path / "out").is_dir()


def test_a_bad_value_in_the_base_stops_the_merge_cleanly(copy: Path, tmp_path: Path) -> None:
    def spoil(weights: Tensors) -> None:
        weights["model.norm.weight"].fill_(torch.nan)

    edit_tensors(copy / "base/model.safetensors", spoil)
    with pytest.raises(LabError, match="model.norm.weight holds 128 values that are not finite"):
        merge(copy, tmp_path / "out", shard_bytes=100_000)
    assert not (tmp_path / "out").exists() and not (tmp_path / ".out.partial").exists()


def test_a_killed_merge_is_no_export_and_is_swept_by_the_next(tiny_package: Path, tmp_path: Path) -> None:
    out, partial = tmp_path / "out", tmp_path / ".out.partial"
    program = (
        "import sys, time\nfrom openjev_lab.checkpoint.merge import merge\n"
        "merge(sys.argv[1], sys.argv[2], 'float32', shard_bytes=200_000, progress=lambda *_: time.sleep(0.2))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tiny_package), str(out)])
    try:
        deadline = time.monotonic() + 60
        while not list(partial.glob("shard-*")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(LabError, match="another merge is writing .*out .*wait for it, or stop it"):
            merge(tiny_package, out)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list(partial.glob("shard-*")) and not out.exists()
    with pytest.raises(LabError, match="no open_jev_export.json"):
        load_package(partial)
    assert load_package(merge(tiny_package, out)).kind == "merged" and not partial.exists()


def test_a_lock_is_held_while_writing_and_gone_after(tiny_package: Path, tmp_path: Path) -> None:
    out = merge(tiny_package, tmp_path / "out")
    descriptor = os.open(out, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_a_place_that_cannot_be_written_is_named(tiny_package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="cannot be made .*the merge is written there"):
        merge(tiny_package, tmp_path / "file" / "out")


def test_an_unknown_dtype_is_refused_before_anything_is_made(tiny_package: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="dtype 'int4' is unknown"):
        merge(tiny_package, tmp_path / "out", "int4")
    assert not list(tmp_path.iterdir())


MARKER_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "format": ({"format": "open-jev-text-merged/2"}, 'format is "open-jev-text-merged/2"; this version reads'),
    "no model": ({"model_id": ...}, "model_id is missing"),
    "no revision": ({"checkpoint_revision": ""}, 'checkpoint_revision is ""'),
    "no base revision": ({"base_revision": 3}, "base_revision is 3"),
    "temperature": ({"temperature": 0}, "temperature is 0; it must be a finite number above 0"),
    "length": ({"max_length": 99999}, "max_length is 99999; it must be .* to 16384"),
    "prefix": ({"chat_prefix": None}, "chat_prefix is null; it must be the chat template's text"),
    "head width": ({"head_weight": [0.0] * 127}, "head_weight must be a list of 128 numbers"),
    "head text": ({"head_weight": ["0"] * 128}, "head_weight must be a list of 128 numbers"),
    "head values": ({"head_weight": [float("nan")] * 128}, "head_weight holds values that are not finite"),
    "bias": ({"head_bias": None}, "head_bias is null; it must be a finite number"),
    "files": ({"files": []}, "files must be an object"),
}


@pytest.fixture
def broken_export(export: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(export, tmp_path / "broken"))


@pytest.mark.parametrize("fault", MARKER_FAULTS)
def test_a_fault_in_the_marker_is_named(broken_export: Path, fault: str) -> None:
    changes, message = MARKER_FAULTS[fault]
    edit_json(broken_export / MARKER, **changes)
    with pytest.raises(LabError, match=f"{MARKER}: {message}"):
        load_package(broken_export)


def test_an_export_without_its_marker_is_incomplete(broken_export: Path) -> None:
    (broken_export / MARKER).unlink()
    with pytest.raises(LabError, match=f"has no {MARKER}, which a merge writes last: the export is incomplete"):
        load_package(broken_export)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_changed_or_missing_file_of_an_export_is_named(broken_export: Path, name: str) -> None:
    path = broken_export / name
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(LabError, match=f"{name} is not the file that {MARKER} was written for"):
        load_package(broken_export)
    cut(path, 10)
    with pytest.raises(LabError, match=f"{name} is not the file"):
        load_package(broken_export)
    path.unlink()
    with pytest.raises(LabError, match=f"{name} is missing: {MARKER} lists it"):
        load_package(broken_export)


def test_another_makers_marker_lists_no_files_and_is_read(broken_export: Path) -> None:
    edit_json(broken_export / MARKER, files=..., dtype=...)
    assert load_package(broken_export).kind == "merged"


def test_the_bar_is_silent_without_a_terminal(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with merge_module.bar() as progress:
        merge(tiny_package, tmp_path / "out", progress=progress)
    assert capsys.readouterr() == ("", "")
