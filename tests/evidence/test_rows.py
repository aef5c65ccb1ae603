"""Rows are refused unless they mean what the schema says; the table is typed and ordered by declaration."""

import json

import polars as pl
import pytest
from pydantic import ValidationError

from openjev_lab.evidence.rows import ArmRow, TimingRow, frame, schema

ROW = {
    "run_id": "r", "arm": "scalar", "workload": "mix", "pass_index": 0, "measured": True, "position": 0,
    "request_id": "a", "question_count": 1, "tokens": 80, "expected_tokens": 80, "label": True, "started_ns": 1,
    "latency_ns": 2_000_000, "queue_ns": 1, "prepare_ns": 2, "execute_ns": 3, "finish_ns": 4, "probability": 0.75,
    "score": 1.5, "probabilities": [0.75], "scores": [1.5], "status": 200, "response_sha256": "0" * 64, "error": None,
    "attempt": 0,
}  # fmt: skip
FAILED = {"probability": None, "score": None, "probabilities": None, "scores": None, "error": "HTTP 500: no"}


def row(**changes: object) -> TimingRow:
    return TimingRow.model_validate(ROW | changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"latency_ns": 2.5}, "latency_ns"),
        ({"latency_ns": -1}, "latency_ns"),
        ({"probability": 1.5}, "probability"),
        ({"score": float("nan")}, "score"),
        ({"scores": [float("inf")]}, "scores"),
        ({"arm": None}, "arm"),
        ({"label": 1}, "label"),
        ({"response_sha256": "abc"}, "response_sha256"),
        ({"pass_index": -1}, "0 and up are measured"),
        ({"pass_index": -3, "measured": False}, "pass_index"),
        ({"status": None}, "has a status and a latency"),
        ({"latency_ns": None}, "has a status and a latency"),
        ({"error": "broke"}, "has no answer"),
        ({"guess": 1}, "guess"),
    ],
)
def test_a_row_that_means_something_else_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        row(**changes)


def test_a_missing_field_is_refused_because_null_is_written_out() -> None:
    with pytest.raises(ValidationError, match="tokens"):
        TimingRow.model_validate({key: value for key, value in ROW.items() if key != "tokens"})


def test_a_failed_request_is_a_row() -> None:
    assert row(**FAILED, status=500).error == "HTTP 500: no"
    assert row(**FAILED, status=None, latency_ns=None, tokens=None).latency_ns is None


def test_measured_requests_are_unique_over_attempts_and_excluded_ones_within() -> None:
    assert row().key == row(attempt=3, position=7).key
    excluded = {"pass_index": -1, "measured": False}
    assert row(**excluded).key != row(**excluded, attempt=1).key
    assert row().key != row(pass_index=1).key


def test_the_table_has_the_declared_types_and_an_order_of_its_own() -> None:
    rows = [row(request_id="b", position=1), row(), row(arm="merged-hf"), row(**FAILED, status=500, pass_index=1)]
    table, turned = frame(rows), frame(rows[::-1])
    assert table.equals(turned) and table.schema == schema()
    assert table.columns == list(TimingRow.model_fields)
    assert table["arm"].to_list() == ["merged-hf", "scalar", "scalar", "scalar"]
    assert table["probabilities"].to_list() == [[0.75], [0.75], [0.75], None]
    assert schema()["latency_ns"] == pl.Int64 and schema()["scores"] == pl.List(pl.Float64)
    assert frame([]).schema == schema()


def test_floats_survive_the_journal_bit_for_bit() -> None:
    value = 0.1 + 0.2
    again = TimingRow.model_validate_json(row(probability=value, score=-1e-300).model_dump_json())
    assert again.probability == value and again.score == -1e-300
    assert json.loads(row().model_dump_json())["label"] is True


@pytest.mark.parametrize("status", ["skipped", "failed"])
def test_an_arm_without_figures_has_a_reason(status: str) -> None:
    told = {"arm": "a", "attempt": 0, "at": "t", "code_sha256": "0" * 64, "describe": {}}
    with pytest.raises(ValidationError, match="have one"):
        ArmRow.model_validate({**told, "status": status, "reason": None})
    with pytest.raises(ValidationError, match="have one"):
        ArmRow.model_validate({**told, "status": "measured", "reason": "why"})
    assert ArmRow.model_validate({**told, "status": status, "reason": "why"}).reason == "why"
