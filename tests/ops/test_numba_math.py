"""float32 arithmetic of the Numba kernels: how exact, and the same bits one at a time and in lanes.

python -m pytest tests/ops/test_numba_math.py
"""

import numba
import numpy as np
import pytest

from openjev_lab.ops import numba_math
from openjev_lab.ops.families import load_family
from openjev_lab.ops.numba_lanes import larger, load8, load16, nearest, smaller, store, total

VALUES = np.concatenate([np.linspace(-86.9, 87.9, 4096), np.random.default_rng(0).normal(0, 3, 4096)]).astype("f4")
compiled = numba.njit(error_model="numpy")


@compiled
def one_at_a_time(function, x, out):
    for i in range(len(x)):
        out[i] = function(x[i])


@compiled
def in_eights(function, x, out):
    for i in range(0, len(x), 8):
        store(out, i, function(load8(x, i)))


@compiled
def in_sixteens(function, x, out):
    for i in range(0, len(x), 16):
        store(out, i, function(load16(x, i)))


def values_of(loop, function, x=VALUES):
    out = np.full_like(x, np.nan)
    loop(function, x, out)
    return out


EXACT = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x),
}


@pytest.mark.parametrize("name", EXACT)
def test_relative_error_is_that_of_float32(name: str) -> None:
    found = values_of(one_at_a_time, getattr(numba_math, name))
    wanted = EXACT[name](VALUES.astype("f8"))
    assert np.max(np.abs(found - wanted) / np.abs(np.where(wanted == 0, 1, wanted))) < 3e-7


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu"])
def test_lanes_give_the_bits_of_single_values(name: str) -> None:
    function = getattr(numba_math, name)
    alone = values_of(one_at_a_time, function)
    for loop in (in_eights, in_sixteens):
        assert np.array_equal(alone.view("i4"), values_of(loop, function).view("i4"))


def test_exp_stays_finite_at_the_ends_and_keeps_nan() -> None:
    found = values_of(one_at_a_time, numba_math.exp, np.array([-np.inf, -1e4, 1e4, np.inf, np.nan, 0], "f4"))
    assert np.all(np.isfinite(found[:4])) and found[0] < 1e-37 and found[3] > 1e38
    assert np.isnan(found[4]) and found[5] == 1


def test_lane_operations() -> None:
    @compiled
    def run(x, out):
        a, b = load8(x, 0), load8(x, 8)
        store(out, 0, smaller(a, b) + larger(a, b) * np.float32(2))
        store(out, 8, nearest(a - b) / b)
        return total(a), total(load16(x, 0))

    x = np.random.default_rng(1).normal(0, 5, 16).astype("f4")
    out = np.empty(16, "f4")
    sums = run(x, out)
    a, b = x[:8], x[8:]
    assert np.array_equal(out[:8], np.minimum(a, b) + np.maximum(a, b) * np.float32(2))
    assert np.array_equal(out[8:], np.rint(a - b) / b)
    assert np.allclose(sums, (a.sum(), x.sum()), rtol=1e-6)


def test_sum_of_squares_from_any_place() -> None:
    x = np.random.default_rng(2).normal(size=100).astype("f4")
    found = numba_math.sum_squares(x, 3, 48)
    assert found == pytest.approx(float((x[3:51].astype("f8") ** 2).sum()), rel=1e-6)
    assert found == numba_math.sum_squares(x[3:51].copy(), 0, 48), "the order of the sum depends on the place"


def code_of(variant: str) -> str:
    """The optimized LLVM code of a SiLU-mul variant's kernel."""
    kernel = load_family("silu_mul").variant(variant).module.silu_mul  # type: ignore[attr-defined]
    fresh = numba.njit(kernel.py_func, error_model="numpy")  # cached code keeps no text
    rows = (numba.float32[:, ::1], numba.float32[:, ::1], numba.intp, numba.intp)
    flat = (numba.float32[::1], numba.float32[::1], numba.intp, numba.intp, numba.intp)
    fresh.compile(rows if variant == "numba_cpu_scalar" else flat)
    (text,) = fresh.inspect_llvm().values()
    return text


def test_the_silu_variants_are_what_their_names_say() -> None:
    scalar, packed = code_of("numba_cpu_scalar"), code_of("numba_cpu_packed8")
    assert "llvm.fma.f32" in scalar and "x float>" not in scalar
    assert "llvm.fma.v8f32" in packed and "llvm.fma.f32" not in packed
