"""The same requests every time, of the lengths that were asked for, and what they are known by."""

import collections
import csv
import json
from pathlib import Path

import pytest

from openjev_lab.contract import compile_request
from openjev_lab.errors import LabError
from openjev_lab.evidence.manifest import ROOT
from openjev_lab.measure import workload
from openjev_lab.measure.experiment import Experiment, load, project_path
from openjev_lab.tokens import Prompter

MIX = ROOT / "experiments" / "workloads" / "mix74.csv"


@pytest.fixture(scope="module")
def ladder() -> Experiment:
    return load(ROOT / "experiments" / "ladder-tiny.yaml")


@pytest.fixture(scope="module")
def work(ladder: Experiment) -> workload.Work:
    return workload.build(ladder)


def test_the_published_mix_is_74_requests_of_57_lengths() -> None:
    with MIX.open(newline="") as file:
        rows = list(csv.DictReader(file))
    tokens = [int(row["tokens"]) for row in rows]
    assert (len(rows), len({row["id"] for row in rows}), len(set(tokens))) == (74, 74, 57)
    assert (min(tokens), max(tokens)) == (80, 3399)


def test_each_request_of_the_mix_has_exactly_its_tokens_and_a_label(ladder: Experiment, work: workload.Work) -> None:
    prompter = Prompter.load(project_path("checkpoints/tiny/base"))
    with MIX.open(newline="") as file:
        wanted = [(row["id"], int(row["tokens"])) for row in csv.DictReader(file)]
    items = work.items["mix74"]
    assert [(item.request_id, item.expected_tokens) for item in items] == wanted
    for item in items:
        (question,) = compile_request(json.loads(item.body))
        assert (question.kind, len(prompter.encode(question.prompt(0)))) == ("noul", item.expected_tokens)
    labels = collections.Counter(item.label for item in items)
    assert set(labels) == {True, False} and min(labels.values()) >= 20, "always saying the same is not accurate"
    assert len({item.body for item in items}) == 74


def test_jevbench_cases_are_real_of_every_kind_and_fit(work: workload.Work) -> None:
    items = work.items["jevbench"]
    kinds = [question.kind for item in items for question in compile_request(item.request)]
    assert len(items) == 7 and set(kinds) == {"noul", "choice", "score"}
    assert items[0].request_id == "support-001" and items[0].question_count == 7
    assert [item.question_count for item in items[1:]] == [1] * 6
    assert len({item.request_id.split("-")[0] for item in items}) == 7, "a domain each"
    assert all(item.label is None for item in items)


def test_building_again_gives_the_same_bytes(ladder: Experiment, work: workload.Work) -> None:
    assert workload.build(ladder).dump() == work.dump()


def test_a_request_does_not_depend_on_its_neighbours(ladder: Experiment, work: workload.Work, tmp_path: Path) -> None:
    lines = MIX.read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join([lines[0], lines[9], lines[3]]) + "\n")
    few = ladder.workloads[0].model_copy(update={"file": str(tmp_path / "few.csv")})
    again = workload.build(ladder.model_copy(update={"workloads": (few,)})).items["mix74"]
    assert again == (work.items["mix74"][8], work.items["mix74"][2])
    seeded = few.model_copy(update={"seed": 75})
    assert workload.build(ladder.model_copy(update={"workloads": (seeded,)})).items["mix74"][0].body != again[0].body


def test_what_a_run_keeps_reads_back_and_is_known_by_its_hash(work: workload.Work, tmp_path: Path) -> None:
    (tmp_path / "workload.jsonl").write_bytes(work.dump())
    again = workload.read(tmp_path / "workload.jsonl")
    assert again == work
    assert again.inputs("synthetic:tiny")["workloads"] == work.inputs("synthetic:tiny")["workloads"]
    (tmp_path / "workload.jsonl").write_bytes(work.dump().replace(b'"label": true', b'"label": false', 1))
    other = workload.read(tmp_path / "workload.jsonl").inputs("synthetic:tiny")["workloads"]
    assert other["mix74"]["sha256"] != work.inputs("synthetic:tiny")["workloads"]["mix74"]["sha256"]
    (tmp_path / "workload.jsonl").write_bytes(work.dump()[:-9])
    with pytest.raises(LabError, match=r"workload\.jsonl line 81 is not as it was written"):
        workload.read(tmp_path / "workload.jsonl")


def test_a_checkpoint_is_known_by_every_file_that_answers_depend_on(tiny_package: Path, tmp_path: Path) -> None:
    files = workload.checkpoint_files(str(tiny_package))
    assert {"base/model.safetensors", "base/tokenizer.json", "checkpoint/head.pt"} <= set(files)
    assert workload.checkpoint_files("synthetic:27b?seed=1") == {}
    merged = tmp_path / "merged"
    merged.mkdir()
    (merged / "open_jev_export.json").write_text("{}")
    (merged / ".cache").write_text("")
    assert list(workload.checkpoint_files(str(merged))) == ["open_jev_export.json"]


def test_a_file_that_is_not_there_is_said(ladder: Experiment) -> None:
    lost = ladder.workloads[0].model_copy(update={"file": "experiments/workloads/none.csv"})
    with pytest.raises(LabError, match=r"workload mix74: experiments/workloads/none\.csv is missing"):
        workload.build(ladder.model_copy(update={"workloads": (lost,)}))
