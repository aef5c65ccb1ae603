"""One writer, one configuration, no row twice."""

import json
import subprocess
import sys
from pathlib import Path

import fake_run
import polars as pl
import pyarrow.parquet
import pytest
from test_rows import FAILED, row

from openjev_lab.errors import LabError
from openjev_lab.evidence import Run, read, write_timings
from openjev_lab.evidence.run import first_difference


def test_a_new_run_says_what_it_is_before_the_first_row(tmp_path: Path) -> None:
    with fake_run.open_run(tmp_path / "run") as run:
        assert run.run_id == "run" and run.manifest["config_hash"] == fake_run.experiment().config_hash
    evidence = read(tmp_path / "run")
    assert evidence.resolved == fake_run.experiment().resolved() and evidence.timings == ()
    assert evidence.manifest["inputs"]["workloads"]["mix"]["requests"] == fake_run.REQUESTS


def test_a_run_is_only_continued_when_asked(tmp_path: Path) -> None:
    fake_run.open_run(tmp_path, resume=True).close()
    with pytest.raises(LabError, match="holds a run already; --resume continues it"):
        fake_run.open_run(tmp_path)
    fake_run.open_run(tmp_path, resume=True).close()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dtype": "bfloat16"}, 'experiment.dtype: recorded "float32", now "bfloat16"'),
        ({"protocol": {"passes": 3}}, "experiment.protocol.passes: recorded 2, now 3"),
        ({"gates": []}, "experiment.gates: recorded"),
        ({"checkpoint": "synthetic:tiny?seed=2"}, "experiment.checkpoint: recorded"),
    ],
)
def test_another_configuration_does_not_continue(tmp_path: Path, changes: dict[str, object], told: str) -> None:
    changes = {"protocol": fake_run.raw()["protocol"] | changes["protocol"]} if "protocol" in changes else changes
    fake_run.open_run(tmp_path).close()
    with pytest.raises(LabError, match="can't be continued") as refused:
        fake_run.open_run(tmp_path, fake_run.experiment(**changes), resume=True)
    assert told in str(refused.value) and "\n" not in str(refused.value)
    fake_run.open_run(tmp_path, resume=True).close()  # and the lock was let go


def test_other_inputs_do_not_continue(tmp_path: Path) -> None:
    Run.open(tmp_path, fake_run.experiment(), lambda _: {"checkpoint": {"sha256": "a"}}).close()
    with pytest.raises(LabError, match='inputs.checkpoint.sha256: recorded "a", now "b"'):
        Run.open(tmp_path, fake_run.experiment(), lambda _: {"checkpoint": {"sha256": "b"}}, resume=True)


def test_a_second_writer_is_turned_away_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    with fake_run.open_run(tmp_path):
        program = f"import fake_run; fake_run.open_run({str(tmp_path)!r}, resume=True)"
        here = Path(fake_run.__file__).parent
        done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True)
        assert "another process is writing to" in done.stderr
    program = f"import fake_run, os; run = fake_run.open_run({str(tmp_path)!r}, resume=True); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", program], cwd=here).returncode == 9
    fake_run.open_run(tmp_path, resume=True).close()


def test_no_row_twice(tmp_path: Path) -> None:
    with fake_run.open_run(tmp_path) as run:
        run.append_timing(row())
        with pytest.raises(LabError, match="has a row for a already"):
            run.append_timing(row(attempt=1))
        assert run.done("scalar", "mix", 0) == {"a"} and run.done("scalar", "mix", 1) == set()
    with fake_run.open_run(tmp_path, resume=True) as run, pytest.raises(LabError, match="already"):
        run.append_timing(row())
    line = (tmp_path / "timings.jsonl").read_text()
    (tmp_path / "timings.jsonl").write_text(line + line)
    with pytest.raises(LabError, match=r"timings\.jsonl line 2 repeats a of scalar"):
        read(tmp_path)


def test_a_killed_start_is_started_over(tmp_path: Path) -> None:
    fake_run.open_run(tmp_path).close()
    (tmp_path / "resolved.json").unlink()  # it is written last
    for name in ("timings.jsonl", "arms.jsonl"):
        (tmp_path / name).unlink()
    fake_run.open_run(tmp_path).close()
    (tmp_path / "resolved.json").unlink()
    with pytest.raises(LabError, match=r"holds timings\.jsonl without resolved\.json"):
        fake_run.open_run(tmp_path)


def test_arm_rows_add_up(tmp_path: Path) -> None:
    with fake_run.open_run(tmp_path) as run:
        assert run.arm("scalar") is None and run.attempts("scalar") == 0
        run.append_arm("scalar", "running", describe={"path": str(Path(sys.prefix) / "x")})
        run.append_arm("raw-hf", "failed", reason="it broke")
        assert run.attempts("scalar") == 1
        run.append_arm("scalar", "measured")
        last = run.arm("scalar")
        assert last is not None and last.status == "measured"
    arms = read(tmp_path).arms
    assert arms["scalar"].status == "measured" and arms["raw-hf"].reason == "it broke"
    first = json.loads((tmp_path / "arms.jsonl").read_text().splitlines()[0])
    assert first["describe"] == {"path": "<python>/x"}


def test_the_table_is_typed_tells_its_run_and_opens_in_pyarrow(tmp_path: Path) -> None:
    with fake_run.open_run(tmp_path / "run") as run:
        run.append_timing(row(request_id="b", position=1, run_id="run"))
        run.append_timing(row(**FAILED, run_id="run", status=None, latency_ns=None, tokens=None))
    path = write_timings(read(tmp_path / "run"))
    once = path.read_bytes()
    assert write_timings(read(tmp_path / "run")).read_bytes() == once
    table = pl.read_parquet(path)
    assert table["request_id"].to_list() == ["a", "b"] and table["latency_ns"].to_list() == [None, 2_000_000]
    told = json.loads(pl.read_parquet_metadata(path)["openjev_lab"])
    assert told["schema_version"] == 1 and told["run_id"] == "run" and len(told["config_hash"]) == 64
    assert pyarrow.parquet.read_table(path).column("probabilities").to_pylist() == [None, [0.75]]


def test_the_first_difference_is_told_by_its_path() -> None:
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) is None
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "a.1.b: recorded 2, now 3"
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == "b: recorded null, now 2"
    assert first_difference({"a": [1]}, {"a": [1, 2]}) == "a: recorded [1], now [1, 2]"
    assert first_difference({"a": 1}, {"a": 1.0}) == "a: recorded 1, now 1.0"


def test_a_folder_that_holds_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is no run folder"):
        read(tmp_path)
