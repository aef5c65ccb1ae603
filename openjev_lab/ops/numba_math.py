"""float32 arithmetic for Numba CPU kernels: one value, or 8 or 16 in a vector register, with the same bits each way.

Takes a ``float32`` or ``Lanes`` (float32 values side by side, one LLVM vector); returns the same kind. LLVM turns
``exp`` of the C library into a call a value, and vectorizes a loop or not as it sees fit; here a kernel says how many
values it handles at a time, and ``exp`` is written once for all kinds: range reduction to [-ln2/2, ln2/2], then a
polynomial (Cephes ``expf`` and ``logf``, Moshier; relative error about 1e-7). What is fused is said by ``fma``; what is
not, LLVM does not fuse. Apart from ``numba_lanes`` because this is numerics and that is plumbing.
"""

from __future__ import annotations

import numpy as np

from openjev_lab.ops.numba_cpu import jit
from openjev_lab.ops.numba_lanes import fma, larger, load8, nearest, power_of_two, smaller, total, zero8

ZERO, ONE, HALF, MINUS_ONE = np.float32(0), np.float32(1), np.float32(0.5), np.float32(-1)
_LOG2_E = np.float32(1.44269504)
_MINUS_LN2_HIGH, _MINUS_LN2_LOW = np.float32(-0.693359375), np.float32(2.12194440e-4)
_LOWEST, _HIGHEST = np.float32(-87), np.float32(88)
_E0, _E1, _E2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_E3, _E4, _E5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_L0, _L1, _L2 = np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1), np.float32(1.1676998740e-1)
_L3, _L4, _L5 = np.float32(-1.2420140846e-1), np.float32(1.4249322787e-1), np.float32(-1.6668057665e-1)
_L6, _L7, _L8 = np.float32(2.0000714765e-1), np.float32(-2.4999993993e-1), np.float32(3.3333331174e-1)
_SQRT_2_MINUS_1, _LN2_HIGH, _LN2_LOW = np.float32(0.41421356), np.float32(0.693359375), np.float32(-2.12194440e-4)


@jit
def exp(x):
    """e^x; x is first brought into [-87, 88], where the result is a normal float32. NaN stays NaN."""
    x = smaller(larger(x, _LOWEST), _HIGHEST)
    whole = nearest(x * _LOG2_E)
    rest = fma(whole, _MINUS_LN2_LOW, fma(whole, _MINUS_LN2_HIGH, x))
    p = fma(fma(fma(_E0, rest, _E1), rest, _E2), rest, _E3)
    p = fma(fma(p, rest, _E4), rest, _E5)
    return (fma(p, rest * rest, rest) + ONE) * power_of_two(whole)


@jit
def log1p_of_unit(y):
    """log(1 + y) of one float32 in [0, 1]."""
    x, log_of_halved, rest = y, ZERO, ZERO
    if y > _SQRT_2_MINUS_1:  # 1 + y = 2 (1 + x)
        x, log_of_halved, rest = HALF * y - HALF, _LN2_HIGH, _LN2_LOW
    p = fma(fma(fma(fma(_L0, x, _L1), x, _L2), x, _L3), x, _L4)
    p = fma(fma(fma(fma(p, x, _L5), x, _L6), x, _L7), x, _L8)
    square = x * x
    return log_of_halved + (x + fma(p * x, square, rest - HALF * square))


@jit
def softplus(x):
    """log(1 + e^x) of one float32."""
    return max(x, ZERO) + log1p_of_unit(exp(-abs(x)))


@jit
def sigmoid(x):
    return ONE / (ONE + exp(MINUS_ONE * x))


@jit
def silu(x):
    """x * sigmoid(x), as one division."""
    return x / (ONE + exp(MINUS_ONE * x))


@jit
def sum_squares(values, start, length):
    """Sum of ``values[start : start + length]`` squared, ``length`` a multiple of 8: in eight lanes, then across."""
    lanes = zero8()
    for i in range(start, start + length, 8):
        x = load8(values, i)
        lanes = fma(x, x, lanes)
    return total(lanes)
