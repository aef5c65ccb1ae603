"""What the notebooks compute before anything is measured: against counts made in another way."""

import pytest

from openjev_lab import rungs
from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN
from openjev_lab.notebook import arithmetic


def row(rung: str, geometry: str, tokens: int) -> dict[str, object]:
    """The one row of a rung's arithmetic."""
    (found,) = (r for r in arithmetic.rows(rung) if (r["geometry"], r["tokens"]) == (geometry, tokens))
    return found


def test_every_rung_has_its_arithmetic_and_no_other_name_does() -> None:
    assert tuple(arithmetic.RUNGS) == rungs.names()
    with pytest.raises(LabError, match="no arithmetic for rung 'raw'"):
        arithmetic.rows("raw")


def test_steps_before_a_graph_are_those_of_the_engine_s_plan() -> None:
    arm = rungs.load_arm("scalar", "synthetic:tiny?seed=1")
    assert row("graph-64", "tiny", 80)["steps eager"] == arm.describe()["steps"]


def test_an_unmerged_27b_adapter_is_160_modules_of_rank_8() -> None:
    found = row("raw-hf", "27b", 430)
    assert (found["LoRA modules"], found["extra launches"]) == (160, 640)
    # 48 linear layers: in_proj_qkv 5120 -> 10240, out_proj 6144 -> 5120; 16 full: q 12288, k and v 1024, o from 6144
    widths = 48 * (5120 + 10240 + 6144 + 5120) + 16 * (5120 + 12288 + 2 * (5120 + 1024) + 6144 + 5120)
    assert found["extra GFLOP"] == pytest.approx(2 * 430 * 8 * widths / 1e9)


def test_a_separate_gate_writes_and_reads_the_attention_once_more() -> None:
    geometry, found = KNOWN["27b"], row("fused-gate", "27b", 3399)
    assert found["launches removed"] == 16
    assert found["removed MB"] == pytest.approx(16 * 2 * 3399 * geometry.heads * geometry.head_dim * 2 / 1e6)


def test_keeping_a_row_saves_one_read_of_the_stream_a_norm() -> None:
    found = row("cached-rmsnorm", "tiny", 430)
    assert found["calls"] == 16 and found["removed"] == "20%"
    assert found["removed MB"] == pytest.approx(16 * 430 * 128 * 4 / 1e6)


def test_the_mix_sums_to_the_whole() -> None:
    rows = arithmetic.mix_cost(KNOWN["tiny"], [80, 3399], 4)
    assert rows[0]["op"] == "projections"
    assert sum(float(r["share of FLOPs"].rstrip("%")) for r in rows) == pytest.approx(100, abs=0.5)
    assert rows[0]["GFLOP"] == pytest.approx(2 * 3479 * KNOWN["tiny"].projection_params / 1e9)
