"""The doctor: it looks at everything, says what is missing, and survives a part that cannot be looked at."""

import json
from pathlib import Path

import pytest

from openjev_lab import doctor


def test_pins_are_read_and_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("# why\nnumpy==0.0.1\nno-such-package==3\npytest-xdist==3.8.0\n")
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    rows = {name: (ok, detail) for name, ok, detail in doctor.package_rows()}
    assert rows["no-such-package"] == (False, "not installed (pinned 3)")
    assert rows["numpy"][0] is None and "committed runs used 0.0.1" in rows["numpy"][1]
    assert list(rows) == ["numpy", "no-such-package", "pytest-xdist"]


def test_a_broken_group_is_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken():
        raise RuntimeError("no such driver")
        yield

    monkeypatch.setattr(doctor, "GROUPS", {"python": doctor.python_rows, "gpu": broken})
    assert doctor.show(as_json=True) is False
    last = json.loads(capsys.readouterr().out)[-1]
    assert last == {"group": "gpu", "name": "gpu", "ok": False, "detail": "RuntimeError: no such driver"}


def test_every_rung_is_reported_on_both_devices_with_a_reason() -> None:
    rows = {name: (ok, detail) for name, ok, detail in doctor.rung_rows()}
    for rung in ("raw-hf", "merged-hf", "scalar", "fused-gate", "cached-rmsnorm", "packed-silu"):
        assert rows[f"{rung} on cpu"] == (True, "available")
    ok, reason = rows["graph-64 on cpu"]
    assert ok is None and "CUDA" in reason
    assert all(detail for _, detail in rows.values())


def test_this_machine_can_run_the_tests(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.show(as_json=False)
    printed = capsys.readouterr().out
    for group in ("python", "packages", "cpu", "gpu", "tools", "rungs"):
        assert f"\n{group}\n" in printed
    assert "! jupyter kernel" not in printed and "! tiny checkpoint" not in printed
