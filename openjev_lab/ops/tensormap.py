"""Descriptors for Hopper's tensor copy engine: which box of a tensor in memory a copy instruction means.

Takes a bfloat16 tensor of rows x (heads x dim); gives the 128 bytes that a kernel gets by value. Encoded once, by the
driver, over the buffer's whole capacity, so nothing in it depends on a request's length. Apart from ``launch`` because
it speaks to the driver directly: CuPy has no call for it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

from openjev_lab.errors import LabError

if TYPE_CHECKING:
    import torch

# cuda.h: CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, _INTERLEAVE_NONE, _SWIZZLE_128B, _L2_PROMOTION_L2_128B, _FLOAT_OOB_FILL_NONE
_BFLOAT16, _NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTE_128B, _ZERO_OUTSIDE = 9, 0, 3, 2, 0
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        raise LabError(f"tensor maps need NVIDIA's driver library: {problem}") from problem


def encode(
    tensor: torch.Tensor, heads_dim: tuple[int, int], box: tuple[int, int, int], offset: int = 0
) -> ctypes.Array[ctypes.c_char]:
    """The map of `tensor` seen as (rows, heads, dim) in boxes of (dim, heads, rows), 128-byte swizzle.

    Each row holds heads x dim bfloat16, from element `offset` on; rows lie a multiple of 16 bytes apart; a box's dim is
    64 elements. Reads past the tensor's rows give zeros. Raises `LabError` if the driver refuses.
    """
    heads, dim = heads_dim
    if tensor.element_size() != 2 or tensor.stride(-1) != 1:
        raise LabError(f"a tensor map needs contiguous 2-byte rows; this tensor is {tensor.dtype}, {tensor.stride()}")
    sizes = (ctypes.c_uint64 * 3)(dim, heads, tensor.shape[0])
    strides = (ctypes.c_uint64 * 2)(dim * 2, tensor.stride(0) * 2)
    steps = (ctypes.c_uint32 * 3)(1, 1, 1)
    room = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
    to_aligned = -ctypes.addressof(room) % _MAP_ALIGNMENT
    held = (ctypes.c_char * _MAP_BYTES).from_buffer(room, to_aligned)
    address = ctypes.c_void_p(tensor.data_ptr() + 2 * offset)
    shape = (sizes, strides, (ctypes.c_uint32 * 3)(*box), steps)
    how = (_NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTE_128B, _ZERO_OUTSIDE)
    status = _driver().cuTensorMapEncodeTiled(ctypes.byref(held), _BFLOAT16, ctypes.c_uint32(3), address, *shape, *how)
    if status != 0:
        raise LabError(
            f"the driver refuses a tensor map (CUDA error {status}): tensor {tuple(tensor.shape)} with strides "
            f"{tensor.stride()} as heads x dim = {heads} x {dim} in boxes {box}"
        )
    return held
