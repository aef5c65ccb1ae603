"""torch's row gather, into the buffer."""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    rows = first_rows(io["ids"], io["residual"], io["delta"])

    def step(tokens: int) -> None:
        ids, residual, delta = rows(tokens)
        torch.index_select(io["weight"], 0, ids, out=delta)
        residual.zero_()

    return step
