"""The two Hugging Face arms: transformers' text model, with the adapter unmerged (``RawHF``) or merged (``MergedHF``).

Takes a package, a device and a dtype; an arm's ``score`` takes token ids and returns the head's score. Both run SDPA
and transformers' own torch code for the delta rule and the convolution, also on a machine where flash-linear-attention,
causal-conv1d or the ``kernels`` hub client is installed; that is forced (``hf_torch``), and every arm proves it once
by watching a forward (``hf_witness``) and refuses to serve if anything else ran. Apart from the engine because this is
what the ladder starts from: nothing in here may be ours but the last dot product.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from openjev_lab import hf_torch, hf_witness
from openjev_lab.checkpoint import Package, load_package
from openjev_lab.checkpoint.weights import base_tensors, lora_tensors, tensors, torch_dtype
from openjev_lab.errors import LabError

ADAPTER = "default"
"""PEFT's name for the one adapter of a model."""
WITNESS_TOKENS = 8
"""Length of the forward that is watched: more than one chunk of nothing, and quick."""


class HuggingFace:
    """What both arms share; ``RawHF`` and ``MergedHF`` say which weights and which wrapping."""

    lora_modules = 0
    """How many modules must run through PEFT in a forward."""

    def __init__(
        self,
        checkpoint: str | Path | Package,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        threads: int | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.package = checkpoint if isinstance(checkpoint, Package) else load_package(checkpoint)
        self.geometry = self.package.geometry
        self.device, self.dtype = device, dtype
        torch_dtype(dtype)
        self._head = self.package.head_weight.double()
        self._bindings = hf_torch.torch_bindings(hf_torch.modeling())
        with hf_torch.forced(self._bindings):
            self._text = _text_model(self.package, self._weights(), device)
            self._model = self._wrapped()
        self._model.eval()
        self._witness = self._watch()

    def _weights(self) -> dict[str, Tensor]:
        raise NotImplementedError

    def _wrapped(self) -> nn.Module:
        """The module whose forward is run: the text model, or PEFT around it."""
        return self._text

    def score(self, ids: Sequence[int]) -> float:
        """The head's score of one candidate: final-norm hidden state of its last token, as float32, in float64.

        Raises ``LabError`` for no ids, ids outside the vocabulary, or more than ``package.max_length``.
        """
        last = self._forward(self._checked(ids))[-1]
        return float(last.float().cpu().double() @ self._head) + self.package.head_bias

    def hidden_states(self, ids: Sequence[int]) -> list[Tensor]:
        """The residual stream after every layer, each (tokens, hidden), then the last token's final norm (hidden,)."""
        found: list[Tensor] = []
        hooks = [
            layer.register_forward_hook(lambda _m, _i, out: found.append(_first(out)[0])) for layer in self._layers
        ]
        try:
            last = self._forward(self._checked(ids))[-1]
        finally:
            for hook in hooks:
                hook.remove()
        return [*found, last]

    def describe(self) -> dict[str, Any]:
        """What really ran, JSON-able: versions, functions with the files they come from, attention, adapter, dtypes."""
        kept = sorted({name.split(".", 2)[-1] for name, p in self._text.named_parameters() if p.dtype == torch.float32})
        return {
            "arm": type(self).__name__,
            "checkpoint": self.package.path,
            "geometry": self.geometry.name,
            "device": self.device,
            "device_name": torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else "cpu",
            "dtype": self.dtype,
            "float32_parameters": "all" if self.dtype == "float32" else kept,
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "model_class": f"{type(self._text).__module__}.{type(self._text).__qualname__}",
            "attention_requested": self._text.config._attn_implementation,
            "lora_modules": self.lora_modules,
            **hf_torch.describe(),
            **self._witness.describe(),
        }

    @property
    def _layers(self) -> nn.ModuleList:
        return self._text.layers

    def _checked(self, ids: Sequence[int]) -> Tensor:
        limit, vocabulary = self.package.max_length, self.geometry.vocab_size
        if not 1 <= len(ids) <= limit:
            raise LabError(f"a candidate of {len(ids)} tokens; this checkpoint takes 1 to {limit}")
        if min(ids) < 0 or max(ids) >= vocabulary:
            raise LabError(f"a token id outside the vocabulary of {vocabulary}")
        return torch.tensor([list(ids)], dtype=torch.long, device=self.device)

    def _forward(self, ids: Tensor) -> Tensor:
        """Final-norm hidden states (tokens, hidden) of ids (1, tokens): no cache, padding or language-model head."""
        with torch.inference_mode(), hf_torch.forced(self._bindings):
            return self._model(input_ids=ids, use_cache=False, return_dict=True).last_hidden_state[0]

    def _watch(self) -> hf_witness.Witness:
        ids = self._checked([index % self.geometry.vocab_size for index in range(WITNESS_TOKENS)])
        self._forward(
            ids
        )  # what only a first call does (lazy imports, library handles) is none of the witness's business
        witness = hf_witness.watch(lambda: self._forward(ids))
        witness.require(self.geometry, lora_modules=self.lora_modules)
        return witness


class MergedHF(HuggingFace):
    """transformers on the merged weights: the same merge as the engine's."""

    def _weights(self) -> dict[str, Tensor]:
        return tensors(self.package, self.device, self.dtype)


class RawHF(HuggingFace):
    """transformers on the base's weights, with every LoRA module of the checkpoint unmerged in PEFT, in float32.

    float32 is how PEFT loads an adapter by default, whatever the base's dtype.
    """

    def _weights(self) -> dict[str, Tensor]:
        if self.package.lora is None:
            raise LabError(f"{self.package.path} is merged; the raw arm needs the package that it came from")
        return base_tensors(self.package, self.device, self.dtype)

    def _wrapped(self) -> nn.Module:
        from peft import LoraConfig, get_peft_model

        lora = self.package.lora
        assert lora is not None, "checked before the weights were read"
        config = LoraConfig(
            r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.modules), lora_dropout=0.0, bias="none"
        )
        model = get_peft_model(self._text, config, adapter_name=ADAPTER)
        self.lora_modules = _fill(self._text, lora_tensors(self.package, self.device), lora.scaling)
        return model


def _text_model(package: Package, weights: dict[str, Tensor], device: str) -> nn.Module:
    """transformers' text model holding exactly these tensors, none copied, none made up."""
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

    settings = dict(package.base.config) if package.base else package.geometry.to_config()
    config = Qwen3_5TextConfig.from_dict(settings, attn_implementation="sdpa")
    with torch.device("meta"):
        model = Qwen3_5TextModel(config)
    missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
    if missing or unexpected:
        raise LabError(f"transformers' {type(model).__name__} wants {missing} and has no place for {unexpected}")
    model.rotary_emb = type(model.rotary_emb)(config=config).to(device)  # its frequencies are in no file
    left = [name for name, part in (*model.named_parameters(), *model.named_buffers()) if part.is_meta]
    if left:
        raise LabError(f"transformers' {type(model).__name__} has {left}, which no checkpoint of this kind stores")
    return model.requires_grad_(False)


def _fill(text: nn.Module, pairs: dict[str, tuple[Tensor, Tensor]], scaling: float) -> int:
    """Put the adapter's matrices into PEFT's modules; returns how many. Raises ``LabError`` unless they match exactly.

    By module and not through ``from_pretrained``, which leaves what it cannot place at fresh values.
    """
    from peft.tuners.lora import LoraLayer

    wrapped = {name: module for name, module in text.named_modules() if isinstance(module, LoraLayer)}
    if set(wrapped) != set(pairs):
        raise LabError(f"PEFT wrapped {len(wrapped)} modules, the adapter has {len(pairs)}; they must be the same")
    for name, (a, b) in pairs.items():
        layer = wrapped[name]
        for part, value in ((layer.lora_A[ADAPTER], a), (layer.lora_B[ADAPTER], b)):
            if part.bias is not None or part.weight.shape != value.shape:
                raise LabError(f"PEFT made {name} of shape {list(part.weight.shape)}; {list(value.shape)} is right")
            part.weight = nn.Parameter(value, requires_grad=False)
        if layer.scaling[ADAPTER] != scaling or layer.merged:
            raise LabError(f"PEFT scales {name} by {layer.scaling[ADAPTER]}; {scaling}, unmerged, is right")
    return len(wrapped)


def _first(out: Any) -> Tensor:
    """A decoder layer's hidden states: releases differ in whether they come in a tuple."""
    return out[0] if isinstance(out, tuple) else out
