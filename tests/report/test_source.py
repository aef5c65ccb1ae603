"""report.source: what it reads, what may be missing, and what it refuses in one clear line."""

import dataclasses
import json

import polars as pl
import pytest
from synthetic_run import LADDER, timing_rows, write_run

from openjev_lab.errors import LabError
from openjev_lab.evidence import rows
from openjev_lab.measure import gates
from openjev_lab.report import source


def test_arms_come_in_the_experiments_order_with_what_became_of_them(run_dir):
    run = source.load(run_dir)
    assert [arm.name for arm in run.arms] == list(LADDER)
    graph = run.arm("graph-64")
    assert graph.status == "skipped" and "CUDA device" in graph.reason
    assert graph.base == "packed-silu"
    assert source.load(run) is run


def test_the_last_record_of_an_arm_counts_and_none_is_pending(tmp_path):
    folder = write_run(tmp_path / "run", statuses={"raw-hf": "failed"})
    with (folder / "arms.jsonl").open("a") as file:
        file.write('{"arm": "raw-hf", "status": "measured", "reason": null}\n')
    run = source.load(folder)
    assert run.arm("raw-hf").status == "measured"
    assert run.arm("scalar").status == "pending"


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(LabError, match="no run folder: it has no resolved.json"):
        source.load(tmp_path)


def test_broken_evidence_is_refused_by_name(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "gates.json").write_text('{"gates": [')
    with pytest.raises(LabError, match="gates.json is not JSON"):
        source.load(folder)


def test_a_missing_column_is_named(tmp_path):
    folder = write_run(tmp_path / "run")
    pl.read_parquet(folder / "timings.parquet").drop("execute_ns").write_parquet(folder / "timings.parquet")
    with pytest.raises(LabError, match="lacks the column execute_ns"):
        source.load(folder)


def test_an_unknown_arm_is_refused_with_the_names_there_are(run_dir):
    with pytest.raises(LabError, match="no arm packed.silu; it has raw-hf, merged-hf"):
        source.load(run_dir).arm("packed.silu")


def test_while_a_run_goes_on_its_journal_is_read_and_half_a_row_is_not(tmp_path, run_dir):
    folder = write_run(tmp_path / "run")
    whole = source.load(folder).timings
    lines = "".join(json.dumps(row) + "\n" for row in timing_rows())
    (folder / "timings.jsonl").write_text(lines + '{"run_id": "synth')
    assert source.load(folder).timings.equals(whole), "the parquet file has as many rows: it is the record"
    (folder / "timings.parquet").unlink()
    assert source.load(folder).timings.equals(whole)
    (folder / "timings.jsonl").write_text("")
    assert source.load(folder).timings.is_empty()


def test_the_columns_are_those_that_evidence_declares():
    declared = rows.schema()
    assert {name: declared[name] for name in source.TIMINGS} == source.TIMINGS
    assert source.NULL_ARM == rows.NULL_ARM


def test_the_synthetic_rows_of_these_tests_are_rows_that_evidence_would_write():
    for row in timing_rows()[::50]:
        rows.TimingRow.model_validate(row)


def test_the_synthetic_gates_are_gates_as_they_are_judged(run_dir):
    written = {field.name for field in dataclasses.fields(gates.Judged)}
    assert written == {field.name for field in dataclasses.fields(source.Gate)}
    assert all(set(gate) == written for gate in json.loads((run_dir / "gates.json").read_text())["gates"])
