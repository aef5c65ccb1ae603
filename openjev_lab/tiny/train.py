"""Train the tiny checkpoint from a seed: tokenizer, base, adapter and head, temperature, and how well it decides.

    python -m openjev_lab.tiny.train --out checkpoints/tiny --seed 0

Writes a checkpoint package (base/, checkpoint/) and ``training.json`` beside it: seed, data, steps, losses, seconds,
device, versions, accuracy by kind and length with and without the adapter. Uses a GPU where there is one (some minutes
on an H200), else the CPU (hours; ``--steps-scale 0.01`` to see it work). Two runs on a GPU differ in rounding.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_lab.tiny import evaluate
from openjev_lab.tiny.examples import Batch, Course, batches
from openjev_lab.tiny.tokenizer import train_tokenizer

if TYPE_CHECKING:
    from openjev_lab.tiny.stages import Stage, Watch

DISTRIBUTIONS = ("torch", "transformers", "peft", "tokenizers", "safetensors", "numpy")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides the result."""

    out: Path
    seed: int = 0
    device: str = "auto"
    """A torch device, or ``auto``: CUDA where there is one."""
    steps_scale: float = 1.0
    """Multiplies every course's steps, and the number of held-out requests."""
    batch_scale: float = 1.0
    """Multiplies every batch."""
    workers: int = -1
    """Processes that make examples; -1: one a core but one, at most 8; 0: none but this."""
    max_minutes: float = 600.0
    """Training (not the evaluation after it) stops here, wherever it is."""


def base_courses() -> tuple[Course, ...]:
    """Naming first, claims later; then the same over longer contexts."""
    return (
        Course("words", 600, 60, 130, 512, 65536, (("which", 0.7, 0.4), ("claim", 0.3, 0.6))),
        Course("long-words", 180, 80, 1200, 512, 65536, (("which", 0.4, 0.4), ("claim", 0.6, 0.6))),
    )


def decision_courses() -> tuple[Course, ...]:
    """Short decisions, then all lengths up to past the longest of the mix."""
    tasks = (("noul", 0.5, 0.5), ("choice", 0.3, 0.3), ("score", 0.2, 0.2))
    return (
        Course("decide", 350, 75, 130, 512, 65536, tasks),
        Course("decide-middle", 150, 100, 800, 512, 98304, tasks),
        Course("decide-long", 250, 300, 3800, 256, 131072, tasks),
    )


def scaled(courses: Sequence[Course], settings: Settings) -> tuple[Course, ...]:
    """The courses as ``settings`` ask for them; at least a step and an example each."""
    return tuple(
        replace(
            course,
            steps=max(1, round(course.steps * settings.steps_scale)),
            most_examples=max(1, round(course.most_examples * settings.batch_scale)),
            most_tokens=max(1, round(course.most_tokens * settings.batch_scale)),
        )
        for course in courses
    )


def train(settings: Settings, log: Path | None = None) -> dict[str, Any]:
    """Train, write the package and ``training.json`` into ``settings.out``; returns what the latter holds."""
    import torch
    from tqdm import tqdm

    from openjev_lab.tiny import model, stages

    started = time.monotonic()
    device = settings.device if settings.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    workers = settings.workers if settings.workers >= 0 else max(1, min(8, (os.cpu_count() or 2) - 1))
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    base_dir = settings.out / "base"
    train_tokenizer(base_dir, settings.seed)
    first = stages.Stage("base", scaled(base_courses(), settings), rate=2e-3)
    second = stages.Stage("decision", scaled(decision_courses(), settings), rate=3e-3, head_rate=3e-3)
    seen: set[int] = set()
    splits = evaluate.splits(min(1.0, settings.steps_scale))
    with (
        evaluate.preparing(splits, settings.seed, base_dir, min(2, workers)) as items_of,
        batches(base_dir, settings.seed, [*first.courses, *second.courses], workers) as stream,
        tqdm(total=first.steps + second.steps, desc="tiny", disable=None, unit="step") as bar,
    ):
        watch = stages.Watch(_reporter(log), bar, started + 60 * settings.max_minutes)
        text, head, curve = _trained(settings, first, second, _noting(stream, seen), watch, device)
        train_s = time.monotonic() - started
        found = evaluate.measure(items_of, stages.rows_by(text, head, device), seen)
    model.save_checkpoint(settings.out, text, head, found["temperature"]["value"])
    facts = {
        **_described(settings, workers, first, second, len(seen)),
        "steps_taken": watch.steps,
        "stopped_early": watch.stopped_early,
        "curve": curve,
        **found,
        "train_s": round(train_s, 1),
        "wall_s": round(time.monotonic() - started, 1),
        **machine(device),
    }
    model.write_json(settings.out / "training.json", facts)
    return facts


def _trained(
    settings: Settings, first: Stage, second: Stage, stream: Iterator[Batch], watch: Watch, device: str
) -> tuple[Any, Any, list[dict[str, Any]]]:
    """The adapted text model and the head, both already saved (untempered), and the curve of both stages."""
    from openjev_lab.tiny import model, stages

    base, head = model.new_base(settings.seed, device), model.new_head(settings.seed, device)
    everything = [{"params": list(base.parameters()), "lr": first.rate}]
    curve = stages.train(first, everything, lambda batch: stages.base_loss(base, batch, device), stream, watch)
    model.round_to_stored(base)
    model.save_base(settings.out / "base", base)
    text = model.with_adapter(base.model, settings.seed)
    groups = [
        {"params": [weight for weight in text.parameters() if weight.requires_grad], "lr": second.rate},
        {"params": list(head.parameters()), "lr": second.head_rate},
    ]
    curve += stages.train(second, groups, lambda batch: stages.decision_loss(text, head, batch, device), stream, watch)
    model.save_checkpoint(settings.out, text, head, temperature=1.0)
    return text.eval(), head, curve


def machine(device: str) -> dict[str, Any]:
    """What it ran on."""
    import torch

    versions = {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}
    return {
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else f"{platform.machine()} CPU",
        "versions": {"python": platform.python_version(), **versions},
    }


def _described(settings: Settings, workers: int, first: Stage, second: Stage, prompts: int) -> dict[str, Any]:
    """What was asked for, and on what data."""
    kept = {name: value for name, value in asdict(settings).items() if name != "out"}
    return {
        "what": "a tiny qwen3_5_text base, adapter and head, trained by openjev_lab.tiny.train",
        "seed": settings.seed,
        "settings": {**kept, "workers": workers},
        "data": {
            "generator": "openjev_lab.tiny.language and openjev_lab.tiny.examples: sentences that settle attributes,"
            " shuffled among sentences that settle nothing; labels are exact and balanced",
            "seeds": "random.Random('train/SEED/COURSE/STEP'), a batch each",
            "distinct_prompts": prompts,
        },
        "stages": [asdict(first), asdict(second)],
    }


def _noting(stream: Iterator[Batch], seen: set[int]) -> Iterator[Batch]:
    """The same batches; the digests of their prompts go into ``seen``."""
    for batch in stream:
        seen.update(batch.digests.tolist())
        yield batch


def _reporter(log: Path | None) -> Callable[[dict[str, Any]], None]:
    def report(record: dict[str, Any]) -> None:
        if log:
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    return report


def main(argv: Sequence[str] | None = None) -> None:
    """The command line; prints the accuracies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the package; must not exist")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps-scale", type=float, default=1.0)
    parser.add_argument("--batch-scale", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--max-minutes", type=float, default=600.0)
    parser.add_argument("--log", type=Path, help="file that gets one line of JSON now and then")
    given = vars(parser.parse_args(argv))
    log = given.pop("log")
    settings = Settings(**given)
    if settings.out.exists() and any(settings.out.iterdir()):
        sys.exit(f"{settings.out} is not empty; give a new folder, or remove it first")
    facts = train(settings, log)
    print(json.dumps({key: facts[key] for key in ("accuracy", "accuracy_without_adapter", "temperature", "wall_s")}))


if __name__ == "__main__":
    main()
