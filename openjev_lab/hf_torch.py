"""transformers' Gated DeltaNet on its own torch code, whatever faster libraries the machine has.

``forced()`` is a context: models are built and run inside it. Two generations of transformers reach for the libraries
in two ways, and both bind a name in ``modeling_qwen3_5``'s globals, so that is what is changed, and put back:

- up to 5.10: globals such as ``chunk_gated_delta_rule`` are None without flash-linear-attention, and a layer takes
  ``chunk_gated_delta_rule or torch_chunk_gated_delta_rule`` when it is built. They become None.
- from 5.17: ``torch_chunk_gated_delta_rule`` and the convolutions are decorated, and the decorator calls the library's
  function (or a layer of the ``kernels`` hub client) instead of what it decorates. They become the functions beneath.

Hub kernels also replace whole modules, but only of a model that asks for it (``use_kernels``), which ours does not.
Apart from ``hf`` because it is the one place that knows transformers' insides.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from openjev_lab.errors import LabError

OPTIONAL = (
    "FusedRMSNormGated",
    "chunk_gated_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "causal_conv1d_fn",
    "causal_conv1d_update",
)
"""Globals of the older generation, None where the library is absent."""
DECORATED = (
    "torch_chunk_gated_delta_rule",
    "torch_recurrent_gated_delta_rule",
    "causal_conv1d_fn",
    "causal_conv1d_update",
)
"""Globals of the newer generation, whose torch code may be hidden under a library's."""
LIBRARIES = ("flash-linear-attention", "causal-conv1d", "kernels")
"""Distributions that would be used, where installed, if they were not forced out."""


def modeling() -> ModuleType:
    """transformers' ``modeling_qwen3_5``."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    return modeling_qwen3_5


@contextmanager
def forced(bindings: dict[str, Any]) -> Iterator[None]:
    """Inside, a Gated DeltaNet layer that is built or run uses transformers' torch code alone (``torch_bindings``)."""
    names = vars(modeling())
    before = {name: names[name] for name in bindings}
    names.update(bindings)
    try:
        yield
    finally:
        names.update(before)


def torch_bindings(module: ModuleType) -> dict[str, Any]:
    """Global's name -> what it must be for torch's own code to run.

    Raises ``LabError`` for a transformers release that is built in neither of the two known ways.
    """
    if hasattr(module, "FusedRMSNormGated"):
        return dict.fromkeys(OPTIONAL)
    return {name: torch_function(module, name) for name in DECORATED}


def torch_function(module: ModuleType, name: str) -> FunctionType:
    """The function that ``module`` itself defines under ``name``, dug out of whatever decorates it.

    A decorator keeps what it decorates in ``__wrapped__`` or in a closure; the hub client's is a module whose forward
    keeps it in a closure.
    """
    file = module.__file__
    seen: set[int] = set()
    found: list[FunctionType] = []
    waiting: list[Any] = [getattr(module, name, None)]
    while waiting:
        item = waiting.pop()
        item = item if isinstance(item, FunctionType) else getattr(type(item), "forward", None)
        if not isinstance(item, FunctionType) or id(item) in seen:
            continue
        seen.add(id(item))
        if item.__code__.co_filename == file and item.__code__.co_name == name:
            found.append(item)
            continue
        waiting += [cell.cell_contents for cell in item.__closure__ or ()]
    if len(found) != 1:
        raise LabError(
            f"transformers {_version('transformers')} is not understood: {name} in {module.__name__} hides"
            f" {len(found)} torch functions, not one; 5.10 to 5.24 are known"
        )
    return found[0]


def describe() -> dict[str, Any]:
    """Versions of everything that computes, and of what was kept from computing."""
    present = {name: _version(name) for name in ("torch", "transformers", "peft", "safetensors", "numpy")}
    return {
        "versions": {"python": platform.python_version(), **present},
        "libraries_kept_out": {name: found for name in LIBRARIES if (found := _version(name)) is not None},
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
