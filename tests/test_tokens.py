"""tokens.Prompter gives the ids of transformers' apply_chat_template, on tokenizers made here and on the tiny one's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev_lab.contract import compile_request
from openjev_lab.errors import LabError
from openjev_lab.tokens import Prompter

TINY = Path(__file__).parent.parent / "checkpoints" / "tiny" / "base"

# The shape of Qwen3.5's template where it matters: content is trimmed, thinking is switched by a variable.
TEMPLATE = """{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content|trim) + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- else %}
{{- '<think>\\n' }}
{%- endif %}
{%- endif %}"""
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE in the layout and with the pre-tokenizer of Qwen3.5, trained on this file."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator([Path(__file__).read_text()], trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    folder = tmp_path_factory.mktemp("base")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    settings_ = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings_))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5_text"}))
    return folder


@pytest.fixture(scope="module", params=["made", "tiny"])
def pair(request: pytest.FixtureRequest):
    """Ours and transformers' tokenizer of one folder."""
    from transformers import AutoTokenizer

    folder = request.getfixturevalue("base") if request.param == "made" else TINY
    return Prompter.load(folder), AutoTokenizer.from_pretrained(folder)


def reference(tokenizer, prompt: str) -> list[int]:
    turn = [{"role": "user", "content": prompt}]
    return tokenizer.apply_chat_template(
        turn, add_generation_prompt=True, enable_thinking=False, tokenize=True, return_dict=False
    )


pieces = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(
        [*SPECIAL, "<think>", "</think>", "\r\n", "  ", "\t", "Caf\u00e9", "Cafe\u0301", "'LL", "1234567", "🏳️‍🌈"]
    ),
)
texts = st.lists(pieces, max_size=12).map("".join)


@settings(max_examples=150, deadline=None)
@given(state=texts, question=texts, option=texts)
def test_ids_of_contract_prompts_are_those_of_apply_chat_template(pair, state, question, option):
    ours, theirs = pair
    criteria = {option: None, f"{option}-": {"k": [state]}}
    questions = {
        "n": {"type": "noul", "instructions": question},
        "c": {"type": "choice", "instructions": question, "criteria": criteria},
    }
    for compiled in compile_request({"state": state, "questions": questions}):
        for prompt in compiled.prompts:
            assert ours.encode(prompt) == reference(theirs, prompt)
            assert ours.render(prompt) == f"{ours.chat_prefix}{prompt}{ours.chat_suffix}"


@settings(max_examples=60, deadline=None)
@given(prompt=texts)
def test_ids_of_any_other_text_are_those_of_apply_chat_template(pair, prompt):
    ours, theirs = pair
    assert ours.encode(prompt) == reference(theirs, prompt)


def test_special_token_text_becomes_the_token_as_in_the_reference(base):
    prompter = Prompter.load(base)
    [question] = compile_request({"state": "a<|im_end|>b", "questions": {"q": {"type": "noul", "instructions": "?"}}})
    ids = prompter.encode(question.prompt(0))
    assert ids.count(SPECIAL.index("<|im_end|>")) == 2  # the state's own and the template's


def test_thinking_is_off_and_the_generation_prompt_is_there(base):
    assert Prompter.load(base).chat_suffix == "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def copy_of(base: Path, folder: Path, **changed: str | None) -> Path:
    for file in base.iterdir():
        text = changed.get(file.name.partition(".")[0], file.read_text())
        if text is not None:
            (folder / file.name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokenizer": None}, "tokenizer.json is missing"),
        ({"tokenizer": "{}"}, "tokenizer.json is not a tokenizer"),
        ({"tokenizer_config": None}, "tokenizer_config.json is missing"),
        ({"tokenizer_config": "["}, "tokenizer_config.json is not JSON"),
        ({"chat_template": None}, "has no chat template"),
        ({"chat_template": "{% for"}, "does not compile"),
        ({"chat_template": "{{ raise_exception('no system turn') }}"}, "no system turn"),
        ({"chat_template": "{{ messages[0].content|upper }}"}, "changes a user's text"),
    ],
)
def test_each_fault_of_a_folder_names_its_file(base, tmp_path, changed, message):
    with pytest.raises(LabError, match=message):
        Prompter.load(copy_of(base, tmp_path, **changed))


def test_a_template_inside_the_configuration_is_read_too(base, tmp_path):
    config = json.loads((base / "tokenizer_config.json").read_text())
    for form in (TEMPLATE, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]):
        text = json.dumps({**config, "chat_template": form})
        folder = copy_of(base, tmp_path, chat_template=None, tokenizer_config=text)
        assert Prompter.load(folder).chat_prefix == "<|im_start|>user\n"


def test_tokenizing_does_not_import_transformers(base):
    code = (
        "import sys; from openjev_lab.tokens import Prompter; "
        f"Prompter.load({str(base)!r}).encode('x'); assert not {{'transformers', 'torch'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
