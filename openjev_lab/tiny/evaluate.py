"""How often the tiny model decides right on requests that no training saw, by kind and length; and its temperature.

Takes a model (``ids -> scores``), returns plain numbers for ``training.json``. Held-out requests come from the same
generator under another name of its seed (``held-out`` or ``calibration`` instead of ``train``), at exact lengths of
the ranges that the 74-request mix has; that none of them was trained on is checked by hash, prompt by prompt.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from openjev_lab.contract import compile_request
from openjev_lab.tiny.examples import digest
from openjev_lab.tiny.language import Label, make_request
from openjev_lab.tokens import Prompter

Scorer = Callable[[Sequence[list[int]]], list[float]]
"""Scores of prompts given as ids, in order."""
Rows = Callable[[Sequence["Item"], bool], list[list[float]]]
"""Logits of items, with (True) or without the adapter."""
RANGES = {"80-113": (80, 113), "173-522": (173, 522), "601-1213": (601, 1213), "2312-3399": (2312, 3399)}
"""Tokens of a prompt: the four groups of lengths in the mix."""
COUNTS = {"noul": (1000, 500, 300, 300), "choice": (300, 200, 100, 60), "score": (300, 200, 100, 60)}
"""Held-out requests a kind, range by range."""


@dataclass(frozen=True, slots=True)
class Item:
    """One labelled request, ready to be scored."""

    kind: str
    range: str
    label: Label
    keys: tuple[str, ...]
    prompts: list[list[int]]
    """Ids of each candidate."""

    @property
    def best(self) -> int:
        """Which logit should be the largest."""
        if isinstance(self.label, bool | int):
            return int(self.label)
        return self.keys.index(self.label)


def make_item(split: str, seed: int, kind: str, name: str, index: int, prompter: Prompter) -> Item:
    """Request ``index`` of a split, at a length drawn from the range ``name``."""
    rng = random.Random(f"{split}/{seed}/{kind}/{name}/{index}")
    request, label = make_request(rng, tokens=rng.randint(*RANGES[name]), prompter=prompter, kind=kind)
    question = compile_request(request)[0]
    return Item(kind, name, label, question.keys, [prompter.encode(prompt) for prompt in question.prompts])


@contextmanager
def preparing(
    splits: Mapping[str, float], seed: int, base_dir: Path, workers: int
) -> Iterator[Callable[[str], list[Item]]]:
    """Starts to make the items of each split, ``splits[name]`` times as many as ``COUNTS``, at least one of each.

    Yields the function that waits for them: long requests of an exact length take a while, in which a model is trained.
    """
    jobs = {
        split: [
            (split, seed, kind, name, index)
            for kind, counts in COUNTS.items()
            for name, count in zip(RANGES, counts, strict=True)
            for index in range(max(1, round(count * scale)))
        ]
        for split, scale in splits.items()
    }
    if workers == 0:
        prompter = Prompter.load(base_dir)
        yield lambda split: [make_item(*job, prompter) for job in jobs[split]]
        return
    with get_context("spawn").Pool(workers, _start, (str(base_dir),)) as pool:
        made = {split: pool.map_async(_make, own, chunksize=4) for split, own in jobs.items()}
        yield lambda split: made[split].get()


_prompter: Prompter  # of a worker process, set when it starts


def _start(base_dir: str) -> None:
    global _prompter
    _prompter = Prompter.load(base_dir)


def _make(job: tuple[str, int, str, str, int]) -> Item:
    return make_item(*job, _prompter)


def logits(items: Sequence[Item], scorer: Scorer) -> list[list[float]]:
    """The logits of each item: [0, s] for a noul, else a score a candidate."""
    scores = iter(scorer([prompt for item in items for prompt in item.prompts]))
    found = [[next(scores) for _ in item.prompts] for item in items]
    return [[0.0, *row] if item.kind == "noul" else row for item, row in zip(items, found, strict=True)]


def accuracy(items: Sequence[Item], rows: Sequence[list[float]]) -> dict[str, dict[str, dict[str, float]]]:
    """Kind -> range -> {requests, accuracy, chance}, where there are requests; the first of equal logits decides."""
    cells: dict[tuple[str, str], list[tuple[bool, float]]] = {}
    for item, row in zip(items, rows, strict=True):
        cells.setdefault((item.kind, item.range), []).append((row.index(max(row)) == item.best, 1 / len(row)))
    table: dict[str, dict[str, dict[str, float]]] = {}
    for (kind, name), own in cells.items():
        right, chance = (sum(column) / len(own) for column in zip(*own, strict=True))
        table.setdefault(kind, {})[name] = {
            "requests": len(own),
            "accuracy": round(right, 4),
            "chance": round(chance, 4),
        }
    return table


def loss(items: Sequence[Item], rows: Sequence[Sequence[float]], temperature: float) -> float:
    """Mean negative log probability of the right answer, in nats."""
    total = 0.0
    for item, row in zip(items, rows, strict=True):
        scaled = [value / temperature for value in row]
        top = max(scaled)
        total += top + math.log(math.fsum(math.exp(value - top) for value in scaled)) - scaled[item.best]
    return total / len(items)


def fit_temperature(items: Sequence[Item], rows: Sequence[Sequence[float]]) -> float:
    """The temperature in [0.05, 20] with the least loss: golden section on its logarithm; the loss has one dip."""
    low, high = math.log(0.05), math.log(20.0)
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(items, rows, math.exp(left)) < loss(items, rows, math.exp(right)):
            high = right
        else:
            low = left
    return round(math.exp((low + high) / 2), 4)


def spread(items: Sequence[Item], rows: Sequence[Sequence[float]], temperature: float) -> dict[str, int]:
    """How many noul items have P(yes) in each tenth of [0, 1]."""
    tenths = {f"{tenth / 10:.1f}": 0 for tenth in range(10)}
    for item, row in zip(items, rows, strict=True):
        if item.kind == "noul":
            chance = (
                1 / (1 + math.exp(-row[1] / temperature))
                if row[1] > 0
                else 1 - 1 / (1 + math.exp(row[1] / temperature))
            )
            tenths[f"{min(9, int(chance * 10)) / 10:.1f}"] += 1
    return tenths


def trained_on(items: Sequence[Item], seen: set[int]) -> int:
    """How many of the items' prompts are among the digests of the training."""
    return sum(digest(prompt) in seen for item in items for prompt in item.prompts)


def splits(scale: float = 1.0) -> dict[str, float]:
    """Split -> how many times ``COUNTS`` it holds."""
    return {"calibration": scale / 2, "held-out": scale}


def measure(
    items_of: Callable[[str], list[Item]], rows: Rows, seen: set[int], temperature: float | None = None
) -> dict[str, Any]:
    """What ``training.json`` holds about decisions; fits the temperature on ``calibration`` unless it is given."""
    calibration, held_out = items_of("calibration"), items_of("held-out")
    fitted = rows(calibration, True)
    if temperature is None:
        temperature = fit_temperature(calibration, fitted)
    adapted, plain = rows(held_out, True), rows(held_out, False)
    return {
        "held_out": {
            "split": "requests drawn by the training's generator under seeds that start with 'held-out' or"
            " 'calibration' instead of 'train', at exact lengths",
            "prompts": sum(len(item.prompts) for item in held_out),
            "prompts_seen_in_training": trained_on(held_out, seen),
        },
        "accuracy": accuracy(held_out, adapted),
        "accuracy_without_adapter": accuracy(held_out, plain),
        "temperature": {
            "value": temperature,
            "requests": len(calibration),
            "loss_nats_at_1": round(loss(calibration, fitted, 1.0), 4),
            "loss_nats": round(loss(calibration, fitted, temperature), 4),
            "held_out_loss_nats": round(loss(held_out, adapted, temperature), 4),
        },
        "held_out_noul_by_probability": spread(held_out, adapted, temperature),
    }
