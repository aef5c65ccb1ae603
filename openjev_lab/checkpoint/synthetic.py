"""Weights out of a seed: ``synthetic:GEOMETRY?seed=N`` needs no file, and is the same for every arm.

Takes a spec; returns a ``Package``, and its base tensors, adapter and head one by one. A value depends on the seed, its
tensor's name and its place alone, through integer arithmetic and one float32 product: so order, device and torch
release change nothing, and two processes that never meet compare the same model. Apart because it knows no files.

Values are uniform around 0. A random network is easily one whose last token hardly depends on the text, or one that is
chaotic, so that rounding alone decides. The deviations are chosen against both, and were tried on small geometries:

- projections 1 / sqrt(inputs), so that a normalized row gives rows of deviation 1; those that write to the residual
  stream (o_proj, out_proj, down_proj) 1 / (sqrt(inputs) (layer + 1)), so that early layers decide and late ones refine;
  embedding 0.3, so that the text outweighs the last token, which is the same in every prompt;
- convolution 0.25 / sqrt(width), which keeps SiLU near its linear part: were it not, all keys would share a direction,
  and the delta rule would overwrite what it remembers in a few tokens;
- decay: A = exp(A_log) in [1, 4] and dt_bias = softplus^-1 of a log-uniform step in [1e-4, 1e-2], with a small
  in_proj_a, so that a head remembers between tens and thousands of tokens;
- zero-centred norms 0.05; those of queries and keys 0.7 above, so that attention looks at some tokens and not at all;
  the gated norm 1 + 0.05;
- LoRA: A 1 / sqrt(inputs), B 0.02 (through 1 / (layer + 1) where the weight is), alpha twice the rank: an update of a
  tenth of the weight that it changes;
- head ``HEAD_GAIN`` / sqrt(hidden): about half of the final norm's deviation of 1 is the text's, so scores spread by
  about 1 over prompts, and probabilities over the middle of (0, 1). Around which score is the seed's chance (the last
  tokens are the same in every prompt); the option ``bias`` moves it: ``synthetic:27b?seed=0&bias=1.5``.
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
    geometry, seed, bias = parse_spec(spec)
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
        head_bias=bias,
        temperature=TEMPERATURE,
        max_length=MAX_LENGTH_TOKENS,
        aliases=aliases(model_id, revision, geometry),
        lora=Lora(RANK, ALPHA, tuple(geometry.lora_modules())),
        seed=seed,
    )


def parse_spec(spec: str) -> tuple[Geometry, int, float]:
    """``synthetic:GEOMETRY?seed=N[&bias=X]`` as (geometry, seed, head's bias)."""
    match = SPEC.fullmatch(spec)
    right = f"synthetic:GEOMETRY?seed=N is right, with GEOMETRY one of {', '.join(KNOWN)} and N from 0 to {MAX_SEED}"
    if not match or match[1] not in KNOWN:
        raise LabError(f"{spec!r} names no known geometry; {right}")
    options: dict[str, str] = {}
    for option in (match[2] or "").split("&"):
        name, _, value = option.partition("=")
        if name not in ("seed", "bias") or name in options:
            raise LabError(f"{spec!r}: {option!r} is no option, or is given twice; {right}, and &bias=X may follow")
        options[name] = value
    if not re.fullmatch(r"\d{1,10}", options.get("seed", "")) or int(options["seed"]) > MAX_SEED:
        raise LabError(f"{spec!r} gives no seed, or not one whole number; {right}")
    if not re.fullmatch(r"-?\d{1,3}(\.\d{1,9})?", options.get("bias", "0")):
        raise LabError(f"{spec!r}: bias must be a plain number such as -1.5")
    return KNOWN[match[1]], int(options["seed"]), float(options.get("bias", "0"))


def base_tensors(geometry: Geometry, seed: int, device: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the text model in float32, one by one, in the order of ``base.shapes``."""
    for name, shape in shapes(geometry).items():
        yield name, _make(name)(shape, key(seed, name), device)


def lora_tensors(geometry: Geometry, seed: int, device: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Module -> (A (rank, in), B (out, rank)), float32."""
    known = shapes(geometry)
    found = {}
    for module in geometry.lora_modules():
        out_features, in_features = known[f"{module}.weight"]
        a = uniform((RANK, in_features), in_features**-0.5, key(seed, f"{module}.lora_A"), device)
        b_deviation = 0.02 * branch_scale(module)
        found[module] = a, uniform((out_features, RANK), b_deviation, key(seed, f"{module}.lora_B"), device)
    return found


def _make(name: str) -> Callable[[tuple[int, ...], int, str], Tensor]:
    """How the tensor of a name is made: the module docstring, as code."""
    tail = name.split(".", 2)[-1] if name.startswith("layers.") else name
    if tail == "linear_attn.A_log":
        return lambda shape, key, device: spread(shape, 0.0, math.log(4.0), key, device)
    if tail == "linear_attn.dt_bias":
        return _dt_bias
    if tail == "linear_attn.norm.weight":
        return lambda shape, key, device: 1.0 + uniform(shape, 0.05, key, device)
    if tail in ("self_attn.q_norm.weight", "self_attn.k_norm.weight"):
        return lambda shape, key, device: 0.7 + uniform(shape, 0.05, key, device)
    if tail.endswith("norm.weight"):
        return lambda shape, key, device: uniform(shape, 0.05, key, device)
    if tail == "embed_tokens.weight":
        return lambda shape, key, device: uniform(shape, 0.3, key, device)
    scale = {"linear_attn.in_proj_a.weight": 0.3, "linear_attn.conv1d.weight": 0.25}.get(tail, branch_scale(name))
    return lambda shape, key, device: uniform(shape, scale * math.prod(shape[1:]) ** -0.5, key, device)


def branch_scale(name: str) -> float:
    """1 / (layer + 1) for what writes to the residual stream, else 1."""
    writes = re.match(r"layers\.(\d+)\.(?:self_attn\.o_proj|linear_attn\.out_proj|mlp\.down_proj)", name)
    return 1.0 / (int(writes[1]) + 1) if writes else 1.0


def _dt_bias(shape: tuple[int, ...], key: int, device: str) -> Tensor:
    """x with softplus(x) log-uniform in [1e-4, 1e-2]: x = log(exp(step) - 1). On the CPU, whose exp all share."""
    step = spread(shape, math.log(1e-4), math.log(1e-2), key, "cpu").double().exp()
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
