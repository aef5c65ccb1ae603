"""Weights: a ``Package``'s tensors on a device, merged or not, by transformers' names relative to the text model.

Takes a package, a device and a dtype; returns dicts such as ``{"layers.0.mlp.up_proj.weight": ...}``. ``tensors`` is
what the engine, the merged Hugging Face arm and ``merge`` all use, so that they run one merge and not three; the raw
arm takes ``base_tensors`` and ``lora_tensors``. Apart because a package can be looked at without its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from openjev_lab.checkpoint import synthetic
from openjev_lab.checkpoint.base import read, shapes
from openjev_lab.checkpoint.lora import merged, read_adapter
from openjev_lab.checkpoint.package import Package
from openjev_lab.errors import LabError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Progress = Callable[[str, int, int], None]
"""Called after each tensor: its name, tensors done, tensors in all."""
DTYPES = ("float32", "bfloat16")
"""What weights may be merged to; other names are refused."""


def tensors(
    package: Package, device: str = "cpu", dtype: str = "float32", progress: Progress | None = None
) -> dict[str, Tensor]:
    """Every tensor of the text model, the adapter merged in.

    ``W + (alpha / rank) B A`` is formed in float64 from the base as stored and rounded at the end to ``dtype``; where
    the base keeps A_log and the gated norm's weight in float32, they stay so whatever ``dtype`` is, as transformers
    computes with both in float32 and keeps neither. Raises ``LabError`` at the first tensor with a value that is not
    finite.
    """
    return dict(stream(package, device, dtype, progress))


def stream(package: Package, device: str, dtype: str, progress: Progress | None = None) -> Iterator[tuple[str, Tensor]]:
    """``tensors``, one by one in the order of ``base.shapes``, for whoever cannot hold them all."""
    pairs = lora_tensors(package, device) if package.lora else {}
    for name, tensor in _stored(package, device, dtype, progress):
        pair = pairs.get(name.removesuffix(".weight"))
        if pair is not None and package.lora:
            tensor = merged(tensor, pair, package.lora.scaling)
        yield name, tensor.to(kept_dtype(name, tensor.dtype, dtype))


def base_tensors(
    package: Package, device: str = "cpu", dtype: str = "float32", progress: Progress | None = None
) -> dict[str, Tensor]:
    """Every tensor of the text model without the adapter. Of a merged export, the merged ones: it has no others."""
    stored = _stored(package, device, dtype, progress)
    return {name: tensor.to(kept_dtype(name, tensor.dtype, dtype)) for name, tensor in stored}


def lora_tensors(package: Package, device: str = "cpu") -> dict[str, tuple[Tensor, Tensor]]:
    """Module -> (A (rank, in), B (out, rank)) in float32. Raises ``LabError`` for a package without an adapter."""
    if package.adapter is not None:
        return read_adapter(package.adapter, device)
    if package.seed is not None:
        return synthetic.lora_tensors(package.geometry, package.seed, device)
    raise LabError(f"{package.path} is merged and has no adapter; the raw arm needs the package that it came from")


def kept_dtype(name: str, stored: torch.dtype, dtype: str) -> torch.dtype:
    """The dtype that a tensor gets: ``dtype``, but float32 for A_log and the gated norm where they are stored so."""
    import torch

    fragile = name.endswith((".linear_attn.A_log", ".linear_attn.norm.weight"))
    return stored if fragile and stored == torch.float32 else torch_dtype(dtype)


def torch_dtype(dtype: str) -> torch.dtype:
    """``float32`` or ``bfloat16`` by name. Raises ``LabError`` for another."""
    import torch

    if dtype not in DTYPES:
        raise LabError(f"dtype {dtype!r} is unknown; one of {', '.join(DTYPES)} is right")
    return getattr(torch, dtype)


def _stored(package: Package, device: str, dtype: str, progress: Progress | None) -> Iterator[tuple[str, Tensor]]:
    """Each base tensor as stored; a synthetic one as if it were stored in ``dtype``."""
    torch_dtype(dtype)
    if package.base is not None:
        source = read(package.base.entries, device)
    else:
        assert package.seed is not None, "a package has files or a seed"
        made = synthetic.base_tensors(package.geometry, package.seed, device)
        source = ((name, tensor.to(kept_dtype(name, tensor.dtype, dtype))) for name, tensor in made)
    total = len(shapes(package.geometry))
    for done, (name, tensor) in enumerate(source, start=1):
        yield name, tensor
        if progress is not None:
            progress(name, done, total)
