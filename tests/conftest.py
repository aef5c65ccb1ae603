"""Fixtures for every test: a tiny package with all its parts, random and untrained, made once a session.

``tiny_package`` is a folder in the package layout; it is shared, so whoever wants to break one copies it first.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None)  # a busy machine is no failure of the example
settings.load_profile("steady")

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
TEXT = "Context: the invoice is late. Question: is this about billing? Is the answer yes? Answer Yes or No."


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE of a few hundred entries with a chat template, in the Hugging Face layout."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 8, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def make_package(folder: Path, seed: int = 5) -> Path:
    """A whole package of the tiny geometry in float32, its weights those of the synthetic generator."""
    import torch
    from safetensors.torch import save_file

    from openjev_lab.checkpoint import synthetic
    from openjev_lab.geometry import KNOWN

    geometry, base, checkpoint = KNOWN["tiny"], folder / "base", folder / "checkpoint"
    write_json(base / "config.json", geometry.to_config() | {"architectures": ["Qwen3_5ForCausalLM"]})
    write_tokenizer(base)
    weights = {f"model.{name}": tensor for name, tensor in synthetic.base_tensors(geometry, seed, "cpu")}
    save_file(weights, base / "model.safetensors", metadata={"format": "pt", "revision": "base-of-the-tests"})
    pairs = synthetic.lora_tensors(geometry, seed, "cpu")
    named = {f"base_model.model.{name}.lora_{'AB'[i]}.weight": ab[i] for name, ab in pairs.items() for i in range(2)}
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj"]
    adapter = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": targets, "bias": "none"}
    write_json(checkpoint / "adapter" / "adapter_config.json", adapter | {"revision": None})
    save_file(named, checkpoint / "adapter" / "adapter_model.safetensors", metadata={"format": "pt"})
    head = synthetic.uniform((1, geometry.hidden), 0.18, synthetic.key(seed, "head"), "cpu")
    torch.save({"weight": head, "bias": torch.tensor([0.25])}, checkpoint / "head.pt")
    write_json(checkpoint / "temperature.json", {"temperature": 1.5})
    model = {"model_id": "tests/tiny", "revision": "base-of-the-tests", "lora_rank": 8, "max_length": 4096}
    write_json(checkpoint / "model.json", model | {"method": "random, for tests"})
    return folder


@pytest.fixture(scope="session")
def tiny_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random, untrained package of the tiny geometry, float32, with its own small tokenizer."""
    return make_package(tmp_path_factory.mktemp("package") / "tiny")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch on one thread: enough for a tiny model, and its threads can't spin against those of a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
