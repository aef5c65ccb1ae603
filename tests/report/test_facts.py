"""report.facts: published figures untouched and told apart, devices never mixed, and what is said to be missing."""

import json
from pathlib import Path

import polars as pl
import pytest
from synthetic_run import LADDER, MANIFEST, TOKENS, dump, resolved, timing_rows, write_run

from openjev_lab.report import facts, source


def test_published_figures_carry_their_source_and_are_theirs_alone(run_dir):
    assert "System1-Omni" in facts.published()["source"]
    frame = facts.published_ladder(run_dir)
    theirs = frame.filter(pl.col("whose") == "theirs")
    assert set(theirs["device"]) == {facts.PUBLISHED_DEVICE}
    assert theirs.filter(pl.col("arm") == "raw-hf")["mean_ms"].to_list() == [362.238, 362.18]
    assert theirs.filter(pl.col("arm") == "graph-64")["mean_ms"].to_list() == [47.05, 47.174]
    ours = frame.filter(pl.col("whose") == "ours")
    assert set(ours["arm"]) == {name for name in LADDER if name != "graph-64"}
    assert set(ours["device"]) == {"Example CPU, 2 CPUs"}


def test_every_arm_named_beside_a_published_figure_is_a_rung_of_the_ladder():
    assert {row.arm for row in facts.THEIRS} - {None} <= set(LADDER)
    json.loads(Path(facts.PUBLISHED).read_text())


@pytest.mark.parametrize(
    ("gpu", "geometry", "same"),
    [("NVIDIA H200", "27b", True), ("NVIDIA H200", "tiny", False), ("NVIDIA A100", "27b", False), (None, "27b", False)],
)
def test_only_the_same_device_and_geometry_may_share_an_axis(tmp_path, gpu, geometry, same):
    machine = {"cpu": "Example CPU", "gpus": [{"name": gpu}] if gpu else []}
    folder = write_run(tmp_path / "run", manifest=MANIFEST | {"machine": machine})
    dump(folder / "resolved.json", resolved() | {"device": "cuda:0" if gpu else "cpu"})
    records = [{"arm": "raw-hf", "status": "measured", "reason": None, "describe": {"geometry": geometry}}]
    (folder / "arms.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert facts.same_device(folder) is same


def test_the_workload_is_counted_by_request(run_dir):
    row = facts.workload(run_dir).row(0, named=True)
    assert (row["requests"], row["questions"], row["tokens_min"], row["tokens_max"]) == (74, 74, 80, 3399)
    assert row["distinct_lengths"] == len(set(TOKENS))
    assert row["tokens_unexpected"] == 0


def test_a_length_that_was_not_expected_is_counted(tmp_path):
    rows = timing_rows()
    for row in rows:
        row["expected_tokens"] += row["request_id"] == "r003"
    assert facts.workload(write_run(tmp_path / "run", rows=rows))["tokens_unexpected"].item() == 1


def test_what_was_not_measured_is_said(tmp_path, run_dir):
    assert any("graph-64 has no rows (skipped): CUDA graphs" in line for line in facts.not_measured(run_dir))
    rows = timing_rows(passes=(0,))
    for row in rows:
        row["queue_ns"] = None
    single = " ".join(facts.not_measured(write_run(tmp_path / "run", rows=rows)))
    assert "One pass only" in single and "No time by stage" in single


def test_facts_that_the_manifest_lacks_are_said_to_be_missing(tmp_path):
    folder = write_run(tmp_path / "run", manifest={})
    values = dict(facts.run_facts(folder).iter_rows())
    assert values["revision"] == values["device"] == values["command"] == facts.NOT_RECORDED
    assert facts.date(folder) == facts.NOT_RECORDED


def test_uncommitted_changes_are_said(tmp_path):
    git = {"revision": "f" * 40, "dirty": True}
    folder = write_run(tmp_path / "run", manifest=MANIFEST | {"git": git})
    assert dict(facts.run_facts(folder).iter_rows())["revision"] == "f" * 12 + " with uncommitted changes"


def test_the_clients_own_cost_is_no_arm_of_the_ladder(tmp_path):
    rows = timing_rows({"raw-hf": LADDER["raw-hf"]})
    null = [row | {"arm": source.NULL_ARM, "workload": "null", "latency_ns": 1_500_000} for row in rows[-74:]]
    folder = write_run(tmp_path / "run", rows=rows + null)
    cost = facts.client_cost(folder)
    assert cost.select("requests", "mean_ms").row(0) == (74, 1.5)
    assert source.NULL_ARM not in [arm.name for arm in source.load(folder).arms]


def test_the_geometry_is_what_the_arms_say_or_what_synthetic_weights_are_named_by(tmp_path, run_dir):
    assert facts.geometry(run_dir) == "tiny"
    folder = write_run(tmp_path / "run", rows=[], statuses={})
    assert facts.geometry(folder) == facts.NOT_RECORDED
    dump(folder / "resolved.json", resolved() | {"checkpoint": "synthetic:27b?seed=7"})
    assert facts.geometry(folder) == "27b"
