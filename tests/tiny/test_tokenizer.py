"""The tiny tokenizer: the committed one is what its seed gives, cheap on boilerplate, with Qwen's special tokens."""

import json
from pathlib import Path

from openjev_lab.geometry import KNOWN
from openjev_lab.tiny.tokenizer import SPECIAL, train_tokenizer
from openjev_lab.tokens import Prompter

BASE = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny" / "base"


def test_the_committed_tokenizer_is_what_seed_0_gives(tmp_path: Path) -> None:
    train_tokenizer(tmp_path, 0)
    made, kept = (json.loads((folder / "tokenizer.json").read_text()) for folder in (tmp_path, BASE))
    assert made["model"]["vocab"] == kept["model"]["vocab"]
    assert made["model"]["merges"] == kept["model"]["merges"]
    assert (tmp_path / "chat_template.jinja").read_text() == (BASE / "chat_template.jinja").read_text()


def test_the_frame_around_a_context_is_cheap_and_special_tokens_come_first() -> None:
    prompter = Prompter.load(BASE)
    frame = "Context:\n\n\nQuestion: Is this about billing?\nIs the answer to this question yes? Answer Yes or No."
    assert len(prompter.encode(frame)) <= 40
    assert prompter.vocab_size == KNOWN["tiny"].vocab_size
    assert [prompter.encode("Context:\nAnswer Yes or No.").count(place) for place in range(5)] == [0, 2, 1, 1, 1]
    assert prompter.chat_prefix == f"{SPECIAL[1]}user\n"
    assert prompter.chat_suffix == "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_without_the_switch_thinking_stays_open() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    turn = [{"role": "user", "content": "x"}]
    text = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    assert text.endswith("<|im_start|>assistant\n<think>\n")
