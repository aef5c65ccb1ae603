"""The MLP's gate: SiLU of one half of the packed row times the other half.

Rounding, as transformers has it: SiLU works in float32 and is rounded to the model dtype; so is the product.
Source: ``Qwen3_5MLP`` in transformers' modeling_qwen3_5.py; Shazeer, "GLU Variants Improve Transformer", 2020.
"""

import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Buffers, Cost, Field, Io, Maker

SUMMARY = "out = silu(gate) * up"
INPUTS = {"gate_up": Field("tokens gate_up_out")}
OUTPUTS = {"out": Field("tokens intermediate")}
EXACT = (("numba_cpu_scalar", "numba_cpu_packed8"), ("cuda_scalar", "cuda_packed8"))
TOLERANCE = {"float32": 1e-6, "bfloat16": 4e-3}
CASES = ("random", "large")


def make_io(make: Maker, case: str) -> Buffers:
    scale = 60.0 if case == "large" else 2.0  # large: exp(-gate) overflows or vanishes
    return {
        "gate_up": make.draw(INPUTS["gate_up"], scale=scale),
        "out": make.new(OUTPUTS["out"]),
    }


def reference(geometry: Geometry, io: Io, tokens: int) -> Buffers:
    dtype = io["gate_up"].dtype
    gate, up = io["gate_up"][:tokens].to(torch.float64).chunk(2, dim=-1)
    activated = torch.nn.functional.silu(gate).to(dtype).to(torch.float64)
    return {"out": (activated * up).to(dtype)}


def cost(geometry: Geometry, tokens: int, dtype_bytes: int) -> Cost:
    return Cost(bytes=3 * tokens * geometry.intermediate * dtype_bytes, flops=6 * tokens * geometry.intermediate)
