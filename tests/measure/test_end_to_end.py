"""Two real rungs of the tiny checkpoint, served by their own processes and measured over HTTP."""

import subprocess
from pathlib import Path

import polars as pl
import pytest

from openjev_lab import stats
from openjev_lab.evidence import Evidence, read, seal
from openjev_lab.evidence.manifest import ROOT
from openjev_lab.measure import gates, passes
from openjev_lab.measure.experiment import Experiment, load
from openjev_lab.verify import verify

ARMS = ("scalar", "fused-gate")
LENGTHS = (80, 107, 130, 346)


def small(folder: Path) -> Experiment:
    """The ladder's experiment with two arms, four requests of the mix and one case of jevbench."""
    (folder / "few.csv").write_text("id,tokens\n" + "".join(f"r{length},{length}\n" for length in LENGTHS))
    ladder = load(ROOT / "experiments" / "ladder-tiny.yaml", "quick").resolved()
    ladder["arms"] = [arm | {"base": None if arm["name"] == "scalar" else "scalar"} for arm in ladder["arms"]]
    ladder["arms"] = [arm for arm in ladder["arms"] if arm["name"] in ARMS]
    ladder["workloads"][0]["file"], ladder["workloads"][1]["requests"] = str(folder / "few.csv"), 2
    declared = [gate | {"arms": [name for name in gate["arms"] if name in ARMS]} for gate in ladder["gates"]]
    kept = [gate for gate in declared if gate["metric"] in ("unequal_scores", "unexpected_tokens")]
    return Experiment.model_validate(ladder | {"gates": [gate | {"arms": gate["arms"]} for gate in kept]})


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, gates.Judgement]:
    """The run and its verdict."""
    folder = tmp_path_factory.mktemp("real")
    judgement = passes.run_experiment(small(folder), folder / "run")
    return read(folder / "run"), judgement


def test_the_same_bits_over_http(measured: tuple[Evidence, gates.Judgement]) -> None:
    evidence, judgement = measured
    assert judgement.verdict == "passed", gates.table(judgement)
    assert [gate.value for gate in judgement.gates if gate.kind == "unequal_scores"] == [0.0, 0.0]
    hashes = {(row.arm, row.workload, row.request_id): row.response_sha256 for row in evidence.timings if row.measured}
    for (arm, workload, request_id), told in hashes.items():
        if arm in ARMS:
            assert told == hashes["scalar", workload, request_id]


def test_stages_lie_within_the_latency_and_the_client_costs_little(measured: tuple[Evidence, gates.Judgement]) -> None:
    evidence, _ = measured
    for row in evidence.timings:
        if row.arm in ARMS:
            stages = [row.queue_ns, row.prepare_ns, row.execute_ns, row.finish_ns]
            assert None not in stages and 0 < sum(map(int, filter(None, stages))) <= (row.latency_ns or 0)
    costs = gates.client_cost_ns(evidence)
    fastest = min(row.latency_ns or 0 for row in evidence.timings if row.arm in ARMS and row.measured)
    assert costs and min(costs) < fastest


def test_what_really_ran_is_recorded_without_this_machines_paths(measured: tuple[Evidence, gates.Judgement]) -> None:
    evidence, _ = measured
    assert evidence.arms["scalar"].describe["rung"] == "scalar"
    changed = {
        op for op, variant in evidence.arms["scalar"].describe["ops"].items()
        if evidence.arms["fused-gate"].describe["ops"][op] != variant
    }  # fmt: skip
    assert changed == {"attention"}, "neighbours differ in one op, as served"
    text = (evidence.folder / "arms.jsonl").read_text() + (evidence.folder / "manifest.json").read_text()
    assert str(ROOT) not in text


def test_the_run_verifies_and_gives_statistics(measured: tuple[Evidence, gates.Judgement]) -> None:
    evidence, _ = measured
    seal(evidence.folder)
    assert verify(evidence.folder) == []
    done = subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=evidence.folder)
    assert done.returncode == 0
    summary = stats.pass_summary(pl.read_parquet(evidence.folder / "timings.parquet"))
    mix = summary.filter((pl.col("workload") == "mix74") & (pl.col("arm") == "fused-gate"))
    assert mix["requests"].to_list() == [4, 4] and mix["errors"].sum() == 0
