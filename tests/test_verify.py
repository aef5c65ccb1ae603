"""A run verifies as it was recorded; one changed byte anywhere is found, and its file is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import fake_run
import pytest

import openjev_lab.verify
from openjev_lab.errors import LabError
from openjev_lab.evidence import read, seal, write_timings
from openjev_lab.report.render import render
from openjev_lab.verify import verify

EVIDENCE = [
    "resolved.json", "manifest.json", "workload.jsonl", "timings.jsonl", "arms.jsonl", "timings.parquet", "gates.json",
    "SHA256SUMS",
]  # fmt: skip


@pytest.fixture(scope="session")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run over fakes, with its report, sealed."""
    folder = tmp_path_factory.mktemp("reports") / "run"
    fake_run.measure(folder)
    render(folder)
    seal(folder)
    return folder


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(sealed, tmp_path / "run"))


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the seconds out that drawing the report takes."""
    monkeypatch.delitem(openjev_lab.verify.CHECKS, "report.html")


def test_a_run_verifies_wherever_it_lies(sealed: Path, copy: Path) -> None:
    assert verify(sealed) == []
    assert verify(copy.rename(copy.with_name("elsewhere"))) == []


@pytest.mark.parametrize("place", [0.02, 0.5, 0.98], ids=["start", "middle", "end"])
@pytest.mark.parametrize("name", [*EVIDENCE, "report.html", "tables/ladder.csv", "charts/ladder.svg"])
def test_one_byte(copy: Path, name: str, place: float, without_drawing: None) -> None:
    data = bytearray((copy / name).read_bytes())
    position = int(len(data) * place)
    data[position] ^= 1
    (copy / name).write_bytes(data)
    problems = verify(copy)
    assert any(name in str(problem) for problem in problems), problems


def reseal(folder: Path) -> None:
    """As somebody would who changed a file and its sum."""
    seal(folder)


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("change", "file", "told"),
    [
        (edit("timings.jsonl", '"latency_ns":', '"latency_ns":1'), "timings.parquet", "are not those of timings.jsonl"),
        (edit("timings.jsonl", '"run_id":"run"', '"run_id":"ran"'), "timings.jsonl", "line 1 is of run ran"),
        (edit("gates.json", '"verdict": "passed"', '"verdict": "missed"'), "gates.json", "does not follow from"),
        (edit("gates.json", '"limit": 0.001', '"limit": 0.002'), "gates.json", "gates.0.limit: recorded 0.002"),
        (edit("resolved.json", '"at_most": 0.001', '"at_most": 0.1'), "resolved.json", "is not the config_hash"),
        (edit("manifest.json", '"experiment": "fake"', '"experiment": "real"'), "timings.parquet", "its metadata"),
        (edit("workload.jsonl", "yes", "no"), "workload.jsonl", "is not what manifest.json says"),
        (edit("arms.jsonl", '"measured"', '"guessed"'), "arms.jsonl", "line 2 is not as it was written"),
        (lambda folder: (folder / "timings.parquet").unlink(), "timings.parquet", "was never finalized"),
        (lambda folder: (folder / "gates.json").unlink(), "gates.json", "was never judged"),
        (lambda folder: (folder / "timings.parquet").write_bytes(b"PAR1"), "timings.parquet", "can't be checked"),
    ],
)  # fmt: skip
def test_a_change_with_its_sum_mended_is_found_by_recomputing(
    copy: Path, change: Callable[[Path], None], file: str, told: str, without_drawing: None
) -> None:
    change(copy)
    reseal(copy)
    problems = [str(problem) for problem in verify(copy)]
    assert any(problem.startswith(f"{file}: ") and told in problem for problem in problems), problems


def test_rows_left_out_of_the_table_are_found(copy: Path, without_drawing: None) -> None:
    evidence = read(copy)
    write_timings(type(evidence)(copy, evidence.resolved, evidence.manifest, evidence.timings[:-1], evidence.history))
    reseal(copy)
    assert [problem.file for problem in verify(copy)] == ["timings.parquet"]


def test_a_report_that_the_evidence_does_not_give_is_found(copy: Path) -> None:
    edit("tables/ladder.csv", "raw-hf", "raw-ht")(copy)
    (copy / "charts" / "extra.svg").write_text("<svg/>")
    (copy / "charts" / "ladder.svg").unlink()
    reseal(copy)
    assert [str(problem) for problem in verify(copy)] == [
        "charts/extra.svg: is no part of the report that the evidence gives",
        "charts/ladder.svg: is missing from the report",
        "tables/ladder.csv: is not what the evidence gives",
    ]


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is no run folder"):
        verify(tmp_path)
