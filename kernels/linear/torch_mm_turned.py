"""torch.mm on weights turned to (in, out) once, which spares MKL turning them at every call."""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step, first_rows

BACKEND = "torch"


def supports(geometry: Geometry, device: str, dtype: str) -> tuple[bool, str]:
    if device != "cpu":
        return False, "it keeps a second copy of the weights, which a GPU's memory has no room for"
    return True, ""


def bind(geometry: Geometry, io: Io) -> Step:
    rows = first_rows(io["x"], io["out"])
    turned = io["weight"].T.contiguous()

    def step(tokens: int) -> None:
        x, out = rows(tokens)
        torch.mm(x, turned, out=out)

    return step
