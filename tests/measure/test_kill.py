"""A run that is killed at any moment and continued keeps every row, doubles none, and ends as if nothing had been."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import fake_run

from openjev_lab.evidence import read
from openjev_lab.measure import passes

KILLS = 8


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(Path(fake_run.__file__)), str(folder), "0.004"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def lines(folder: Path) -> list[bytes]:
    """Whole lines of the journal."""
    path = folder / "timings.jsonl"
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def test_killed_again_and_again(tmp_path: Path) -> None:
    rng, folder = random.Random(1), tmp_path / "run"
    kills = 0
    while kills < KILLS:
        before = lines(folder)
        target = len(before) + rng.randrange(20)
        process = start(folder)
        while process.poll() is None and len(lines(folder)) < target:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        if process.wait() == 0:
            break  # it was done before it could be killed
        kills += 1
        assert lines(folder)[: len(before)] == before, "rows that were there stay as they were"
        if rng.random() < 0.5 and (folder / "timings.jsonl").exists():  # a kill in the middle of a write
            with (folder / "timings.jsonl").open("ab") as file:
                file.write(b'{"run_id":"run","arm":"sca')
    before = lines(folder)
    last = start(folder)
    assert last.wait() == 0, last.stderr and last.stderr.read().decode()
    assert lines(folder)[: len(before)] == before
    assert kills >= 3
    assert_whole(folder)


def assert_whole(folder: Path) -> None:
    """Every measured request once, none failed, and the verdict of an undisturbed run."""
    evidence = read(folder)
    measured = [row for row in evidence.timings if row.measured]
    assert len({row.key for row in evidence.timings}) == len(evidence.timings)
    assert not [row.error for row in evidence.timings if row.error]
    counts = Counter((row.arm, row.workload, row.pass_index) for row in measured)
    wanted = {(arm, "mix", index): fake_run.REQUESTS for arm in ("raw-hf", "scalar") for index in range(2)}
    wanted |= {(arm, "cases", index): 1 for arm in ("raw-hf", "scalar") for index in range(2)}
    assert counts == wanted | {("null-endpoint", "null-endpoint", index): fake_run.REQUESTS for index in range(2)}
    assert passes.finalize(folder).verdict == "passed"
    for arm in ("raw-hf", "scalar"):  # what a new server process needs before it is timed, it gets each time
        attempts = {row.attempt for row in measured if row.arm == arm}
        excluded = {row.attempt for row in evidence.timings if row.arm == arm and row.pass_index == -1}
        assert attempts <= excluded


def test_an_interrupt_by_hand_keeps_the_rows_and_leaves_no_error(tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    while len(lines(tmp_path / "run")) < 20:
        time.sleep(0.002)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert len(lines(tmp_path / "run")) >= 20
    assert start(tmp_path / "run").wait() == 0
    assert_whole(tmp_path / "run")
