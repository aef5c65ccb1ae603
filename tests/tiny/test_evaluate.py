"""Accuracy and temperature on logits whose answers are known."""

import math
import random
from pathlib import Path

import pytest

from openjev_lab.tiny import evaluate
from openjev_lab.tiny.evaluate import Item

BASE = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny" / "base"


def item(kind: str, label: bool | str | int, keys: tuple[str, ...]) -> Item:
    return Item(kind, "80-113", label, keys, [[5]] * (1 if kind == "noul" else len(keys)))


def test_the_largest_logit_decides_and_the_first_of_equals_wins() -> None:
    items = [
        item("noul", True, ("false", "true")),
        item("noul", True, ("false", "true")),
        item("choice", "b", ("a", "b", "c")),
        item("score", 2, ("0", "1", "2")),
    ]
    rows = evaluate.logits(items, lambda prompts: [0.5, 0.0, 1.0, 2.0, 2.0, -3.0, -2.0, -1.0][: len(prompts)])
    assert rows == [[0.0, 0.5], [0.0, 0.0], [1.0, 2.0, 2.0], [-3.0, -2.0, -1.0]]
    cells = {kind: evaluate.accuracy(items * 4, rows * 4)[kind]["80-113"] for kind in ("noul", "choice", "score")}
    assert [cells[kind]["accuracy"] for kind in cells] == [0.5, 1.0, 1.0]
    assert cells["choice"] == {"requests": 4, "accuracy": 1.0, "chance": 0.3333}


def test_a_temperature_is_found_again() -> None:
    rng = random.Random(0)
    items, rows = [], []
    for _ in range(6000):
        logit = rng.gauss(0, 2)
        items.append(item("noul", rng.random() < 1 / (1 + math.exp(-logit)), ("false", "true")))
        rows.append([0.0, 2.5 * logit])  # too sure by 2.5
    found = evaluate.fit_temperature(items, rows)
    assert found == pytest.approx(2.5, rel=0.06)
    assert evaluate.loss(items, rows, found) < min(evaluate.loss(items, rows, t) for t in (found / 1.2, found * 1.2))


def test_items_are_exact_and_splits_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "COUNTS", {"noul": (3, 1, 1, 1)})
    with evaluate.preparing({"held-out": 1.0, "calibration": 1.0}, 0, BASE, 0) as items_of:
        held_out, calibration = items_of("held-out"), items_of("calibration")
    for one in held_out + calibration:
        low, high = evaluate.RANGES[one.range]
        assert low <= len(one.prompts[0]) <= high
    seen = {evaluate.digest(one.prompts[0]) for one in calibration}
    assert evaluate.trained_on(held_out, seen) == 0
    assert evaluate.trained_on(calibration, seen) == len(calibration) == 6
