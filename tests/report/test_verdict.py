"""report.verdict: the sentences that get quoted, one run each."""

import pytest
from synthetic_run import GATES, LADDER, flipped, timing_rows, write_run

from openjev_lab.report import facts, page, source, verdict


def judged(folder):
    return verdict.verdict(source.load(folder))


def test_green_gates_make_a_valid_run(run_dir):
    found = judged(run_dir)
    assert (found.state, found.title, found.reasons) == ("valid", "VALID, all 2 gates passed", ())


def test_a_missed_gate_is_named_with_its_reason(tmp_path):
    missed = GATES[1] | {"passed": False, "reason": "2.10 times as fast, limit 3.0"}
    found = judged(write_run(tmp_path / "run", gates=[GATES[0], missed]))
    assert (found.state, found.title) == ("missed", "VALID, 1 of 2 gates missed")
    assert found.reasons == ("Missed gate: speedup of packed-silu on mix74 (2.10 times as fast, limit 3.0)",)


def test_one_gate_missed_by_many_arms_is_one_line(tmp_path):
    missed = [GATES[1] | {"arm": arm, "passed": False, "reason": "too slow"} for arm in ("scalar", "packed-silu")]
    folder = write_run(tmp_path / "run", gates=missed)
    found = judged(folder)
    assert found.title == "VALID, 2 of 2 gates missed"
    assert found.reasons == ("Missed gate: speedup of scalar, packed-silu on mix74 (scalar: too slow)",)
    row = facts.gates_declared(folder).row(0, named=True)
    assert (row["limit"], row["verdict"]) == ("at least 3", "missed: scalar, packed-silu")


def test_what_evidence_calls_invalid_is_invalid_whatever_the_gates_say(tmp_path):
    found = judged(write_run(tmp_path / "run", invalid=["3 requests of scalar failed"]))
    assert (found.state, found.reasons) == ("invalid", ("3 requests of scalar failed",))


def test_a_failed_request_makes_a_run_invalid_by_itself(tmp_path):
    rows = timing_rows()
    rows[-1] |= {"status": 500, "error": "the forward failed"}
    found = judged(write_run(tmp_path / "run", rows=rows))
    assert (found.state, found.reasons) == ("invalid", ("1 measured requests failed: see Errors.",))


def test_an_unjudged_run_says_so(tmp_path):
    assert judged(write_run(tmp_path / "run", gates=None)).state == "open"


def headline(folder):
    run = source.load(folder)
    return verdict.headline(run, page.frames(run))


def test_the_headline_names_the_fastest_arm_its_base_and_the_interval(run_dir):
    speed, agreement, accuracy, absent = headline(run_dir)
    assert speed.startswith("packed-silu answers a request of mix74 in ")
    assert "times as fast as raw-hf (" in speed and "95 % interval" in speed
    assert agreement.startswith("Every arm decides every request as raw-hf; the largest probability difference is ")
    assert accuracy == "Every arm agrees with the label on 71 of 74 requests."
    assert absent == "Without a figure: graph-64 (reasons in the ladder)."


def test_flips_are_counted_in_the_headline(tmp_path):
    rows = timing_rows({name: LADDER[name] for name in ("raw-hf", "merged-hf")})
    rows = flipped(rows, "merged-hf", "r010")
    assert any(line.startswith("1 decisions differ from raw-hf") for line in headline(write_run(tmp_path / "r", rows)))


@pytest.mark.parametrize("rows", [[], timing_rows(passes=(-1,))], ids=["nothing", "feasibility only"])
def test_without_measured_rows_there_is_one_sentence(tmp_path, rows):
    assert headline(write_run(tmp_path / "run", rows=rows)) == ["No request was measured in this run."]
