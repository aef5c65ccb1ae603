"""What really ran in one forward: the Python functions entered, by the file they come from, and torch's own calls.

``watch(forward)`` runs a forward under the interpreter's profile hook and a dispatch mode and returns a ``Witness``;
``require`` then compares it with what an arm promises, and ``describe`` puts it on record. It changes nothing it
watches and trusts no configuration. Apart from ``hf`` because it would work for any model.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry

STRANGERS = {"fla", "causal_conv1d", "kernels", "flash_attn", "mamba_ssm", "liger_kernel", "triton", "xformers"}
"""Packages none of whose functions may be entered."""
PACKAGES = ("transformers", "peft")
"""Packages whose functions go on record."""
CALLS = ("conv1d", "scaled_dot_product_attention", "linalg_solve_triangular")
"""Of torch's built-in functions, those that go on record."""
TELLING = (
    "gated_delta_rule",
    "causal_conv1d_fn",
    "attention_forward",
    "RMSNormGated.forward",
    "DeltaNet.forward",
    "Attention.forward",
    "MLP.forward",
    "RMSNorm.forward",
    "lora/layer.py:Linear.forward",
)
"""How the names of those end that go into ``describe``."""
FILE = "transformers/models/qwen3_5/modeling_qwen3_5.py"


@dataclass(frozen=True, slots=True)
class Witness:
    """One forward's record."""

    functions: dict[str, int]
    """``FILE:QUALIFIED.NAME`` -> times entered, for the packages on record; files from the package's folder on."""
    calls: dict[str, int]
    """Torch's built-in functions -> times called from Python."""
    attention: dict[str, int]
    """Dispatched attention kernels -> times: which SDPA backend it was."""
    strangers: dict[str, int]
    """Functions of packages that must not run -> times entered."""

    def describe(self) -> dict[str, Any]:
        """For the record: the functions that compute, not the plumbing around them."""
        return {
            "functions": {name: n for name, n in sorted(self.functions.items()) if name.endswith(TELLING)},
            "torch_calls": dict(sorted(self.calls.items())),
            "attention_kernels": dict(sorted(self.attention.items())),
        }

    def require(self, geometry: Geometry, *, lora_modules: int) -> None:
        """Raise ``LabError`` unless the torch paths, SDPA and the adapter ran once a layer, and nothing strange did."""
        if self.strangers:
            raise LabError(f"a Hugging Face arm entered {sorted(self.strangers)}; it must run torch's own code alone")
        linear = geometry.layer_types.count("linear_attention")
        full = geometry.layer_types.count("full_attention")
        wanted = {
            "the torch chunked delta rule": (self.entered(f"{FILE}:torch_chunk_gated_delta_rule"), linear),
            "torch's convolution": (self.calls.get("conv1d", 0), linear),
            "transformers' gated norm": (self.entered(f"{FILE}:Qwen3_5RMSNormGated.forward"), linear),
            "scaled dot product attention": (self.calls.get("scaled_dot_product_attention", 0), full),
            "PEFT's unmerged LoRA": (self.entered("peft/tuners/lora/layer.py:Linear.forward"), lora_modules),
        }
        for what, (times, right) in wanted.items():
            if times != right:
                raise LabError(f"{what} ran {times} times in a forward; this arm promises {right}")

    def entered(self, name: str) -> int:
        """How often a function was entered, by ``FILE:QUALIFIED.NAME``."""
        return self.functions.get(name, 0)


class _AttentionKernels(TorchDispatchMode):
    """Counts the attention operators that dispatch to a backend."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.scaled_dot_product_attention.default:
            with self:  # under inference mode it arrives whole; taken apart, it calls the backend that it chose
                return func.decompose(*args, **(kwargs or {}))
        if "attention" in str(func):
            self.found[str(func)] += 1
        return func(*args, **(kwargs or {}))


def watch(forward: Callable[[], object]) -> Witness:
    """Run ``forward`` once and say what ran. On the calling thread alone, which is where a forward is issued from."""
    entered: Counter[CodeType] = Counter()
    modules: dict[CodeType, str] = {}
    called: Counter[str] = Counter()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            entered[frame.f_code] += 1
            modules.setdefault(frame.f_code, frame.f_globals.get("__name__", ""))
        elif event == "c_call":
            called[argument.__name__] += 1

    before = sys.getprofile()
    with _AttentionKernels() as kernels:
        sys.setprofile(look)
        try:
            forward()
        finally:
            sys.setprofile(before)
    functions: Counter[str] = Counter()
    strangers: Counter[str] = Counter()
    for code, times in entered.items():
        package = modules[code].split(".", 1)[0]
        if package in PACKAGES:
            functions[f"{_relative(code.co_filename, package)}:{code.co_qualname}"] += times
        elif package in STRANGERS:
            strangers[f"{modules[code]}.{code.co_qualname}"] += times
    calls = {name: called[name] for name in CALLS if called[name]}
    return Witness(dict(functions), calls, dict(kernels.found), dict(strangers))


def _relative(file: str, package: str) -> str:
    """A file from its package's folder on, so that records of two machines can be compared."""
    return file[file.rindex(f"/{package}/") + 1 :] if f"/{package}/" in file else file
