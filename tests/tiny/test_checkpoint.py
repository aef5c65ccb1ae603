"""The committed tiny checkpoint: its layout and size, what it records about itself, and that it decides as recorded."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from openjev_lab.checkpoint import load_package
from openjev_lab.geometry import KNOWN
from openjev_lab.hf import RawHF
from openjev_lab.tiny import evaluate
from openjev_lab.tokens import Prompter

ROOT = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny"
FILES = """base/chat_template.jinja base/config.json base/model.safetensors base/tokenizer.json
base/tokenizer_config.json checkpoint/adapter/adapter_config.json
checkpoint/adapter/adapter_model.safetensors checkpoint/head.pt checkpoint/model.json
checkpoint/temperature.json training.json"""
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return json.loads((ROOT / "training.json").read_text())


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    return Prompter.load(ROOT / "base")


def test_layout_and_size() -> None:
    files = sorted(path for path in ROOT.rglob("*") if path.is_file())
    assert [str(path.relative_to(ROOT)) for path in files] == FILES.split()
    assert sum(path.stat().st_size for path in files) < 8 * 1024 * 1024


def test_it_is_a_package_of_the_tiny_geometry() -> None:
    package = load_package(ROOT)
    assert package.geometry == KNOWN["tiny"]
    assert package.lora is not None and (package.lora.rank, package.lora.alpha) == (8, 16)
    assert list(package.lora.modules) == package.geometry.lora_modules()
    assert package.base is not None
    assert {entry.dtype for entry in package.base.entries.values()} == {"BF16", "F32"}


def test_peft_and_transformers_open_it_by_themselves() -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModel, AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(ROOT / "base")
    assert torch.equal(base.lm_head.weight, base.model.embed_tokens.weight)
    model = PeftModel.from_pretrained(AutoModel.from_pretrained(ROOT / "base"), ROOT / "checkpoint" / "adapter")
    filled = [weight for name, weight in model.named_parameters() if ".lora_B" in name]
    assert len(filled) == 20 and all(weight.abs().sum() > 0 for weight in filled)


def test_what_it_records_is_what_was_asked_of_it(facts: dict[str, Any]) -> None:
    assert facts["temperature"]["value"] == load_package(ROOT).temperature
    assert facts["held_out"]["prompts_seen_in_training"] == 0
    assert set(facts["accuracy"]["noul"]) == set(evaluate.RANGES)
    assert all(cell["accuracy"] >= 0.9 for cell in facts["accuracy"]["noul"].values())
    for kind in ("choice", "score"):
        assert all(cell["accuracy"] >= cell["chance"] + 0.3 for cell in facts["accuracy"][kind].values())
    without = facts["accuracy_without_adapter"]["noul"]
    assert all(cell["accuracy"] >= without[name]["accuracy"] + 0.2 for name, cell in facts["accuracy"]["noul"].items())
    assert {"seed", "data", "curve", "wall_s", "device", "versions"} <= set(facts)


@pytest.mark.parametrize(("name", "count", "at_least"), [("80-113", 60, 54), ("2312-3399", 5, 4)])
def test_it_decides(prompter: Prompter, name: str, count: int, at_least: int) -> None:
    arm = RawHF(ROOT)
    items = [evaluate.make_item("test", 0, "noul", name, index, prompter) for index in range(count)]
    rows = evaluate.logits(items, lambda prompts: [arm.score(ids) for ids in prompts])
    assert sum((row[1] > row[0]) == item.label for item, row in zip(items, rows, strict=True)) >= at_least


def test_it_chooses_and_scores_and_not_without_the_adapter(prompter: Prompter) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModel

    from openjev_lab.tiny import stages

    text = AutoModel.from_pretrained(ROOT / "base", dtype=torch.float32)
    text = PeftModel.from_pretrained(text, ROOT / "checkpoint" / "adapter").eval()
    head = torch.nn.Linear(KNOWN["tiny"].hidden, 1)
    head.load_state_dict(torch.load(ROOT / "checkpoint" / "head.pt", weights_only=True))
    items = [
        evaluate.make_item("test", 0, kind, "80-113", index, prompter)
        for kind, count in (("noul", 60), ("choice", 12), ("score", 12))
        for index in range(count)
    ]

    def right() -> dict[str, float]:
        rows = evaluate.logits(items, lambda prompts: stages.scores(text, head, prompts, "cpu"))
        hits = [(item.kind, row.index(max(row)) == item.best) for item, row in zip(items, rows, strict=True)]
        return {kind: fmean(hit for own, hit in hits if own == kind) for kind in evaluate.COUNTS}

    adapted = right()
    with text.disable_adapter():
        plain = right()
    assert min(adapted.values()) >= 0.8
    assert plain["noul"] <= 0.75 and plain["score"] <= 0.75
