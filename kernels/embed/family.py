"""Embedding gather: the rows of the token table, as the first addend of the residual stream.

The first residual norm then adds ``delta`` to a ``residual`` of zeros, as every later one adds a projection to the
stream: one kind of norm serves all layers. 0 + x is x, so nothing is rounded.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "delta = weight[ids]; residual = 0"
INPUTS = {"ids": Field("tokens", "int64"), "weight": Field("vocab_size hidden")}
OUTPUTS = {"residual": Field("tokens hidden"), "delta": Field("tokens hidden")}
EXACT: tuple[tuple[str, ...], ...] = ()
TOLERANCE = {"float32": 0.0, "bfloat16": 0.0}
CASES = ("random",)


def make_io(make: Maker, case: str) -> Buffers:
    ids = torch.randint(make.geometry.vocab_size, (make.rows,), generator=make.generator)
    io = {name: make.new(field) for name, field in OUTPUTS.items()}
    return io | {"ids": ids.to(make.device), "weight": make.draw(INPUTS["weight"])}


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    rows = io["weight"][io["ids"][:tokens]]
    return {"residual": rows * 0, "delta": rows}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    return Cost(bytes=tokens * (8 + 3 * geometry.hidden * dtype_bytes), flops=0)
