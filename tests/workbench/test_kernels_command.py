"""``openjev-lab kernels``: a file dropped in is listed, checked and timed; a wrong one is never timed; exit statuses.

python -m pytest tests/workbench
"""

import json
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openjev_lab.__main__ import app, main
from openjev_lab.errors import LabError
from openjev_lab.ops.families import KERNELS
from openjev_lab.workbench import bench, checking, showing, targets

QUICK = ["--tokens", "3", "--rounds", "8"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One family, with two variants that were dropped into its folder."""
    folder = tmp_path / "silu_mul"
    folder.mkdir()
    for source, name in (("family", "family"), ("torch_eager", "torch_mine"), ("numba_cpu_scalar", "numba_cpu_mine")):
        shutil.copy(KERNELS / "silu_mul" / f"{source}.py", folder / f"{name}.py")
    return tmp_path


def kernels(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["kernels", *arguments])
    if isinstance(done.exception, LabError):
        raise done.exception
    return done.exit_code, done.output


def break_it(root: Path) -> None:
    text = (root / "silu_mul" / "torch_mine.py").read_text()
    (root / "silu_mul" / "torch_wrong.py").write_text(
        text + "\n_right = bind\ndef bind(geometry, io):\n    _right(geometry, io)\n    return lambda tokens: None\n"
    )


def test_a_dropped_in_variant_is_listed_checked_and_timed(root: Path) -> None:
    code, out = kernels("list", "--json", "--root", str(root))
    (family,) = json.loads(out)
    assert code == 0 and [(row["variant"], row["runs"]) for row in family["variants"]] == [
        ("numba_cpu_mine", True),
        ("torch_mine", True),
    ]
    code, out = kernels("check", "silu_mul", "--root", str(root))
    assert code == 0 and out.count("| right") == 2
    code, out = kernels("bench", "silu_mul/numba_cpu_mine", *QUICK, "--root", str(root))
    assert code == 0 and "torch_mine" in out and "fastest" in out and "GB/s" in out


def test_a_wrong_variant_is_refused_before_any_timing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(root)
    monkeypatch.setattr(bench, "interleaved", lambda *_: pytest.fail("something was timed"))
    code, out = kernels("bench", "silu_mul", *QUICK, "--root", str(root))
    assert code == 1 and "Nothing was timed" in out and "torch_wrong: 1 tokens, random: out:" in out
    code, out = kernels("check", "silu_mul/torch_wrong", "--root", str(root))
    assert code == 1 and "WRONG" in out


def test_what_cannot_run_is_a_row_or_if_named_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = kernels("check", "silu_mul", "--tokens", "2")
    assert code == 0 and "not here: cuda_scalar.cu is CUDA C++" in out and "equal bits: numba_cpu_scalar" in out
    monkeypatch.setattr(sys, "argv", ["openjev-lab", "kernels", "check", "silu_mul/cuda_scalar"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2 and "needs a CUDA device" in capsys.readouterr().err
    with pytest.raises(LabError, match="times on a CPU only"):
        kernels("bench", "silu_mul", "--device", "cuda")


def test_broken_promise_of_equal_bits_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.target("silu_mul")
    monkeypatch.setattr(checking.ops_check, "same_bits", lambda a, b: a is b)
    *_, bits = checking._bits(target.family, ["torch_eager", "numba_cpu_scalar"], targets.place(), [3], 0).faults
    assert "out of numba_cpu_scalar and torch_eager differ" in bits


def test_noise_is_no_difference_and_a_real_one_is_told() -> None:
    base = [100.0 + i % 5 for i in range(25)]
    near = [time * (1.02 if i % 2 else 0.99) for i, time in enumerate(base)]
    rows = {row.variant: row for row in bench.summarise({"a": base, "b": near, "c": [2 * t for t in base]}, 1, 1)}
    assert {bench.verdict(rows["a"]).split(" (")[0], bench.verdict(rows["b"]).split(" (")[0]} == {
        "fastest",
        "no difference",
    }
    assert bench.verdict(rows["c"]).startswith("slower by")
    assert bench.median_interval([1, 2, 3, 4, 5, 6, 7, 8]) == (1, 8)
    with pytest.raises(LabError, match="too few"):
        bench.median_interval([1, 2, 3])


def test_show_reports_how_it_compiled() -> None:
    out = showing.text(targets.target("silu_mul/cuda_scalar"), targets.known("27b"))
    assert "registers" in out and "spill stores B" in out and "sm_90a" in out
    assert "float32" in showing.text(targets.target("silu_mul/numba_cpu_scalar"), targets.known("tiny"))
    with pytest.raises(LabError, match="show takes one variant: silu_mul/"):
        showing.text(targets.target("silu_mul"), targets.known("tiny"))
