"""What a notebook may be told, and the folder that follows from it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from openjev_lab.notebook import parameters
from openjev_lab.notebook.by_hand import sample
from openjev_lab.notebook.parameters import Parameters, RungParameters

GOOD = {"experiment": "experiments/ladder-tiny.yaml", "run_dir": "by-hand", "profile": "none"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"experiment": "experiments/none.yaml"}, "is no file"),
        ({"rung": "scaler"}, "there is no rung 'scaler'"),
        ({"sample_requests": 1}, "greater than or equal to 2"),
        ({"sample_requests": "6"}, "valid integer"),
        ({"runs_dir": "x"}, "Extra inputs"),
    ],
)
def test_a_wrong_parameter_is_refused_at_once(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RungParameters.model_validate(GOOD | {"rung": "scalar", "sample_requests": 6} | change)


def test_by_hand_each_start_is_fresh_and_a_run_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "SCRATCH", tmp_path)
    (tmp_path / "scalar").mkdir()
    (tmp_path / "scalar" / "timings.jsonl").write_text("old")
    by_hand = Parameters.model_validate(GOOD)
    assert by_hand.by_hand and by_hand.folder("scalar") == tmp_path / "scalar"
    assert not (tmp_path / "scalar").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "timings.jsonl").write_text("kept")
    run = Parameters.model_validate(GOOD | {"run_dir": str(tmp_path / "run")})
    assert run.folder("scalar") == tmp_path / "run"
    assert (tmp_path / "run" / "timings.jsonl").read_text() == "kept"


def test_a_sample_spreads_over_the_lengths_and_keeps_two_arms(tmp_path: Path) -> None:
    whole = Parameters.model_validate(GOOD).load()
    small = sample(whole, ["cached-rmsnorm", "packed-silu"], 6, tmp_path)
    assert [(arm.name, arm.base) for arm in small.arms] == [("cached-rmsnorm", None), ("packed-silu", "cached-rmsnorm")]
    tokens = [int(line.split(",")[1]) for line in (tmp_path / "sample.csv").read_text().splitlines()[1:]]
    assert len(tokens) == 6 and tokens == sorted(tokens)
    assert (tokens[0], tokens[-1]) == (80, 3399)
    assert not small.gates and len(small.workloads) == 1
