"""The tiny checkpoint's tokenizer: a byte-level BPE trained on prompts of the tiny language, in Qwen's layout.

Takes a seed, writes ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja`` into a folder; the same
seed gives the same files. Pre-tokenizer, normalizer and special tokens are Qwen's (one token a digit), so that prompts
are cut at the same places as on the large models; the template is Qwen's as far as a user turn goes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from openjev_lab.contract import KINDS, compile_request
from openjev_lab.tiny.language import make_request

VOCABULARY = 1000
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
"""Ids 0 to 4, in this order."""
PAD, TURN_END = SPECIAL[0], SPECIAL[2]
SAMPLES = 6000
"""Prompts to train on; more change nothing, as the language is small."""
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where text is cut before BPE: the expression of Qwen3.5's tokenizer.json."""
CHAT_TEMPLATE = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content | trim) + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n<think>\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""


def train_tokenizer(folder: Path, seed: int, extra: tuple[str, ...] = ()) -> None:
    """Write the tokenizer's three files into ``folder``. ``extra`` are texts to learn beside the prompts."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*_prompts(seed), *extra], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": PAD,
        "model_max_length": 16384,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def _prompts(seed: int) -> Iterator[str]:
    """Prompts of all kinds, with the names of the roles that the template puts around them."""
    rng = random.Random(f"tokenizer/{seed}")
    for _ in range(SAMPLES):
        request, _ = make_request(rng, kind=rng.choice(KINDS))
        prompts = compile_request(request)[0].prompts
        yield f"user\n{rng.choice(prompts)}\nassistant\n"
