"""What a rung should save, computed before it is measured: bytes, FLOPs and launches a forward, by geometry and length.

Takes a rung's name; returns rows for ``show.table``. The minimum of an op comes from its family's ``cost``; what the
lower rung's variant does on top of it is written here, a formula an op. Apart from the families, whose contract is the
minimum and knows no rungs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN, Geometry

# The tiny model as the ladder runs it on a CPU, and the 27B one as its publishers run it.
CASES = (("tiny", 4), ("27b", 2))
TOKENS = (80, 430, 3399)  # the mix's shortest, its mean, its longest
# Read plus write, from NVIDIA's data sheet of the H200: https://www.nvidia.com/en-us/data-center/h200/
H200_BYTES_PER_S = 4.8e12
LORA_LAUNCHES = 4  # A x, B (A x), times the scale, plus the base's output
LORA_RANK = 8


def rows(rung: str) -> list[dict[str, Any]]:
    """The rung's arithmetic against the rung below, a row a geometry and length; MB are 10^6 bytes."""
    if rung not in RUNGS:
        raise LabError(f"there is no arithmetic for rung {rung!r}; there is for {', '.join(RUNGS)}")
    return [
        {"geometry": name, "tokens": tokens, **row}
        for name, dtype_bytes in CASES
        for tokens in TOKENS
        for row in RUNGS[rung](KNOWN[name], tokens, dtype_bytes)
    ]


Row = Iterator[dict[str, Any]]


def unmerged(geometry: Geometry, tokens: int, dtype_bytes: int) -> Row:
    """Raw Hugging Face against merged: y = W x + scale B (A x), the right-hand term in every adapted module."""
    from openjev_lab.checkpoint.base import shapes

    known, modules = shapes(geometry), geometry.lora_modules()
    widths = [sum(known[f"{module}.weight"]) for module in modules]
    yield {
        "LoRA modules": len(modules),
        "extra launches": LORA_LAUNCHES * len(modules),
        "extra GFLOP": 2 * tokens * LORA_RANK * sum(widths) / 1e9,
        "of the projections": f"{LORA_RANK * sum(widths) / geometry.projection_params:.2%}",
    }


def packed(geometry: Geometry, tokens: int, dtype_bytes: int) -> Row:
    """Our engine against Hugging Face: projections that read the same rows become one GEMM."""
    separate = geometry.linear_layers * 5 + geometry.full_layers * 4 + geometry.layers * 3
    together = geometry.linear_layers * 2 + geometry.full_layers * 2 + geometry.layers * 2
    yield {
        "GEMMs apart": separate,
        "packed": together,
        "weights MB": geometry.projection_params * dtype_bytes / 1e6,
        "GFLOP": 2 * tokens * geometry.projection_params / 1e9,
    }


def one_op(family: str, launches: Callable[[Geometry], int], extra: Callable[[Geometry, int], int], passes: int) -> Any:
    """Rows of an op whose lower variant moves ``extra`` elements on top of the minimum in ``passes`` more launches."""

    def row(geometry: Geometry, tokens: int, dtype_bytes: int) -> Row:
        from openjev_lab.ops.families import load_family

        calls = launches(geometry)
        least = calls * load_family(family).module.cost(geometry, tokens, dtype_bytes).bytes
        removed = calls * extra(geometry, tokens) * dtype_bytes
        yield {
            "calls": calls,
            "launches removed": calls * passes,
            "least MB": least / 1e6,
            "removed MB": removed / 1e6,
            "removed": f"{removed / (least + removed):.0%}",
            "ms at 4.8 TB/s": removed / H200_BYTES_PER_S * 1e3 if geometry.name == "27b" else None,
        }

    return row


def eight_at_a_time(geometry: Geometry, tokens: int, dtype_bytes: int) -> Row:
    """Scalar SiLU against packed: the same bytes and FLOPs in an eighth of the loads, stores and iterations."""
    from openjev_lab.ops.families import load_family

    cost = load_family("silu_mul").module.cost(geometry, tokens, dtype_bytes)
    elements = geometry.layers * tokens * geometry.intermediate
    yield {
        "calls": geometry.layers,
        "MB": geometry.layers * cost.bytes / 1e6,
        "FLOP a byte": cost.flops / cost.bytes,
        "iterations, one at a time": elements,
        "eight at a time": elements // 8,
    }


def captured(geometry: Geometry, tokens: int, dtype_bytes: int) -> Row:
    """Eager against a graph: every launch of the forward becomes a node of one."""
    gemms = geometry.linear_layers * 2 + geometry.full_layers * 2 + geometry.layers * 2
    ops = 1 + 2 * geometry.layers + 3 * geometry.linear_layers + 2 * geometry.full_layers + geometry.layers + 1
    yield {"steps eager": gemms + ops, "launches from the host": 1}


RUNGS: dict[str, Callable[[Geometry, int, int], Row]] = {
    "raw-hf": unmerged,
    "merged-hf": unmerged,
    "scalar": packed,
    # The separate gate writes the attention and reads it again.
    "fused-gate": one_op("attention", lambda g: g.full_layers, lambda g, t: 2 * t * g.q_out, passes=1),
    # The second look at a row reads it from memory again.
    "cached-rmsnorm": one_op("add_rmsnorm", lambda g: 2 * g.layers, lambda g, t: t * g.hidden, passes=0),
    "packed-silu": eight_at_a_time,
    "graph-64": captured,
}


def mix_cost(geometry: Geometry, tokens: Sequence[int], dtype_bytes: int) -> list[dict[str, Any]]:
    """Least MB and GFLOP of each small op over forwards of these lengths, and of the projections, in falling FLOPs."""
    from openjev_lab.ops.families import load_family

    calls = {
        "gdn_input": geometry.linear_layers,
        "gated_delta": geometry.linear_layers,
        "gated_norm": geometry.linear_layers,
        "qk_norm_rope": geometry.full_layers,
        "attention": geometry.full_layers,
        "add_rmsnorm": 2 * geometry.layers,
        "silu_mul": geometry.layers,
    }
    found = {
        "projections": (
            len(tokens) * geometry.projection_params * dtype_bytes,
            2 * sum(tokens) * geometry.projection_params,
        )
    }
    for op, number in calls.items():
        costs = [load_family(op).module.cost(geometry, count, dtype_bytes) for count in tokens]
        found[op] = (number * sum(cost.bytes for cost in costs), number * sum(cost.flops for cost in costs))
    total = sum(flops for _, flops in found.values())
    ordered = sorted(found.items(), key=lambda entry: -entry[1][1])
    return [
        {"op": op, "MB": moved / 1e6, "GFLOP": flops / 1e9, "share of FLOPs": f"{flops / total:.1%}"}
        for op, (moved, flops) in ordered
    ]
