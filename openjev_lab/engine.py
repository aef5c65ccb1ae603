"""Our own engine: packed weights, buffers that exist before a request comes, and the plan of a forward over them.

Takes merged weights by transformers' names, a variant for every op, device and dtype; ``Engine.score`` takes token ids
and returns the head's score. Apart from ``forward``, which says what is computed: this says in what memory.

Buffers grow to the longest request seen and never shrink; growing makes the plan anew, since steps are bound to their
buffers. An engine is used from one thread at a time.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

import openjev_lab
from openjev_lab.errors import LabError
from openjev_lab.forward import BUFFERS, OPS, PlannedStep, plan
from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import new
from openjev_lab.ops.families import KERNELS, select_all
from openjev_lab.packing import pack

ROW_STEP = 256
"""Buffers have a multiple of this many rows, so that slowly growing requests do not make the plan anew each time."""


class Engine:
    """One model on one device, in one dtype, with one variant an op.

    ``tensors`` (text-model names -> merged weights on ``device``) is emptied as its weights are packed, so that a large
    model is not held twice. ``head_weight`` is (hidden,) float32. Raises ``LabError`` if a variant can't serve, naming
    it and the reason.
    """

    def __init__(
        self,
        geometry: Geometry,
        tensors: MutableMapping[str, Tensor],
        head_weight: Tensor,
        head_bias: float,
        *,
        ops: Mapping[str, str],
        device: str = "cpu",
        dtype: str = "float32",
        rows: int = ROW_STEP,
    ) -> None:
        if set(ops) != set(OPS):
            raise LabError(f"an engine needs a variant for each of {', '.join(OPS)}; got {', '.join(ops)}")
        self.geometry, self.device, self.dtype = geometry, device, dtype
        self.variants = select_all(ops, geometry, device, dtype)
        self._weights = pack(geometry, tensors, head_weight, head_bias, device=device, dtype=dtype)
        self._buffers: dict[str, Tensor] = {}
        self._steps: list[PlannedStep] = []
        self.reserve(rows)

    @property
    def rows(self) -> int:
        """Tokens that the buffers hold."""
        return self._buffers["ids"].shape[0] if self._buffers else 0

    def reserve(self, tokens: int) -> None:
        """Make room for requests of up to ``tokens``; nothing to do if there is."""
        if tokens <= self.rows:
            return
        rows = -(-tokens // ROW_STEP) * ROW_STEP
        where: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        self._steps, self._buffers = [], {}  # frees the old ones before the new ones are made
        self._buffers = {name: new(field, self.geometry, rows, **where) for name, field in BUFFERS.items()}
        _fill_rotary(self.geometry, self._buffers["cos"], self._buffers["sin"])
        self._steps = plan(self.geometry, self._weights, self._buffers, self.variants, self.dtype)

    @torch.inference_mode()
    def score(self, ids: Sequence[int]) -> float:
        """The head's score of the last token: float64, from its final-norm hidden state in float32.

        Raises ``LabError`` for no ids and for one outside the vocabulary.
        """
        tokens = self._place(ids)
        for step in self._steps:
            step.run(tokens)
        return float(self._buffers["score"])

    @torch.inference_mode()
    def hidden_states(self, ids: Sequence[int]) -> list[Tensor]:
        """The residual stream after every layer, each (tokens, hidden), then the last token's final norm (hidden,)."""
        tokens = self._place(ids)
        found: list[Tensor] = []
        for step in self._steps:
            if step.op == "head":
                found.append(self._buffers["residual"][:tokens] + self._buffers["delta"][:tokens])
            step.run(tokens)
            if step.starts_layer and step.layer:
                found.append(self._buffers["residual"][:tokens].clone())
        return [*found, self._buffers["hidden"].clone()]

    @torch.inference_mode()
    def step_times(self, ids: Sequence[int]) -> list[tuple[str, int | None, int]]:
        """(op, layer, nanoseconds) of every step of one forward on a CPU, where a step is done when it returns."""
        if self.device != "cpu":
            raise LabError("step times by the wall clock mean nothing on a GPU, where steps run later than they return")
        tokens = self._place(ids)
        found = []
        for step in self._steps:
            start = time.perf_counter_ns()
            step.run(tokens)
            found.append((step.op, step.layer, time.perf_counter_ns() - start))
        return found

    def describe(self) -> dict[str, Any]:
        """What runs, JSON-able: the variant of every op with its file, dtype, threads, versions."""
        return {
            "geometry": self.geometry.name,
            "device": self.device,
            "device_name": torch.cuda.get_device_name(self.device) if self.device != "cpu" else "cpu",
            "dtype": self.dtype,
            "threads": torch.get_num_threads(),
            "ops": {
                name: {
                    "variant": variant.name,
                    "backend": variant.backend,
                    "file": f"{KERNELS.name}/{variant.path.relative_to(KERNELS).as_posix()}",
                }
                for name, variant in self.variants.items()
            },
            "steps": len(self._steps),
            "buffer_rows": self.rows,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "environment": {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")},
            "versions": _versions({variant.backend for variant in self.variants.values()}),
        }

    def _place(self, ids: Sequence[int]) -> int:
        """Copy ids into their buffer, grown if need be; returns how many."""
        tokens = len(ids)
        if tokens == 0:
            raise LabError("a forward needs at least one token")
        fresh = torch.tensor(ids, dtype=torch.int64)
        if int(fresh.min()) < 0 or int(fresh.max()) >= self.geometry.vocab_size:
            raise LabError(f"token ids must be in 0..{self.geometry.vocab_size - 1}; got {int(fresh.max())}")
        self.reserve(tokens)
        self._buffers["ids"][:tokens].copy_(fresh)
        return tokens


def _versions(backends: set[str]) -> dict[str, str]:
    found = {"openjev_lab": openjev_lab.__version__, "python": platform.python_version(), "torch": torch.__version__}
    if backends & {"numba_cpu", "numba_cuda"}:
        import numba

        found["numba"] = numba.__version__
    return found


def _fill_rotary(geometry: Geometry, cos: Tensor, sin: Tensor) -> None:
    """cos and sin of t / theta^(2 i / rotary_dim), in float32, then rounded, as transformers makes them."""
    places = torch.arange(0, geometry.rotary_dim, 2, dtype=torch.float32) / geometry.rotary_dim
    frequencies = (1.0 / geometry.rope_theta**places).to(cos.device)
    angles = torch.arange(len(cos), dtype=torch.float32, device=cos.device)[:, None] * frequencies
    cos.copy_(angles.cos())
    sin.copy_(angles.sin())
