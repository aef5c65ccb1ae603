"""Weights out of a seed: ``synthetic:GEOMETRY?seed=N`` needs no file, and is the same for every arm.

Takes a spec; returns a ``Package``, and its base tensors, adapter and head one by one. A value depends on the seed, its
tensor's name and its place alone, through integer arithmetic and one float32 product: so order, device and torch
release change nothing, and two processes that never meet compare the same model. Apart because it knows no files.

Values are uniform around 0. Their deviations, for a network that stays itself through 64 layers:

- embedding 1; projections 1 / sqrt(inputs), so that a normalized row in gives a row of deviation 1 out; those that
  write to the residual stream (o_proj, out_proj, down_proj) 1 / sqrt(inputs * layers), so that it grows by a constant;
- zero-centred norms 0.05, the gated norm 1 + that; convolution 1 / sqrt(width);
- decay: A = exp(A_log) in [1, 4], dt_bias = softplus^-1 of a log-uniform step in [1e-3, 0.1], and a small in_proj_a, so
  that a head remembers between a few and a thousand tokens, as trained ones do;
- LoRA: A 1 / sqrt(inputs), B 0.02, alpha twice the rank: an update of a tenth of the weight it changes;
- head: ``HEAD_GAIN`` / sqrt(hidden): as the final norm gives rows of deviation 1, scores have about that deviation
  over prompts, and probabilities spread over (0, 1).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from openjev_lab.checkpoint.base import shapes
from openjev_lab.checkpoint.files import need_file
from openjev_lab.checkpoint.lora import Lora
from openjev_lab.checkpoint.package import Package, aliases
from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN, Geometry

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TOKENIZER = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny" / "base"
"""The tiny checkpoint's tokenizer; its ids are valid in every known vocabulary."""
SPEC = re.compile(r"synthetic:([^?]*)(?:\?(.*))?")
RANK, ALPHA = 8, 16.0
MAX_LENGTH_TOKENS, TEMPERATURE = 4096, 1.0
HEAD_GAIN = 2.0
MAX_SEED = 2**31 - 1
BLOCK = 1 << 24
"""Elements made at a time: bounds the scratch of a large tensor to some hundred MB."""


def open_synthetic(spec: str) -> Package:
    """A ``Package`` without files. Raises ``LabError`` that says how a spec is written."""
    geometry, seed = parse_spec(spec)
    need_file(TOKENIZER / "tokenizer.json", "synthetic weights use the tiny checkpoint's tokenizer")
    model_id, revision = f"synthetic/{geometry.name}", f"seed-{seed}"
    return Package(
        path=spec,
        kind="synthetic",
        model_id=model_id,
        revision=revision,
        base_revision=revision,
        geometry=geometry,
        tokenizer_dir=TOKENIZER,
        head_weight=uniform((geometry.hidden,), HEAD_GAIN / math.sqrt(geometry.hidden), key(seed, "head"), "cpu"),
        head_bias=0.0,
        temperature=TEMPERATURE,
        max_length=MAX_LENGTH_TOKENS,
        aliases=aliases(model_id, revision, geometry),
        lora=Lora(RANK, ALPHA, tuple(geometry.lora_modules())),
        seed=seed,
    )


def parse_spec(spec: str) -> tuple[Geometry, int]:
    """``synthetic:GEOMETRY?seed=N`` as (geometry, seed)."""
    match = SPEC.fullmatch(spec)
    right = f"synthetic:GEOMETRY?seed=N is right, with GEOMETRY one of {', '.join(KNOWN)} and N from 0 to {MAX_SEED}"
    if not match or match[1] not in KNOWN:
        raise LabError(f"{spec!r} names no known geometry; {right}")
    options = [part.partition("=")[::2] for part in (match[2] or "").split("&") if part]
    strange = [name for name, _ in options if name != "seed"]
    if strange:
        raise LabError(f"{spec!r} has the unknown option {strange[0]!r}; {right}")
    if len(options) != 1 or not re.fullmatch(r"\d{1,10}", options[0][1]) or int(options[0][1]) > MAX_SEED:
        raise LabError(f"{spec!r} gives no seed, or not one whole number; {right}")
    return KNOWN[match[1]], int(options[0][1])


def base_tensors(geometry: Geometry, seed: int, device: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the text model in float32, one by one, in the order of ``base.shapes``."""
    for name, shape in shapes(geometry).items():
        yield name, _make(geometry, name)(shape, key(seed, name), device)


def lora_tensors(geometry: Geometry, seed: int, device: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Module -> (A (rank, in), B (out, rank)), float32."""
    known = shapes(geometry)
    found = {}
    for module in geometry.lora_modules():
        out_features, in_features = known[f"{module}.weight"]
        a = uniform((RANK, in_features), in_features**-0.5, key(seed, f"{module}.lora_A"), device)
        found[module] = a, uniform((out_features, RANK), 0.02, key(seed, f"{module}.lora_B"), device)
    return found


def _make(geometry: Geometry, name: str) -> Callable[[tuple[int, ...], int, str], Tensor]:
    """How the tensor of a name is made: the module docstring, as code."""
    tail = name.split(".", 2)[-1] if name.startswith("layers.") else name
    if tail == "linear_attn.A_log":
        return lambda shape, key, device: spread(shape, 0.0, math.log(4.0), key, device)
    if tail == "linear_attn.dt_bias":
        return _dt_bias
    if tail == "linear_attn.norm.weight":
        return lambda shape, key, device: 1.0 + uniform(shape, 0.05, key, device)
    if tail.endswith("norm.weight"):
        return lambda shape, key, device: uniform(shape, 0.05, key, device)
    if tail == "embed_tokens.weight":
        return lambda shape, key, device: uniform(shape, 1.0, key, device)
    if tail == "linear_attn.in_proj_a.weight":
        scale = 0.3
    elif tail in ("self_attn.o_proj.weight", "linear_attn.out_proj.weight", "mlp.down_proj.weight"):
        scale = geometry.layers**-0.5
    else:
        scale = 1.0
    return lambda shape, key, device: uniform(shape, scale * math.prod(shape[1:]) ** -0.5, key, device)


def _dt_bias(shape: tuple[int, ...], key: int, device: str) -> Tensor:
    """x with softplus(x) log-uniform in [1e-3, 0.1]: x = log(exp(step) - 1). On the CPU, whose exp all share."""
    step = spread(shape, math.log(1e-3), math.log(0.1), key, "cpu").double().exp()
    return step.expm1().log().float().to(device)


def uniform(shape: tuple[int, ...], deviation: float, key: int, device: str | torch.device) -> Tensor:
    """float32, uniform on deviation * [-sqrt(3), sqrt(3)), which has that standard deviation and mean 0."""
    edge = deviation * math.sqrt(3.0)
    return spread(shape, -edge, edge, key, device)


def spread(shape: tuple[int, ...], low: float, high: float, key: int, device: str | torch.device) -> Tensor:
    """float32, uniform on [low, high): the top 24 bits of a hash of (key, place), scaled by one product and one sum."""
    import torch

    out = torch.empty(math.prod(shape), dtype=torch.float32, device=device)
    for start in range(0, out.numel(), BLOCK):
        part = out[start : start + BLOCK]
        place = torch.arange(start, start + part.numel(), dtype=torch.int64, device=device)
        bits = _mix(place.mul_(_signed(0x9E3779B97F4A7C15)).add_(key))
        part.copy_(_shifted(bits, 40))
    return out.mul_((high - low) * 2.0**-24).add_(low).reshape(shape)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's output function (Steele, Lea, Flood, OOPSLA 2014), in wrapping 64-bit integers, in place."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x.bitwise_xor_(_shifted(x, shift)).mul_(_signed(factor))
    return x.bitwise_xor_(_shifted(x, 31))


def _shifted(x: Tensor, by: int) -> Tensor:
    """An unsigned right shift of signed integers."""
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    """A 64-bit pattern as Python's signed number, which is what torch takes."""
    return value - (1 << 64) if value >= 1 << 63 else value


def key(seed: int, name: str) -> int:
    """Where a tensor's sequence starts: 64 bits of SHA-256 over seed and name."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little", signed=True)
