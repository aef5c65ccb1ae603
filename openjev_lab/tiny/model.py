"""The tiny model's parts, new or written to disk: base, adapter, head; and the package layout around them.

Takes a seed, returns transformers' and PEFT's own modules; writes the folder that CONTRACT.md's checkpoint package is.
Apart from the training because a test makes an untrained package with it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from openjev_lab.checkpoint.files import sha256
from openjev_lab.geometry import KNOWN, LORA_FULL, LORA_LINEAR

GEOMETRY = KNOWN["tiny"]
MODEL_ID = "openjev-lab/tiny"
RANK, ALPHA = 8, 16
MAX_LENGTH_TOKENS = 4096
SHORTEST_STEP, LONGEST_STEP = 1e-3, 0.1
SLOWEST_DECAY, FASTEST_DECAY = 1.0, 8.0
KEPT_FLOAT32 = (".A_log", ".linear_attn.norm.weight")
"""Stored in float32, as the released bases store them; all else is bfloat16."""


def new_base(seed: int, device: str) -> Any:
    """An untrained ``Qwen3_5ForCausalLM``: transformers' own initial values but for the memory of the linear layers.

    Those forget within a few tokens with transformers' values; here ``dt_bias`` is softplus^-1 of a log-uniform step,
    as in Mamba (Gu & Dao 2023, section 3.6), and A is small, which leaves heads that remember hundreds of tokens.
    """
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig.from_dict(base_config(), attn_implementation=_attention()))
    for layer in model.model.layers:
        if hasattr(layer, "linear_attn"):
            heads = GEOMETRY.linear_v_heads
            step = torch.exp(torch.empty(heads).uniform_(math.log(SHORTEST_STEP), math.log(LONGEST_STEP)))
            layer.linear_attn.dt_bias.data = step.expm1().log()
            layer.linear_attn.A_log.data = torch.empty(heads).uniform_(SLOWEST_DECAY, FASTEST_DECAY).log()
    return model.to(device)


def _attention() -> str:
    """The name of an attention that repeats keys and values itself.

    transformers' own leaves that to torch, whose float32 kernels then hold every score: gigabytes a long batch.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, scaling: float, **_: Any
    ) -> tuple[Tensor, None]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        return out.transpose(1, 2).contiguous(), None

    name = "causal_sdpa_repeated_kv"
    ALL_ATTENTION_FUNCTIONS.register(name, attention)
    return name


def base_config() -> dict[str, Any]:
    """``config.json`` of the base."""
    extra = {"architectures": ["Qwen3_5ForCausalLM"], "dtype": "bfloat16", "max_position_embeddings": 16384}
    return {**GEOMETRY.to_config(), **extra, "pad_token_id": 0, "eos_token_id": 2, "use_cache": False}


def round_to_stored(model: nn.Module) -> None:
    """Round the base in place to what its file will hold, so that the adapter is trained on the base that is served."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if not name.endswith(KEPT_FLOAT32):
                value.copy_(value.bfloat16())


def with_adapter(text: nn.Module, seed: int) -> Any:
    """The text model frozen under a fresh adapter: PEFT around ``Qwen3_5TextModel``."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed + 1)
    targets = [*LORA_FULL, *LORA_LINEAR]
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0.0, bias="none")
    return get_peft_model(text, config)


def new_head(seed: int, device: str) -> nn.Linear:
    """The head, one row and a bias, small at first."""
    torch.manual_seed(seed + 2)
    head = nn.Linear(GEOMETRY.hidden, 1).to(device)
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head


def save_base(folder: Path, base: Any) -> None:
    """Configuration and weights, beside the tokenizer that is already there."""
    tensors: dict[str, Tensor] = {}
    for name, value in base.named_parameters():  # the tied output head is no parameter of its own
        kept = torch.float32 if name.endswith(KEPT_FLOAT32) else torch.bfloat16
        tensors[name] = value.detach().to("cpu", kept).contiguous()
    _save_tensors(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", base_config())


def save_checkpoint(package: Path, model: Any, head: nn.Linear, temperature: float) -> None:
    """Adapter, head, temperature and ``model.json``, which pins the base by its hash."""
    folder = package / "checkpoint"
    adapter = {name: value.detach().cpu() for name, value in _adapter_tensors(model).items()}
    (folder / "adapter").mkdir(parents=True, exist_ok=True)
    _save_tensors(folder / "adapter" / "adapter_model.safetensors", adapter)
    targets = [*LORA_FULL, *LORA_LINEAR]
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": MODEL_ID,
        "revision": None,
    }
    config |= {"r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False}
    write_json(folder / "adapter" / "adapter_config.json", {**config, "target_modules": targets})
    weights = {"weight": head.weight.detach().cpu().clone(), "bias": head.bias.detach().cpu().clone()}
    torch.save(weights, folder / "head.pt")
    write_json(folder / "temperature.json", {"temperature": temperature})
    described = {
        "model_id": MODEL_ID,
        "revision": f"sha256:{sha256(package / 'base' / 'model.safetensors')}",
        "lora_rank": RANK,
        "max_length": MAX_LENGTH_TOKENS,
        "method": "openjev_lab.tiny.train: base by next-token loss, then adapter and head on labelled decisions",
    }
    write_json(folder / "model.json", described)


def _adapter_tensors(model: Any) -> dict[str, Tensor]:
    """PEFT's keys: ``base_model.model.layers.0....lora_A.weight``."""
    from peft import get_peft_model_state_dict

    return {name: value.contiguous() for name, value in get_peft_model_state_dict(model).items()}


def _save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors leaves it to its owner alone


def write_json(path: Path, value: object) -> None:
    """JSON as the package holds it: indented, ending in a newline."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
