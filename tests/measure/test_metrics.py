"""Every metric against numbers worked out by hand."""

from typing import Any

import polars as pl
import pytest

from openjev_lab.evidence.rows import TimingRow, frame
from openjev_lab.measure.metrics import METRICS, CannotTell

BASE: dict[str, Any] = {
    "run_id": "r", "workload": "mix", "measured": True, "question_count": 1, "expected_tokens": 80, "started_ns": 1,
    "queue_ns": 1, "prepare_ns": 1, "execute_ns": 1, "finish_ns": 1, "status": 200, "response_sha256": "0" * 64,
    "error": None, "attempt": 0, "tokens": 80, "label": None,
}  # fmt: skip


def row(arm: str, pass_index: int, request: str, ms: float, probabilities: list[float], **changes: Any) -> TimingRow:
    """One answered request; scores are ten times the probabilities, so that equal ones have equal bits."""
    lone = probabilities[0] if len(probabilities) == 1 else None
    own: dict[str, Any] = {
        "arm": arm, "pass_index": pass_index, "position": 0, "request_id": request, "latency_ns": round(ms * 1e6),
        "probability": lone, "score": lone, "probabilities": probabilities, "scores": [10 * p for p in probabilities],
    }  # fmt: skip
    if not probabilities:
        own |= dict.fromkeys(("probabilities", "scores")) | {"error": "HTTP 500: x", "status": 500}
    return TimingRow.model_validate(BASE | own | changes)


ROWS = [
    row("slow", 0, "a", 10, [0.9], label=True),
    row("slow", 0, "b", 30, [0.2], label=False),
    row("slow", 1, "a", 14, [0.9], label=True),
    row("slow", 1, "b", 50, [0.2], label=False),
    row("fast", 0, "a", 5, [0.9], label=True),
    row("fast", 0, "b", 8, [0.25], label=False),
    row("fast", 1, "a", 7, [0.9], label=True),
    row("fast", 1, "b", 32, [0.53], label=False),
    row("fast", 1, "c", 1, [0.5], label=True),
    row("broken", 0, "a", 1, [], label=True),
    row("broken", 0, "b", 1, [0.1], label=False, tokens=81),
    row("many", 0, "x", 1, [0.25, 0.5, 0.25]),
    row("other", 0, "x", 1, [0.25, 0.45, 0.3]),
    row("fast", -1, "a", 900, [0.1], label=True, measured=False),
]
TIMINGS = frame(ROWS)


def value(
    metric: str, arm: str, base: str | None = None, workload: str = "mix", timings: pl.DataFrame = TIMINGS
) -> float:
    assert METRICS[metric].compares == (base is not None)
    return METRICS[metric].value(timings, arm, base, workload)


@pytest.mark.parametrize(
    ("metric", "arm", "base", "wanted"),
    [
        ("mean_ms", "slow", None, 26.0),  # (12 + 40) / 2
        ("speedup", "fast", "slow", 2.0),  # means of a: 12 and 6, of b: 40 and 20; c has no partner
        ("speedup_of_fastest", "fast", "slow", 40 / 13),  # 10 + 30 over 5 + 8
        ("max_probability_difference", "fast", "slow", 0.33),  # b in pass 1: 0.53 against 0.2
        ("flips", "fast", "slow", 1.0),  # b crosses 0.5 in pass 1
        ("unequal_scores", "fast", "slow", 1.0),  # a has the same bits, b has not
        ("max_probability_difference", "other", "many", 0.05),  # candidates are compared one by one
        ("flips", "other", "many", 1.0),  # 0.5 decides yes, 0.45 no
        ("unequal_scores", "other", "many", 2.0),
        ("unequal_scores", "slow", "slow", 0.0),
        ("accuracy", "slow", None, 1.0),
        ("accuracy", "fast", None, 2 / 3),  # the worst pass: a and c right (0.5 is a yes), b wrong
        ("accuracy", "broken", None, 0.5),  # no answer is a wrong answer
        ("errors", "broken", None, 1.0),
        ("errors", "slow", None, 0.0),
        ("unexpected_tokens", "broken", None, 1.0),
        ("unexpected_tokens", "slow", None, 0.0),
    ],
)
def test_by_hand(metric: str, arm: str, base: str | None, wanted: float) -> None:
    assert value(metric, arm, base) == pytest.approx(wanted, rel=1e-12)


def test_scores_that_differ_between_passes_of_one_arm_are_not_exact() -> None:
    wobbly = frame(
        [row("a", 0, "r", 1, [0.5]), row("a", 1, "r", 1, [0.5], scores=[5.0000000001]), row("b", 0, "r", 1, [0.5])]
    )
    assert value("unequal_scores", "b", "a", timings=wobbly) == 1
    assert value("max_probability_difference", "b", "a", timings=wobbly) == 0


def test_a_token_count_that_is_not_there_is_not_the_expected_one() -> None:
    assert value("unexpected_tokens", "a", timings=frame([row("a", 0, "r", 1, [0.5], tokens=None)])) == 1


@pytest.mark.parametrize("metric", METRICS)
def test_nothing_to_look_at_can_not_be_told(metric: str) -> None:
    base = "slow" if METRICS[metric].compares else None
    for arm, workload in (("absent", "mix"), ("fast", "elsewhere")):
        with pytest.raises(CannotTell, match=f"{arm}|{workload}"):
            value(metric, arm, base, workload)


def test_accuracy_without_labels_can_not_be_told() -> None:
    with pytest.raises(CannotTell, match="no labelled request"):
        value("accuracy", "many")


@pytest.mark.parametrize("metric", METRICS)
def test_each_says_its_number_and_what_it_is(metric: str) -> None:
    assert METRICS[metric].value.__doc__ and any(digit in METRICS[metric].says.format(value=1.0) for digit in "01")
