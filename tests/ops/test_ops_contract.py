"""Shapes from axes, poisoned buffers, and io that a variant must refuse.

python -m pytest tests/ops/test_ops_contract.py
"""

import pytest
import torch

from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN
from openjev_lab.ops import contract
from openjev_lab.ops.contract import Field, Maker
from openjev_lab.ops.families import load_family

TINY = KNOWN["tiny"]


def io(rows: int = 7) -> dict[str, torch.Tensor]:
    family = load_family("add_rmsnorm")
    return family.module.make_io(Maker(TINY, rows, torch.Generator().manual_seed(0), "cpu", "float32"), "random")


def bind(buffers: dict[str, torch.Tensor]) -> contract.Step:
    return load_family("add_rmsnorm").variant("torch_eager").bind(TINY, buffers, "float32")


def test_axes_become_sizes() -> None:
    assert contract.shape_of(Field("tokens linear_v_heads linear_v_dim"), TINY, 5) == (5, 6, 16)
    assert contract.shape_of(Field("1"), TINY, 5) == (1,)
    assert contract.shape_of(Field("features hidden"), TINY, 5, {"features": 9}) == (9, 128)
    with pytest.raises(LabError, match="axis 'features'"):
        contract.shape_of(Field("features hidden"), TINY, 5)


def test_new_buffers_hold_nothing_that_passes_for_a_result() -> None:
    made = contract.new(Field("tokens hidden"), TINY, 3, device="cpu", dtype="bfloat16")
    assert made.dtype == torch.bfloat16 and made.isnan().all()
    ids = contract.new(Field("tokens", "int64"), TINY, 3, device="cpu", dtype="bfloat16")
    assert ids.tolist() == [-1, -1, -1]


def test_drawn_values_are_those_of_the_seed_whatever_the_dtype() -> None:
    drawn = [
        Maker(TINY, 4, torch.Generator().manual_seed(3), "cpu", dtype).draw(Field("tokens hidden"))
        for dtype in ("float32", "bfloat16")
    ]
    assert torch.equal(drawn[0].to(torch.bfloat16), drawn[1])


def test_good_io_binds() -> None:
    bind(io())(7)


@pytest.mark.parametrize(
    ("name", "spoilt", "words"),
    [
        ("delta", None, "io lacks 'delta'"),
        ("weight", torch.zeros(64), r"weight is \[64\]; 'hidden' of tiny is right"),
        ("delta", torch.zeros(7, 128, dtype=torch.float64), "delta is torch.float64"),
        ("out", torch.zeros(128, 7).T, "out must be contiguous"),
    ],
)
def test_io_that_is_not_what_the_family_declares_is_refused(name: str, spoilt: torch.Tensor | None, words: str) -> None:
    buffers = io()
    del buffers[name]
    with pytest.raises(LabError, match=words):
        bind(buffers if spoilt is None else buffers | {name: spoilt})


def test_free_axes_must_agree() -> None:
    linear = load_family("linear").variant("torch_mm")
    buffers = {"x": torch.zeros(5, 8), "weight": torch.zeros(3, 9), "out": torch.zeros(5, 3)}
    with pytest.raises(LabError, match="weight is"):
        linear.bind(TINY, buffers, "float32")


def test_views_of_a_length_are_made_once_and_follow_the_buffer() -> None:
    buffer = torch.zeros(10, 2)
    views = contract.first_rows(buffer)
    (view,) = views(4)
    assert views(4)[0] is view and view.shape == (4, 2)
    buffer[3] = 7
    assert view[3].tolist() == [7, 7]


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(LabError, match="float99"):
        contract.torch_dtype("float99")
