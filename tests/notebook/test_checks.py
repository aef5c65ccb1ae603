"""A wrong kernel and a broken promise stop a notebook before it measures."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from openjev_lab import rungs
from openjev_lab.errors import LabError
from openjev_lab.measure import passes
from openjev_lab.notebook import checks, sources
from openjev_lab.notebook.by_hand import sample
from openjev_lab.notebook.parameters import Parameters
from openjev_lab.ops.families import Variant

PARAMETERS = Parameters(experiment="experiments/ladder-tiny.yaml", run_dir="by-hand", profile="none")


def test_a_swapped_kernel_is_checked_and_has_equal_bits() -> None:
    found = str(checks.kernels(rungs.get("packed-silu"), PARAMETERS.load()))
    assert "numba_cpu_packed8" in found and "numba_cpu_scalar" in found and "yes" in found


def test_rungs_without_a_new_kernel_say_so() -> None:
    assert "No kernel of ours" in str(checks.kernels(rungs.get("merged-hf"), PARAMETERS.load()))
    assert "CUDA" in str(checks.kernels(rungs.get("graph-64"), PARAMETERS.load()))


def test_a_wrong_kernel_stops_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Variant, "bind", lambda self, geometry, io, dtype: lambda tokens: io["out"].zero_())
    with pytest.raises(LabError, match="silu_mul/numba_cpu_packed8 is wrong at 1 tokens"):
        checks.kernels(rungs.get("packed-silu"), PARAMETERS.load())


def test_other_bits_stop_an_exact_rung_and_are_shown_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = sample(PARAMETERS.load(), ["scalar", "fused-gate"], 4, tmp_path)
    passes.open_run(tmp_path, experiment).close()
    offset = {"scalar": 0.0, "fused-gate": 1e-7}
    monkeypatch.setattr(checks, "load", lambda name, _: SimpleNamespace(score=lambda ids: len(ids) + offset[name]))
    exact = rungs.get("fused-gate")
    with pytest.raises(LabError, match="fused-gate promises the bits of scalar"):
        checks.scores(exact, experiment, tmp_path)
    found = str(checks.scores(dataclasses.replace(exact, exact=False), experiment, tmp_path))
    assert found.count("1e-07") == 4


def test_the_code_shown_is_what_the_rung_changes() -> None:
    shown = str(sources.changed(rungs.get("cached-rmsnorm"), "cpu"))
    assert "--- add_rmsnorm/numba_cpu_reread" in shown and "+++ add_rmsnorm/numba_cpu_cached" in shown
    assert "class RawHF" in str(sources.changed(rungs.get("raw-hf"), "cpu"))
    assert "def plan" in str(sources.changed(rungs.get("scalar"), "cpu"))
    with pytest.raises(LabError, match="defines no Nothing"):
        sources.definition(sources.PACKAGE / "hf.py", "Nothing")
