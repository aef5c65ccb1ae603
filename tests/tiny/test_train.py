"""A few steps of the real training on a CPU: a package that opens and is found again as recorded, a loss that falls."""

import json
import time
from pathlib import Path

import pytest

from openjev_lab.checkpoint import load_package
from openjev_lab.hf import RawHF
from openjev_lab.tiny import evaluate, train
from openjev_lab.tiny.recheck import recheck

BASE = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny" / "base"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def few_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One short range instead of four: it is the training that is tested."""
    monkeypatch.setattr(evaluate, "RANGES", {"80-113": (80, 113)})
    monkeypatch.setattr(evaluate, "COUNTS", {"noul": (1000,), "choice": (500,), "score": (500,)})


@pytest.mark.usefixtures("few_held_out")
def test_a_few_steps_make_a_whole_package(tmp_path: Path) -> None:
    settings = train.Settings(tmp_path / "tiny", device="cpu", steps_scale=0.004, batch_scale=0.01, workers=0)
    facts = train.train(settings, tmp_path / "log.jsonl")
    package = load_package(settings.out)
    assert (package.geometry.name, package.max_length) == ("tiny", 4096)
    assert json.loads((settings.out / "training.json").read_text()) == json.loads(json.dumps(facts))
    assert facts["steps_taken"] == 6 and facts["stopped_early"] is False
    curve = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert curve == facts["curve"]
    courses = ["words", "words", "long-words", "decide", "decide-middle", "decide-long"]
    assert [point["course"] for point in curve] == courses
    assert facts["temperature"]["value"] == package.temperature
    assert facts["held_out"]["prompts_seen_in_training"] == 0
    assert facts["accuracy"]["noul"]["80-113"]["requests"] == 4
    RawHF(package).score([1, 2, 3])  # every LoRA module runs, or it refuses
    again = recheck(settings.out, "cpu", workers=0, scale=0.004)
    same = ("held_out", "accuracy", "accuracy_without_adapter", "temperature")
    assert {name: again[name] for name in same} == {name: facts[name] for name in same}


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "left.txt").write_text("x")
    with pytest.raises(SystemExit, match="is not empty"):
        train.main(["--out", str(tmp_path)])


def test_training_stops_at_its_deadline() -> None:
    import torch

    from openjev_lab.tiny import stages
    from openjev_lab.tiny.examples import Course, Writer, make_batch

    course = Course("decide", 3, 80, 90, 2, 4096, (("noul", 1.0, 1.0),))
    batch = make_batch(0, course, 0, Writer.load(BASE))
    watch = stages.Watch(lambda point: None, Bar(), time.monotonic() + 600)
    weight = torch.nn.Parameter(torch.ones(1))

    def loss(one: object) -> tuple[torch.Tensor, torch.Tensor]:
        watch.deadline = 0.0
        return weight.sum(), torch.ones(2, dtype=torch.bool)

    groups = [{"params": [weight], "lr": 0.1}]
    curve = stages.train(stages.Stage("x", (course,), 0.1), groups, loss, [batch] * 3, watch)
    assert watch.stopped_early and watch.steps == 1 and len(curve) == 1


def test_the_base_loss_falls_and_the_decision_leaves_the_base_alone() -> None:
    import torch

    from openjev_lab.tiny import model, stages
    from openjev_lab.tiny.examples import Course, Writer, make_batch

    writer = Writer.load(BASE)
    words = Course("words", 8, 80, 90, 8, 4096, (("which", 1.0, 1.0),))
    decide = Course("decide", 2, 80, 90, 8, 4096, (("noul", 1.0, 1.0),))
    base, head = model.new_base(0, "cpu"), model.new_head(0, "cpu")
    watch = stages.Watch(lambda point: None, Bar(), time.monotonic() + 600)
    batch = make_batch(0, words, 0, writer)
    before = stages.base_loss(base, batch, "cpu")[0].item()
    weights = [{"params": list(base.parameters()), "lr": 2e-3}]
    stage = stages.Stage("base", (words,), 2e-3)
    stages.train(stage, weights, lambda one: stages.base_loss(base, one, "cpu"), [batch] * words.steps, watch)
    assert stages.base_loss(base, batch, "cpu")[0].item() < before - 0.5

    model.round_to_stored(base)
    kept = {name: value.clone() for name, value in base.named_parameters()}
    text = model.with_adapter(base.model, 0)
    trained = [weight for weight in text.parameters() if weight.requires_grad]
    assert len(trained) == 40  # A and B of 20 modules
    groups = [{"params": trained, "lr": 1e-2}, {"params": list(head.parameters()), "lr": 1e-2}]
    batches = [make_batch(0, decide, step, writer) for step in range(decide.steps)]
    stage = stages.Stage("decision", (decide,), 1e-2, 1e-2)
    curve = stages.train(stage, groups, lambda one: stages.decision_loss(text, head, one, "cpu"), batches, watch)
    assert watch.steps == 10 and curve[-1]["step"] == 2
    for name, value in text.named_parameters():
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        if ".lora_" not in name:
            assert torch.equal(value, kept[f"model.{plain}"]), name
    assert all(value.abs().sum() > 0 for name, value in text.named_parameters() if ".lora_B" in name)


class Bar:
    """A progress bar that nobody sees."""

    def update(self) -> None:
        """One step more."""
