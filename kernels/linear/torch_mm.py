"""torch.mm into the buffer: MKL or oneDNN on a CPU, cuBLAS on a GPU."""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, anywhere, first_rows

supports = anywhere
BACKEND = "torch"


def bind(geometry: Geometry, io: Io) -> Step:
    rows = first_rows(io["x"], io["out"])
    weight = io["weight"].T

    def step(tokens: int) -> None:
        x, out = rows(tokens)
        torch.mm(x, weight, out=out)

    return step
