"""Compiled code is kept where it can be written and trusted; work is cut among threads.

python -m pytest tests/ops/test_numba_cpu.py
"""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from openjev_lab.geometry import KNOWN
from openjev_lab.ops import numba_cpu

PROGRAM = """
import os, torch
from openjev_lab.geometry import KNOWN
from openjev_lab.ops import check, numba_cpu
from openjev_lab.ops.families import load_family
variant = load_family("silu_mul").variant("numba_cpu_packed8")
assert check.check(variant, KNOWN["tiny"], 9).ok
stats = variant.module.silu_mul.stats
print(numba_cpu.cache_folder(), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No variable of the caller decides; the choice is made anew, and forgotten afterwards."""
    for name in ("NUMBA_CACHE_DIR", "OPENJEV_LAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    numba_cpu.cache_folder.cache_clear()
    yield monkeypatch
    numba_cpu.cache_folder.cache_clear()


def test_the_first_folder_that_can_be_written_is_taken(variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    variables.setenv("NUMBA_CACHE_DIR", str(blocked))
    variables.setenv("OPENJEV_LAB_CACHE", str(tmp_path / "own"))
    found = numba_cpu.cache_folder()
    assert found.parent == tmp_path / "own" / "numba" and found.is_dir()


def test_without_a_home_a_private_temporary_folder_is_taken(variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    variables.setenv("HOME", str(blocked))
    variables.setattr(tempfile, "tempdir", str(tmp_path))
    found = numba_cpu.cache_folder()
    assert found.is_relative_to(tmp_path / f"openjev-lab-{os.getuid()}")
    os.chmod(tmp_path / f"openjev-lab-{os.getuid()}", 0o777)  # anybody could put code there now
    numba_cpu.cache_folder.cache_clear()
    other = numba_cpu.cache_folder()
    assert not other.is_relative_to(tmp_path / f"openjev-lab-{os.getuid()}")
    assert not other.parent.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_a_second_process_takes_compiled_code_from_the_cache(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["OPENJEV_LAB_CACHE"] = str(tmp_path)
    lines = [
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    (folder, *first), (again, *second) = (line.stdout.split() for line in lines)
    assert folder == again and Path(folder).is_relative_to(tmp_path)
    assert (first, second) == (["0", "1"], ["1", "0"])


def test_the_folder_follows_the_files_that_are_inlined_everywhere() -> None:
    names = {path.name for path in numba_cpu.INLINED}
    assert {"numba_cpu.py", "numba_math.py", "numba_lanes.py", "numba_attention.py"} <= names


@pytest.mark.parametrize(("threads", "tokens", "pieces"), [(1, 1000, 1), (3, 1000, 3), (3, 250, 2), (3, 99, 1)])
def test_rows_are_cut_once_and_wholly(threads: int, tokens: int, pieces: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    seen: list[tuple[int, int]] = []
    try:
        numba_cpu.over_rows(lambda what, first, last: seen.append((first, last)), "argument", grain=100)(tokens)
    finally:
        torch.set_num_threads(before)
    assert len(seen) == pieces
    assert sorted(row for first, last in seen for row in range(first, last)) == list(range(tokens))


def test_pieces_run_at_once_and_a_failure_is_raised() -> None:
    meeting = threading.Barrier(2, timeout=20)
    numba_cpu.run_pieces(lambda _: meeting.wait() and None, [(0,), (1,)])

    def fails(piece: int) -> None:
        if piece == 1:
            raise RuntimeError("piece 1")

    with pytest.raises(RuntimeError, match="piece 1"):
        numba_cpu.run_pieces(fails, [(0,), (1,)])


def test_supports_says_why_not() -> None:
    tiny = KNOWN["tiny"]
    assert numba_cpu.supports(tiny, "cpu", "float32") == (True, "")
    assert "on the CPU only" in numba_cpu.supports(tiny, "cuda:0", "float32")[1]
    assert "no bfloat16" in numba_cpu.supports(tiny, "cpu", "bfloat16")[1]
    assert numba_cpu.supports_multiples(64, "hidden", "head_dim")(tiny, "cpu", "float32") == (
        False,
        "head_dim is 32, not a multiple of 64",
    )
