"""report.tables on made-up evidence whose truth is known: means, savings, stages, accuracy, and what is null."""

import polars as pl
import pytest
from synthetic_run import LADDER, SKIPPED, TOKENS, timing_rows, write_run

from openjev_lab.report import charts, source, tables


def test_the_ladder_has_a_row_for_every_arm_measured_or_not(run_dir):
    frame = tables.ladder(run_dir)
    assert frame["arm"].to_list() == list(LADDER)
    graph = frame.row(by_predicate=pl.col("arm") == "graph-64", named=True)
    assert graph["mean_ms"] is None and graph["times_baseline"] is None and graph["requests"] == 0
    assert graph["reason"] == SKIPPED["graph-64"]


def test_a_mean_is_the_mean_of_its_rows(run_dir):
    rows = [row for row in timing_rows() if row["arm"] == "scalar" and row["pass_index"] == 1]
    wanted_ms = sum(row["latency_ns"] for row in rows) / len(rows) / 1e6
    chosen = (pl.col("arm") == "scalar") & (pl.col("pass_index") == 1)
    found = tables.passes(run_dir).row(by_predicate=chosen, named=True)
    assert found["mean_ms"] == pytest.approx(wanted_ms, rel=1e-8)
    assert found["requests"] == len(TOKENS)
    ladder = tables.ladder(run_dir).row(by_predicate=pl.col("arm") == "scalar", named=True)
    each = tables.passes(run_dir).filter(pl.col("arm") == "scalar")["mean_ms"]
    assert ladder["mean_ms"] == pytest.approx(each.mean(), rel=1e-8)
    assert each.min() < ladder["mean_ms"] < each.max()


def test_the_feasibility_pass_is_in_no_figure(run_dir):
    assert set(tables.passes(run_dir)["pass_index"]) == {0, 1}
    assert set(tables.latency_by_request(run_dir)["passes"]) == {2}


def test_savings_name_their_base_and_hold_the_truth(run_dir):
    frame = tables.savings(run_dir)
    row = frame.row(by_predicate=(pl.col("arm") == "cached-rmsnorm") & (pl.col("against") == "below"), named=True)
    assert row["base"] == "fused-gate"
    # the generator: 0.1 ms fixed and 0.003 ms a token between the two, and noise of 2 % of each
    truth_ms = 0.1 + 0.003 * sum(TOKENS) / len(TOKENS)
    assert row["saving_ms"] == pytest.approx(truth_ms, rel=0.25)
    assert row["saving_ms_low"] < row["saving_ms"] < row["saving_ms_high"]
    assert row["saving_ms"] == pytest.approx(row["base_mean_ms"] - row["arm_mean_ms"], rel=1e-6)
    assert row["saving_percent"] == pytest.approx(100 * row["saving_ms"] / row["base_mean_ms"], rel=1e-6)
    first = frame.filter(pl.col("against") == "baseline")
    assert set(first["base"]) == {"raw-hf"} and first.height == len(LADDER) - 1


def test_a_pair_without_rows_says_which_arm_has_none(run_dir):
    row = tables.savings(run_dir).filter(pl.col("arm") == "graph-64").row(0, named=True)
    assert row["saving_ms"] is None and row["note"] == "not measured: graph-64"


def test_stages_add_up_to_the_latency(run_dir):
    frame = tables.stages(run_dir)
    sums = frame.group_by("arm").agg(pl.col("mean_ms").sum(), pl.col("share_percent").sum())
    means = tables.ladder(run_dir).select("arm", pl.col("mean_ms").alias("latency_ms"))
    joined = sums.join(means, on="arm")
    assert joined.height == 6
    for row in joined.iter_rows(named=True):
        assert row["mean_ms"] == pytest.approx(row["latency_ms"], rel=1e-6)
        assert row["share_percent"] == pytest.approx(100, rel=1e-6)


def test_parity_of_the_native_arms_is_exact_and_to_raw_hf_is_not(run_dir):
    frame = tables.parity(run_dir)
    below = dict(frame.filter(pl.col("against") == "below").select("arm", "exact").iter_rows())
    assert below == {
        "merged-hf": False, "scalar": False, "fused-gate": True, "cached-rmsnorm": True, "packed-silu": True,
    }  # fmt: skip
    first = frame.filter((pl.col("against") == "baseline") & (pl.col("arm") == "packed-silu")).row(0, named=True)
    assert 0 < first["max_difference"] < 1e-5 and first["flips"] == 0 and first["unequal_scores"] == len(TOKENS)


def test_accuracy_counts_requests_once_and_by_group(run_dir):
    frame = tables.accuracy(run_dir).filter(pl.col("arm") == "raw-hf")
    counts = {row["group"]: (row["requests"], row["correct"]) for row in frame.iter_rows(named=True)}
    # every 25th label of the generator is wrong: positions 0, 25, 50
    assert counts["all"] == (74, 71)
    assert counts["label yes"][0] + counts["label no"][0] == 74
    assert sum(counts[group][0] for group in counts if group.endswith("tokens")) == 74


def test_figures_do_not_depend_on_the_order_of_rows(tmp_path, run_dir):
    shuffled = write_run(tmp_path / "run", rows=timing_rows()[::-1])
    for table in (tables.ladder, tables.savings, tables.parity, tables.stages, tables.latency_by_request):
        assert table(shuffled).equals(table(run_dir)), table.__name__


def test_no_frame_holds_nan_or_infinity(run_dir):
    run = source.load(run_dir)
    for table in (tables.ladder, tables.savings, tables.parity, tables.stages, tables.accuracy, tables.passes):
        floats = table(run).select(pl.col(pl.Float64))
        assert floats.select(pl.all_horizontal(pl.all().is_finite() | pl.all().is_null()).all()).item(), table.__name__


def test_requests_without_a_row_are_counted_as_missing_and_said_on_the_chart(tmp_path, run_dir):
    assert tables.ladder(run_dir)["missing"].to_list() == [0] * 6 + [None]
    rows = [row for row in timing_rows() if not (row["arm"] == "scalar" and row["pass_index"] and row["position"] > 9)]
    folder = write_run(tmp_path / "run", rows, statuses=dict.fromkeys(LADDER, "measured") | {"scalar": "running"})
    missing = dict(tables.ladder(folder).select("arm", "missing").iter_rows())
    assert missing["scalar"] == 64 and missing["packed-silu"] == 0
    drawn = [row for data in charts.ladder(folder).to_dict()["datasets"].values() for row in data]
    label = next(row["words"] for row in drawn if row["arm"] == "scalar" and "words" in row)
    assert label.endswith(" · 64 missing")


def test_workloads_and_arms_come_in_the_experiments_order(tmp_path):
    rows = timing_rows() + timing_rows(workload="another", tokens=(90, 400))
    frame = tables.passes(write_run(tmp_path / "run", rows))
    assert frame["workload"].unique(maintain_order=True).to_list() == ["mix74", "another"]
    first = frame.filter(pl.col("workload") == "mix74")["arm"].unique(maintain_order=True).to_list()
    assert first == [arm for arm in LADDER if arm not in SKIPPED]
