"""A gate passes only when its limit is met by rows that are all there; a run counts only when nothing is wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_run
import pytest

from openjev_lab.evidence import Evidence, read
from openjev_lab.evidence.rows import TimingRow
from openjev_lab.evidence.run import dump
from openjev_lab.measure import gates


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A whole run over fakes: two arms measured, one skipped."""
    folder = tmp_path_factory.mktemp("reports") / "run"
    fake_run.measure(folder)
    return read(folder)


def changed(
    evidence: Evidence, *, gate: dict[str, Any] | None = None, timings: Any = None, arms: Any = None
) -> Evidence:
    """The same evidence with another gate, without some rows, or with other arms."""
    resolved = evidence.resolved | ({"gates": [gate]} if gate else {})
    rows = evidence.timings if timings is None else tuple(timings)
    return Evidence(evidence.folder, resolved, evidence.manifest, rows, evidence.history + tuple(arms or ()))


def other(row: Any, **changes: Any) -> Any:
    return type(row).model_validate(row.model_dump() | changes)


def test_a_whole_run_passes(evidence: Evidence) -> None:
    found = gates.judge(evidence)
    assert found.verdict == "passed" and found.invalid == ()
    assert {name: told["verdict"] for name, told in found.arms.items()} == {
        "raw-hf": "valid", "scalar": "valid", "graph-64": "skipped"
    }  # fmt: skip
    assert [gate.kind for gate in found.about("scalar")] == ["max_probability_difference", "unequal_scores", "accuracy"]
    assert found.gates[1].base == "raw-hf", "below is the arm's own base"
    text = gates.table(found)
    assert "PASSED: 4 of 4 gates passed" in text and "CUDA graphs need a CUDA device" in text
    assert json.loads(dump(found.document()))["gates"][0]["limit"] == 0.001


@pytest.mark.parametrize(
    ("limit", "passed"), [({"at_most": 0.0}, True), ({"at_least": 0.0}, True), ({"at_least": 1e-12}, False)]
)
def test_a_limit_is_met_at_the_limit(evidence: Evidence, limit: dict[str, float], passed: bool) -> None:
    gate = {"metric": "flips", "arms": ["scalar"], "base": "raw-hf", "workload": "mix", **limit}
    found = gates.judge(changed(evidence, gate=gate))
    assert found.gates[0].passed == passed and found.verdict == ("passed" if passed else "missed")
    assert "was declared" in found.gates[0].reason and found.gates[0].value == 0.0


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ({"metric": "mean_ms", "arms": ["graph-64"], "at_most": 1e9}, "graph-64 was not measured (skipped: CUDA"),
        ({"metric": "speedup", "arms": ["graph-64"], "base": "scalar", "at_least": 0.0}, "graph-64 was not measured"),
        ({"metric": "accuracy", "arms": ["scalar"], "workload": "cases", "at_least": 0.0}, "no labelled request"),
    ],
)  # fmt: skip
def test_a_gate_that_can_not_be_evaluated_has_failed(evidence: Evidence, gate: dict[str, Any], told: str) -> None:
    found = gates.judge(changed(evidence, gate={"workload": "mix"} | gate))
    assert not found.gates[0].passed and found.gates[0].value is None and found.verdict == "missed"
    assert "can't be evaluated" in found.gates[0].reason and told in found.gates[0].reason


def test_an_arm_that_is_not_finished_makes_the_run_invalid_and_its_gates_fail(evidence: Evidence) -> None:
    running = [other(evidence.arms["scalar"], status="running")]
    failed = [other(evidence.arms["scalar"], status="failed", reason="the server ended")]
    for arms, told in ((running, "scalar: it was not measured to its end"), (failed, "scalar: the server ended")):
        found = gates.judge(changed(evidence, arms=arms))
        assert found.verdict == "invalid" and found.invalid == (told,)
        assert not any(gate.passed for gate in found.about("scalar"))
        assert all(gate.passed for gate in found.about("raw-hf"))
    absent = Evidence(evidence.folder, evidence.resolved, evidence.manifest, (), ())
    assert gates.judge(absent).verdict == "invalid"


def test_a_missing_row_makes_the_run_invalid(evidence: Evidence) -> None:
    rows = [row for row in evidence.timings if (row.arm, row.request_id, row.pass_index) != ("scalar", "r03", 1)]
    found = gates.judge(changed(evidence, timings=rows))
    assert found.invalid == (
        f"scalar: {2 * fake_run.REQUESTS - 1} of {2 * fake_run.REQUESTS} measured requests of mix are there",
    )


def test_an_error_in_a_measured_row_makes_the_run_invalid_and_one_in_an_excluded_row_does_not(
    evidence: Evidence,
) -> None:
    def broken(row: TimingRow) -> TimingRow:
        gone = dict.fromkeys(("probability", "score", "probabilities", "scores"))
        return other(row, error="HTTP 500: no", status=500, **gone)

    for excluded, verdict in ((True, "passed"), (False, "invalid")):
        rows = [
            broken(row) if (row.arm, row.request_id, row.measured) == ("scalar", "r01", not excluded) else row
            for row in evidence.timings
        ]
        found = gates.judge(changed(evidence, timings=rows))
        assert found.verdict == verdict
    assert "scalar: 2 measured requests failed: HTTP 500: no" in found.invalid


def test_arms_measured_with_different_code_are_not_compared(evidence: Evidence) -> None:
    code = evidence.manifest["code_sha256"][:8]
    history = [other(row, code_sha256="f" * 64) if row.arm == "scalar" else row for row in evidence.history]
    found = gates.judge(replace(evidence, history=tuple(history)))
    assert found.verdict == "invalid"
    assert found.invalid == (f"the code changed during the run ({code}: raw-hf; ffffffff: scalar)",)


def test_an_arm_that_was_continued_with_other_code_is_not_compared_either(evidence: Evidence) -> None:
    again = other(evidence.history[0], attempt=1, code_sha256="f" * 64)
    idle = replace(evidence, history=(again, *evidence.history))
    assert gates.judge(idle).verdict == "passed", "a server that answered nothing changes nothing"
    rows = [other(row, attempt=1) if row.arm == "raw-hf" and row.pass_index == 1 else row for row in evidence.timings]
    found = gates.judge(replace(idle, timings=tuple(rows)))
    assert found.verdict == "invalid" and "ffffffff: raw-hf" in found.invalid[0]


def test_the_document_is_the_same_each_time(evidence: Evidence, tmp_path: Path) -> None:
    assert dump(gates.judge(evidence).document()) == dump(gates.judge(read(evidence.folder)).document())


def test_a_table_tells_missed_gates_one_by_one_and_passed_ones_by_their_worst(evidence: Evidence) -> None:
    arms = {"arms": ["raw-hf", "scalar"], "workload": "mix"}
    slowest = 1 + max(gate.value or 0 for gate in judged_mean(evidence, {"at_most": 1e9} | arms))
    text = gates.table(gates.judge(changed(evidence, gate={"metric": "mean_ms", "at_most": 1e9} | arms)))
    assert text.count("mean_ms of") == 1 and "(and 1 more arms, no worse)" in text
    text = gates.table(gates.judge(changed(evidence, gate={"metric": "mean_ms", "at_least": slowest} | arms)))
    assert text.count("MISSED   mean_ms of") == 2 and "MISSED: 0 of 2 gates passed" in text


def judged_mean(evidence: Evidence, gate: dict[str, Any]) -> tuple[gates.Judged, ...]:
    return gates.judge(changed(evidence, gate={"metric": "mean_ms"} | gate)).gates


def test_the_clients_own_cost_is_in_the_run(evidence: Evidence) -> None:
    costs = gates.client_cost_ns(evidence)
    assert len(costs) == 2 * fake_run.REQUESTS and all(10_000 < cost < 1e9 for cost in costs)
