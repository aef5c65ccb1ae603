"""A ``.cu`` variant as a step: built, loaded, bound to buffers, launched with little host time.

Takes a source file (its directives are read by ``directives``); gives ``supports`` and ``bind``, as every variant has
them. All that can be known beforehand is settled at bind: functions loaded, arguments packed into memory that the
driver reads, scratch allocated. A launch then is one call into CuPy's driver binding, on torch's current stream: no
conversion, allocation or synchronization, so a step can be captured into a CUDA graph. Where the length differs from
the last call's, one integer and the grids are renewed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry
from openjev_lab.ops import directives, tensormap

if TYPE_CHECKING:
    import torch

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_scratch: WeakValueDictionary[tuple[str, str, str], torch.Tensor] = WeakValueDictionary()
"""Scratch by (source, name, device): steps run in order on one stream, so all layers share one; kept while bound."""


def load(path: Path, family: object) -> CudaVariant:
    """The variant in a ``.cu`` file (the family adds nothing: a file names its own arguments)."""
    return CudaVariant(directives.parse(path.read_text(), path))


class CudaVariant:
    """One ``.cu`` source in the form of a variant's module."""

    def __init__(self, source: directives.Source) -> None:
        self.source = source

    def supports(self, geometry: Geometry, device: str, dtype: str) -> tuple[bool, str]:
        """(can it serve this, why not)."""
        import torch

        source, name = self.source, self.source.path.name
        if not device.startswith("cuda"):
            return False, f"{name} is CUDA C++ and needs a CUDA device"
        if dtype != source.dtype:
            return False, f"{name} serves {source.dtype} only"
        if unmet := source.unmet(geometry):
            return False, f"{name} needs {unmet}"
        if not torch.cuda.is_available():
            return False, f"{name} needs a CUDA device, and PyTorch sees none"
        capability = torch.cuda.get_device_capability(device)
        if capability < (8, 0) or (source.arch == "sm_90a" and capability != (9, 0)):
            return False, f"{name} is written for {source.arch}, this device is sm_{capability[0]}{capability[1]}"
        return True, ""

    def bind(self, geometry: Geometry, io: Mapping[str, torch.Tensor]) -> CudaStep:
        """The step over these buffers, which must keep their addresses."""
        return CudaStep(self.source, geometry, io)


class CudaStep:
    """The launches of one source, bound to buffers."""

    __slots__ = ("_device", "_held", "_launches", "_names", "_plans", "_stream", "_submit", "_tokens")

    def __init__(self, source: directives.Source, geometry: Geometry, io: Mapping[str, torch.Tensor]) -> None:
        import torch
        from cupy_backends.cuda.api import driver

        device = next(iter(io.values())).device
        self._tokens = ctypes.c_int(0)
        # A buffer may be called like a size ("hidden"): sizes see the geometry first, arguments the buffers.
        names = dict(io) | directives.names_of(geometry) | {"rows": lambda tensor: tensor.shape[0]}
        buffers: dict[str, Any] = dict(io) | {"T": self._tokens}
        for name, spec in source.scratch.items():
            buffers[name] = _shared_scratch(source, name, spec, names, device)
        for name, (buffer, shape) in source.maps.items():
            buffers[name] = tensormap.encode(io[buffer], *shape(names))
        built = source.build(geometry, native_arch(device))
        arguments = [_pack(kernel, names | buffers) for kernel in source.kernels]
        self._plans = []
        for kernel, (_, addresses) in zip(source.kernels, arguments, strict=True):
            block, smem = int(kernel.block(names)), int(kernel.smem(names))
            function = load_function(built.key, built.cubin, kernel.name, smem, device.index)
            self._plans.append((function, kernel.grid, block, smem, ctypes.addressof(addresses)))
        self._held = (arguments, buffers)  # the driver reads them at every launch
        self._names = directives.names_of(geometry)
        self._device = device.index
        self._stream = torch._C._cuda_getCurrentRawStream
        self._submit = driver.launchKernel
        self._launches: list[tuple[int, ...]] = []

    def __call__(self, tokens: int) -> None:
        """Launches for the first `tokens` rows of the buffers."""
        if tokens != self._tokens.value:
            self._resize(tokens)
        stream = self._stream(self._device)
        for function, x, y, z, block, smem, arguments in self._launches:
            self._submit(function, x, y, z, block, 1, 1, smem, stream, arguments, 0)

    def _resize(self, tokens: int) -> None:
        names = self._names | {"T": tokens}
        self._launches = []
        for function, grid, block, smem, arguments in self._plans:
            x, y, z = (*grid(names), 1, 1)[:3]
            self._launches.append((function, x, y, z, block, smem, arguments))
        self._tokens.value = tokens


def _pack(kernel: directives.Kernel, names: Mapping[str, Any]) -> tuple[list[Any], ctypes.Array[ctypes.c_void_p]]:
    """The arguments as C values, and the array of their addresses that a launch takes."""
    import torch

    values: list[Any] = []
    for argument in kernel.args:
        value = argument(names)
        if isinstance(value, torch.Tensor):
            value = ctypes.c_void_p(value.data_ptr())
        elif isinstance(value, int):
            value = ctypes.c_int(value)
        elif isinstance(value, float):
            value = ctypes.c_float(value)
        values.append(value)
    return values, (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))


def _shared_scratch(
    source: directives.Source,
    name: str,
    spec: tuple[str, directives.Expression],
    names: Mapping[str, Any],
    device: torch.device,
) -> torch.Tensor:
    """The scratch that all bindings of this source on this device share; a new one if this one needs more."""
    import torch

    dtype, size = spec
    elements, key = int(size(names)), (str(source.path), name, str(device))
    held = _scratch.get(key)
    if held is None or held.numel() < elements:
        held = torch.empty(elements, dtype=getattr(torch, dtype), device=device)
        _scratch[key] = held
    return held


def native_arch(device: torch.device) -> str:
    """The architecture to compile for: "sm_90a" on Hopper, for its own instructions, else the device's plain one."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")


@cache
def _load_module(key: str, cubin: bytes, device: int) -> int:
    from cupy_backends.cuda.api import driver

    return int(driver.moduleLoadData(cubin))


@cache
def load_function(key: str, cubin: bytes, name: str, smem: int, device: int) -> int:
    """The driver's handle of kernel `name` of a build, allowed `smem` bytes of dynamic shared memory.

    Modules stay loaded as long as the process: a captured graph may hold their kernels.
    """
    import torch
    from cupy_backends.cuda.api import driver

    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # makes torch's context this thread's
        function = int(driver.moduleGetFunction(_load_module(key, cubin, device), name))
        try:
            driver.funcSetAttribute(function, _MAX_DYNAMIC_SHARED, smem)
        except driver.CUDADriverError as problem:
            raise LabError(f"kernel {name} can't have {smem} bytes of shared memory here: {problem}") from problem
    return function
