"""What an experiment file may say; whatever it may not is refused in one line that names the key."""

from pathlib import Path
from typing import Any

import fake_run
import pytest
import yaml

from openjev_lab.errors import LabError
from openjev_lab.evidence.manifest import ROOT
from openjev_lab.measure.experiment import Experiment, load

LADDER = ROOT / "experiments" / "ladder-tiny.yaml"


def written(path: Path, **changes: Any) -> Path:
    (path / "x.yaml").write_text(yaml.safe_dump(fake_run.raw(**changes)))
    return path / "x.yaml"


def test_the_ladder_is_filled_in_from_the_rungs() -> None:
    ladder = load(LADDER)
    names = ["raw-hf", "merged-hf", "scalar", "fused-gate", "cached-rmsnorm", "packed-silu", "graph-64"]
    assert [arm.name for arm in ladder.arms] == names
    assert [arm.base for arm in ladder.arms] == [None, *names[:-1]]
    assert [arm.kind for arm in ladder.arms] == ["hf-raw", "hf-merged"] + ["native"] * 5
    assert all(arm.hypothesis for arm in ladder.arms)
    exact = {arm.name for arm in ladder.arms if arm.exact}
    assert {"fused-gate", "cached-rmsnorm", "packed-silu"} <= exact and "scalar" not in exact
    promised = {name for gate in ladder.gates if gate.metric == "unequal_scores" for name in gate.arms}
    assert promised == exact - {"graph-64"}, "every promise of the same bits that can be tested on a CPU is a gate"


def test_resolved_is_the_whole_experiment_and_comes_back() -> None:
    ladder = load(LADDER)
    again = Experiment.model_validate(ladder.resolved())
    assert again == ladder and again.config_hash == ladder.config_hash
    assert ladder.resolved()["protocol"]["request_timeout_s"] == 60.0, "defaults are written out"


def test_a_profile_is_laid_over_key_by_key_and_is_another_configuration() -> None:
    ladder, quick = load(LADDER), load(LADDER, "quick")
    assert (quick.protocol.passes, quick.profile) == (2, "quick")
    assert quick.protocol.order == ladder.protocol.order and quick.gates == ladder.gates
    assert quick.config_hash != ladder.config_hash
    with pytest.raises(LabError, match="has no profile 'slow'; it has quick"):
        load(LADDER, "slow")


def test_an_arm_stands_on_the_nearest_rung_that_is_there(tmp_path: Path) -> None:
    found = load(written(tmp_path, arms=["scalar", "cached-rmsnorm", "packed-silu"], gates=[]))
    assert [(arm.base, arm.exact) for arm in found.arms] == [
        (None, False), ("scalar", True), ("cached-rmsnorm", True)
    ]  # fmt: skip
    twice = [{"name": "first", "rung": "scalar"}, {"name": "second", "rung": "scalar"}, "fused-gate"]
    assert load(written(tmp_path, arms=twice, gates=[])).arms[2].base == "first"
    assert not load(written(tmp_path, arms=["raw-hf", "fused-gate"], gates=[])).arms[1].exact


GATE = {"metric": "speedup", "arms": ["scalar"], "base": "raw-hf", "workload": "mix", "at_least": 1.0}
REFUSED = [
    ({"extra": 1}, "unknown key 'extra'; known are name, title"),
    ({"protocol": {"pases": 2}}, "protocol: unknown key 'pases'; known are passes"),
    ({"protocol": {"passes": 0}}, "protocol.passes: Input should be greater than or equal to 1 (got '0')"),
    ({"protocol": {"passes": "2"}}, "protocol.passes: Input should be a valid integer"),
    ({"protocol": {"concurrency": 2}}, "protocol.concurrency: Input should be less than or equal to 1"),
    ({"arms": ["raw-hf", "scaler"]}, "there is no rung 'scaler'; there are raw-hf, merged-hf"),
    ({"arms": ["raw-hf", "raw-hf"], "gates": []}, "arm 'raw-hf' is declared twice"),
    ({"arms": [{"name": "a", "rung": "scalar", "ops": {}}]}, "must be a rung's name"),
    ({"arms": "all"}, "arms must be a list of rungs"),
    ({"arms": [{"name": "null-endpoint", "rung": "scalar"}], "gates": []}, "means something else already"),
    ({"device": "tpu"}, "device: Input should be 'cpu' or 'cuda'"),
    ({"workloads": [{"name": "mix", "kind": "burst"}]}, "workloads.0: Input tag 'burst'"),
    ({"workloads": [{"name": "mix", "kind": "mix", "file": "a", "sed": 1}]}, "workloads.0: unknown key 'sed'"),
    ({"gates": [GATE | {"metric": "speed"}]}, "gates.0: no metric 'speed'; there are mean_ms, speedup"),
    ({"gates": [GATE | {"arms": ["fast"]}]}, "gate speedup: no arm 'fast'; there are raw-hf, scalar, graph-64"),
    ({"gates": [GATE | {"base": "fast"}]}, "gate speedup: no arm 'fast'"),
    ({"gates": [GATE | {"base": None}]}, "gates.0: speedup wants a base: an arm or 'below'"),
    ({"gates": [GATE | {"arms": ["raw-hf"], "base": "below"}]}, "arm 'raw-hf' has no arm below it here"),
    ({"gates": [GATE | {"metric": "accuracy"}]}, "gates.0: accuracy wants no base"),
    ({"gates": [GATE | {"workload": "mix75"}]}, "gate speedup: no workload 'mix75'; there are mix, cases"),
    ({"gates": [GATE | {"at_most": 2.0}]}, "wants exactly one of at_most and at_least"),
    ({"gates": [GATE | {"at_least": "1e-3"}]}, "gates.0.at_least: Input should be a valid number"),
    ({"gates": [GATE | {"at_least": float("nan")}]}, "gates.0.at_least: Input should be a finite number"),
    ({"name": "has spaces"}, "name: String should match pattern"),
]


@pytest.mark.parametrize(("changes", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_what_is_not_understood_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(LabError) as refused:
        load(written(tmp_path, **changes))
    assert told in str(refused.value)
    assert "x.yaml: " in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\na: 2\n", "key 'a' is given twice"),
        ("a: [1\n", "is not YAML"),
        ("- a\n", "must hold a mapping"),
        ("", "must hold a mapping"),
        ("a: {b: 1, b: 2}\n", "key 'b' is given twice"),
    ],
)
def test_what_is_not_such_a_file_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(LabError, match=told):
        load(tmp_path / "x.yaml")
    with pytest.raises(LabError, match="is missing"):
        load(tmp_path / "y.yaml")


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_of_the_project_loads_in_each_profile(path: Path) -> None:
    for profile in (None, *yaml.safe_load(path.read_text()).get("profiles", {})):
        assert load(path, profile).name == path.stem
