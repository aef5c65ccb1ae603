"""Attention in blocks; a block's rows meet their gate in its epilogue, while they are in the first cache."""

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_attention import attention_step
from openjev_lab.ops.numba_cpu import supports_multiples

BACKEND = "numba_cpu"
supports = supports_multiples(8, "head_dim")


def bind(geometry: Geometry, io: Io) -> Step:
    return attention_step(geometry, io, epilogue=True)
