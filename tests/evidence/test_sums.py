"""SHA256SUMS is what coreutils reads, and says which file differs, is absent or is new."""

import subprocess
from pathlib import Path

import pytest

from openjev_lab.evidence import sums


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "charts").mkdir()
    for name in ("a.json", "charts/b c.svg", ".lock", "n.partial.ipynb", "x.tmp"):
        (tmp_path / name).write_text(name)
    sums.seal(tmp_path)
    return tmp_path


def test_coreutils_accept_it(folder: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", sums.SUMS], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines() == ["a.json: OK", "charts/b c.svg: OK"]
    assert sums.check(folder) == []


def test_sealing_twice_changes_nothing(folder: Path) -> None:
    before = (folder / sums.SUMS).read_bytes()
    assert sums.seal(folder).read_bytes() == before


def test_every_kind_of_difference_is_named(folder: Path) -> None:
    (folder / "a.json").write_text("b.json")
    (folder / "charts/b c.svg").unlink()
    (folder / "new").write_text("")
    assert [(name, what.split(" ")[0]) for name, what in sums.check(folder)] == [
        ("a.json", "its"), ("charts/b c.svg", "is"), ("new", "is")
    ]  # fmt: skip


def test_a_run_that_was_never_sealed_and_a_broken_line_are_said(folder: Path) -> None:
    (folder / sums.SUMS).write_text((folder / sums.SUMS).read_text().replace("  a.json", " a.json"))
    assert (sums.SUMS, "line 1 is no line of sha256sum") in sums.check(folder)
    (folder / sums.SUMS).unlink()
    assert sums.check(folder) == [(sums.SUMS, "is missing: the run was never sealed")]


def test_replace_leaves_no_half_file(tmp_path: Path) -> None:
    sums.replace(tmp_path / "f", b"one")
    sums.replace(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two" and [path.name for path in tmp_path.iterdir()] == ["f"]
