"""A reply's text becomes columns, or an error that says what is wrong with it."""

import json
from typing import Any

import pytest

from openjev_lab.measure.answers import columns, null_columns
from openjev_lab.measure.client import Reply

STAGES = {"queue_ms": 0.5, "prepare_ms": 1.25, "execute_ms": 20.0, "finish_ms": 0.000123, "elapsed_ms": 22.0}
NOUL = {
    "model": "m",
    "answers": {"q": {"type": "noul", "noul": 0.75}},
    "usage": {"input_tokens": 80, "output_tokens": 0},
    "metadata": {"request_id": "a", "scores": [1.5], **STAGES},
}
MANY = NOUL | {
    "answers": {
        "n": {"type": "noul", "noul": 0.25},
        "c": {"type": "choice", "choice": "a", "probabilities": {"a": 0.9, "b": 0.1}, "confidence": 0.8},
        "s": {"type": "score", "score": 0.5, "probabilities": {"0": 0.5, "1": 0.5}, "legend": {}},
    },
    "metadata": {"request_id": "b", "scores": [-1.0, 3.0, 1.0, 0.0, 0.0], **STAGES},
}


def told(value: Any, status: int = 200) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value)
    return columns(Reply(7, 2_000_000, status, text, None))


def test_a_yes_or_no_answer() -> None:
    found = told(NOUL)
    assert found["error"] is None and (found["started_ns"], found["latency_ns"], found["status"]) == (7, 2_000_000, 200)
    assert (found["tokens"], found["probability"], found["score"]) == (80, 0.75, 1.5)
    assert (found["probabilities"], found["scores"]) == ([0.75], [1.5])
    stages = [found[f"{stage}_ns"] for stage in ("queue", "prepare", "execute", "finish")]
    assert stages == [500_000, 1_250_000, 20_000_000, 123]


def test_several_answers_have_lists_and_no_single_probability() -> None:
    found = told(MANY)
    assert found["probability"] is None and found["score"] is None
    assert found["probabilities"] == [0.25, 0.9, 0.1, 0.5, 0.5] and found["scores"] == [-1.0, 3.0, 1.0, 0.0, 0.0]


def test_the_hash_is_of_the_answer_and_not_of_times_or_ids() -> None:
    metadata = {"request_id": "other", "scores": [1.5], **STAGES, "execute_ms": 99.0}
    assert told(NOUL)["response_sha256"] == told(NOUL | {"metadata": metadata})["response_sha256"]
    other = NOUL | {"answers": {"q": {"type": "noul", "noul": 0.7500000000000001}}}
    assert told(NOUL)["response_sha256"] != told(other)["response_sha256"]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("", "not an answer"),
        ("[1]", "not an answer"),
        ('{"answers": NaN}', "NaN is no JSON"),
        (NOUL | {"usage": {}}, "input_tokens"),
        (NOUL | {"metadata": {"scores": [1.5]}}, "queue_ms"),
        (NOUL | {"metadata": NOUL["metadata"] | {"scores": [1.5, 2.0]}}, "1 probabilities and 2 scores"),
        (NOUL | {"answers": {"q": {"type": "noul", "noul": 1.25}}}, "outside 0 to 1"),
        (NOUL | {"metadata": NOUL["metadata"] | {"execute_ms": -1.0}}, "a stage took -1.0 ms"),
    ],
)
def test_what_is_no_answer_is_an_error_with_the_hash_of_what_came(value: Any, error: str) -> None:
    found = told(value)
    assert error in found["error"] and found["status"] == 200
    assert found["probability"] is None and found["tokens"] is None and len(found["response_sha256"]) == 64


def test_a_refusal_is_told_with_its_detail_in_one_short_line() -> None:
    assert told({"detail": "queue is\n full"}, 503)["error"] == "HTTP 503: queue is full"
    assert told("<html>", 502)["error"] == "HTTP 502: <html>"
    assert len(told({"detail": "x" * 9999}, 422)["error"]) == 300


def test_no_reply_is_an_error_without_a_hash() -> None:
    found = columns(Reply(7, None, None, None, "TimeoutError: timed out"))
    assert found["error"] == "TimeoutError: timed out" and found["response_sha256"] is None


def test_the_null_endpoint_has_a_latency_and_nothing_else() -> None:
    found = null_columns(Reply(7, 300_000, 200, "whatever", None))
    assert found["error"] is None and found["latency_ns"] == 300_000 and found["execute_ns"] is None
    assert "HTTP 404" in null_columns(Reply(7, 300_000, 404, "{}", None))["error"]
