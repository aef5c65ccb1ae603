"""Projection: one GEMM over packed weights, accumulated in float32, rounded once to the model dtype.

A case is one of the forward's GEMMs by the width of its input and output.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "out = x weight^T"
INPUTS = {"x": Field("tokens columns"), "weight": Field("features columns")}
OUTPUTS = {"out": Field("tokens features")}
EXACT: tuple[tuple[str, ...], ...] = ()
TOLERANCE = {"float32": 2e-6, "bfloat16": 4e-3}
CASES = ("gate_up", "down", "qkvzba", "gdn_out", "qkv", "attention_out")


def widths(geometry: Geometry, case: str) -> dict[str, int]:
    """Axes that the geometry does not name: columns in, features out."""
    columns, features = {
        "gate_up": (geometry.hidden, geometry.gate_up_out),
        "down": (geometry.intermediate, geometry.hidden),
        "qkvzba": (geometry.hidden, geometry.qkvzba_out),
        "gdn_out": (geometry.value_dim, geometry.hidden),
        "qkv": (geometry.hidden, geometry.qkv_out),
        "attention_out": (geometry.q_out, geometry.hidden),
    }[case]
    return {"columns": columns, "features": features}


def make_io(make: Maker, case: str) -> Buffers:
    free = widths(make.geometry, case)
    return {
        "x": make.draw(INPUTS["x"], free=free),
        "weight": make.draw(INPUTS["weight"], scale=free["columns"] ** -0.5, free=free),
        "out": make.new(OUTPUTS["out"], free=free),
    }


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    out = io["x"][:tokens].to(torch.float64) @ io["weight"].to(torch.float64).T
    return {"out": out.to(io["x"].dtype)}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    columns, features = widths(geometry, "gate_up").values()
    moved = tokens * (columns + features) + columns * features
    return Cost(bytes=moved * dtype_bytes, flops=2 * tokens * columns * features)
