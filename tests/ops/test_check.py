"""The check itself: every kind of wrong kernel is planted, and must be refused with the fault in words.

python -m pytest tests/ops/test_check.py
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN
from openjev_lab.ops import check
from openjev_lab.ops.contract import Io, Step, anywhere
from openjev_lab.ops.families import Variant, load_family

TINY = KNOWN["tiny"]
FAMILY = load_family("add_rmsnorm")
right = FAMILY.variant("torch_eager").module.bind


def planted(spoil: Callable[[Io, int], None]) -> Variant:
    """The plain variant, then ``spoil`` on its buffers."""

    def bind(geometry: object, io: Io) -> Step:
        step = right(TINY, io)

        def spoilt(tokens: int) -> None:
            step(tokens)
            spoil(io, tokens)

        return spoilt

    return Variant(FAMILY, "torch_planted", "torch", Path("planted"), SimpleNamespace(supports=anywhere, bind=bind))


def zeros(io: Io, tokens: int) -> None:
    io["out"][:tokens] = 0


def half_written(io: Io, tokens: int) -> None:
    io["out"][tokens // 2 : tokens] = float("nan")


def one_row_swapped(io: Io, tokens: int) -> None:
    io["out"][[0, 1]] = io["out"][[1, 0]]


def past_the_end(io: Io, tokens: int) -> None:
    io["out"][tokens] = 1


def input_changed(io: Io, tokens: int) -> None:
    io["weight"][0] += 1


def off_in_one_value(io: Io, tokens: int) -> None:
    io["out"][tokens - 1, 5] *= 1.01


def in_place_output_left_alone(io: Io, tokens: int) -> None:
    io["residual"][:tokens] -= io["delta"][:tokens]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (zeros, "out: error 1 is over"),
        (half_written, "values are not finite"),
        (one_row_swapped, "out: error"),
        (past_the_end, "out: rows past the length were written"),
        (input_changed, "weight: an input was changed"),
        (off_in_one_value, "out: error"),
        (in_place_output_left_alone, "residual: error"),
    ],
)
def test_a_planted_fault_is_found(spoil: Callable[[Io, int], None], words: str) -> None:
    verdict = check.check(planted(spoil), TINY, 40)
    assert not verdict.ok and any(words in fault for fault in verdict.faults), verdict.faults


def test_reading_past_the_length_is_found() -> None:
    def bind(geometry: object, io: Io) -> Step:
        step = right(TINY, io)

        def too_far(tokens: int) -> None:
            step(tokens)
            io["out"][:tokens] += 0 * io["delta"][1 : tokens + 1]

        return too_far

    variant = Variant(FAMILY, "torch_far", "torch", Path("far"), SimpleNamespace(supports=anywhere, bind=bind))
    assert "values are not finite" in check.check(variant, TINY, 40).faults[0]


def test_what_is_right_passes_and_says_how_well() -> None:
    verdict = check.check(FAMILY.variant("torch_eager"), TINY, 40, seed=9)
    assert verdict.ok and verdict.errors["residual"] == 0 and 0 < verdict.errors["out"] < verdict.tolerance


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(LabError, match="Numba has no bfloat16"):
        check.check(FAMILY.variant("numba_cpu_cached"), TINY, 4, dtype="bfloat16")
    with pytest.raises(LabError, match="has no case 'odd'; it has random, tiny"):
        check.check(FAMILY.variant("torch_eager"), TINY, 4, case="odd")


def test_errors_are_those_of_the_worst_row() -> None:
    wanted = torch.ones(100, 4)
    found = wanted.clone()
    found[7] += 0.5
    assert check.row_error(found, wanted) == pytest.approx(0.5)
    assert check.row_error(torch.zeros(3, 2), torch.zeros(3, 2)) == 0
    assert check.row_error(torch.full((3, 2), 1e-30), torch.zeros(3, 2)) == float("inf")
