"""What a run sends and in which order, and what becomes of it when something breaks."""

from collections import Counter
from pathlib import Path

import fake_run
import pytest

from openjev_lab.errors import LabError
from openjev_lab.evidence import NULL_ARM, read
from openjev_lab.evidence.rows import FEASIBILITY, FIRST_INFERENCE, TimingRow
from openjev_lab.measure import passes

IDS = [f"r{index:02}" for index in range(fake_run.REQUESTS)]


def rows_of(folder: Path, arm: str, workload: str = "mix") -> list[TimingRow]:
    return [row for row in read(folder).timings if (row.arm, row.workload) == (arm, workload)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without incidents."""
    folder = tmp_path_factory.mktemp("reports") / "whole"
    assert fake_run.measure(folder).verdict == "passed"
    return folder


def test_every_request_of_every_pass_has_one_row_in_the_order_sent(whole: Path) -> None:
    for arm in ("raw-hf", "scalar"):
        sent = rows_of(whole, arm)
        by_pass = {index: [row.request_id for row in sent if row.pass_index == index] for index in range(-2, 2)}
        assert by_pass == {FIRST_INFERENCE: IDS[:1], FEASIBILITY: IDS, 0: IDS, 1: IDS[::-1]}
        assert [row.position for row in sent if row.pass_index == 1] == list(range(fake_run.REQUESTS))
        assert Counter(row.pass_index for row in rows_of(whole, arm, "cases")) == {FEASIBILITY: 1, 0: 1, 1: 1}
        assert all(row.measured == (row.pass_index >= 0) and row.attempt == 0 for row in sent)
    starts = [row.started_ns for row in read(whole).timings]
    assert starts == sorted(starts), "one at a time"


def test_rows_hold_what_client_server_and_workload_know(whole: Path) -> None:
    row = next(row for row in rows_of(whole, "scalar") if row.pass_index == 0 and row.request_id == "r01")
    assert row.latency_ns is not None and row.latency_ns > 0
    assert (row.queue_ns, row.prepare_ns, row.execute_ns, row.finish_ns) == (10_000, 250_000, 1_500_000, 125_000)
    assert (row.tokens, row.expected_tokens, row.label, row.status, row.error) == (133, 133, True, 200, None)
    assert row.probability == pytest.approx(0.9) and row.run_id == "whole"
    many = rows_of(whole, "scalar", "cases")[-1]
    assert many.question_count == 3 and many.probability is None and len(many.probabilities or []) == 6


def test_the_clients_own_cost_is_measured_once_a_run(whole: Path) -> None:
    rows = [row for row in read(whole).timings if row.arm == NULL_ARM]
    assert Counter((row.workload, row.pass_index) for row in rows) == {(NULL_ARM, 0): 12, (NULL_ARM, 1): 12}
    assert all(row.measured and row.tokens is None and row.execute_ns is None and row.latency_ns for row in rows)


def test_arms_end_with_what_became_of_them(whole: Path) -> None:
    arms = read(whole).arms
    assert {name: row.status for name, row in arms.items()} == {
        "raw-hf": "measured", "scalar": "measured", "graph-64": "skipped"
    }  # fmt: skip
    assert arms["scalar"].describe == {"rung": "scalar", "ops": {"head": "fake"}}
    assert "CUDA" in (arms["graph-64"].reason or "")


def test_measuring_again_starts_nothing_and_changes_nothing(whole: Path) -> None:
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    assert fake_run.measure(whole, resume=True, command=lambda *_: ["/does/not/exist"]).verdict == "passed"
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before


def test_arms_can_be_measured_one_by_one_by_separate_writers(tmp_path: Path) -> None:
    for arm in ("raw-hf", "scalar", "graph-64"):
        with fake_run.open_run(tmp_path, resume=True) as run:
            passes.run_arm(run, arm, command=fake_run.command())
        judgement = passes.finalize(tmp_path)
    assert judgement.verdict == "passed" and len(rows_of(tmp_path, NULL_ARM, NULL_ARM)) == 24


def test_an_arm_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with fake_run.open_run(tmp_path) as run, pytest.raises(LabError, match="has no arm 'fast'; it has raw-hf, scalar"):
        passes.run_arm(run, "fast")
    with pytest.raises(LabError, match="has no arm 'fast'"):
        fake_run.measure(tmp_path, arms=["fast"], resume=True)


def test_a_failed_request_is_a_row_and_the_rest_goes_on(tmp_path: Path) -> None:
    at = 1 + 13 + 5  # first inference, feasibility (12 and 1), then the fifth of the first pass
    found = fake_run.measure(tmp_path, command=fake_run.command({"scalar": {"break_at": at}}))
    bad = [row for row in read(tmp_path).timings if row.error]
    assert [(row.arm, row.pass_index, row.request_id, row.status) for row in bad] == [("scalar", 0, "r04", 500)]
    assert bad[0].error == "HTTP 500: the forward of 12 tokens failed" and bad[0].latency_ns
    assert len(rows_of(tmp_path, "scalar")) == 1 + 3 * 12
    assert found.verdict == "invalid"
    assert found.invalid == ("scalar: 1 measured requests failed: HTTP 500: the forward of 12 tokens failed",)


def test_a_server_that_dies_fails_its_arm_and_no_other(tmp_path: Path) -> None:
    dies = fake_run.command({"raw-hf": {"die_at": 1 + 13 + 5}})
    found = fake_run.measure(tmp_path, command=dies)
    arms = read(tmp_path).arms
    assert arms["raw-hf"].status == "failed" and arms["scalar"].status == "measured"
    reason = arms["raw-hf"].reason or ""
    assert "ended while it answered r04, pass 0 of mix (exit status 7)" in reason and "told to die" in reason
    kept = [row for row in rows_of(tmp_path, "raw-hf") if row.measured]
    assert [row.error is None for row in kept] == [True] * 4 + [False] and kept[-1].latency_ns is None
    assert found.verdict == "invalid" and not found.gates[0].passed

    again = fake_run.measure(tmp_path, resume=True)  # the rest is measured; what failed stays failed
    kept = [row for row in rows_of(tmp_path, "raw-hf") if row.measured]
    assert len(kept) == 24 and len({row.key for row in kept}) == 24 and {row.attempt for row in kept} == {0, 1}
    assert again.verdict == "invalid" and "1 measured requests failed" in again.invalid[0]


def test_an_arm_whose_server_does_not_start_is_a_row_and_can_be_tried_again(tmp_path: Path) -> None:
    fake_run.measure(tmp_path, command=fake_run.command({"raw-hf": {"refuse": "head.pt is missing"}}))
    failed = read(tmp_path).arms["raw-hf"]
    assert failed.status == "failed" and "openjev-lab: head.pt is missing" in (failed.reason or "")
    assert len(rows_of(tmp_path, NULL_ARM, NULL_ARM)) == 24, "the next arm measured the client's cost"
    assert fake_run.measure(tmp_path, resume=True).verdict == "passed"


def test_a_plan_says_what_will_be_done_and_what_not() -> None:
    with fake_run.mock.patch.object(passes.workload, "build", lambda _: fake_run.work()):
        text = passes.plan(fake_run.experiment())
    assert "mix: 12 requests of 82 to 633 tokens" in text and "2 measured passes, alternated" in text
    assert "graph-64         skipped: CUDA graphs need a CUDA device" in text and "4 gates" in text
