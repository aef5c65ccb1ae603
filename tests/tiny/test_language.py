"""Requests of the tiny language: exact lengths under any tokenizer, true labels, the same again from a seed."""

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from openjev_lab.contract import KINDS, compile_request, render
from openjev_lab.errors import LabError
from openjev_lab.tiny.filler import DAYS, NAMES, THINGS
from openjev_lab.tiny.language import make_request
from openjev_lab.tiny.words import CASE, RULES
from openjev_lab.tokens import Prompter

BASE = Path(__file__).resolve().parents[2] / "checkpoints" / "tiny" / "base"
SLOTS = {"name": NAMES, "other": NAMES, "thing": THINGS, "day": DAYS, "n": (r"\d+",)}


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    return Prompter.load(BASE)


@pytest.fixture(scope="module")
def other_prompter(tiny_package: Path) -> Prompter:
    """Another tokenizer: few merges, another pre-tokenizer, so prompts are three times as long."""
    return Prompter.load(tiny_package / "base")


def pattern(template: str) -> re.Pattern[str]:
    """What a template can say."""
    parts = re.split(r"\{(\w+)\}", template)
    filled = [f"(?:{'|'.join(SLOTS[part])})" if place % 2 else re.escape(part) for place, part in enumerate(parts)]
    return re.compile(r"(?<![\w,] )(?<!\w)" + "".join(filled))


EVIDENCE = {
    (attribute.name, value.name): [pattern(sentence) for sentence in value.evidence]
    for attribute in (*CASE, *RULES)
    for value in attribute.values
}


def settled(state: Any, attribute: str) -> set[str]:
    """The values of an attribute that a state gives evidence for, read off its text alone."""
    text = render(state)
    return {
        value
        for (name, value), patterns in EVIDENCE.items()
        if name == attribute and any(found.search(text) for found in patterns)
    }


def asked(instructions: str) -> tuple[str, str | None]:
    """(attribute, value or None) that a question asks for."""
    for attribute in (*CASE, *RULES):
        if instructions in attribute.which:
            return attribute.name, None
        for value in attribute.values:
            if instructions in [template.format(v=value.name) for template in attribute.yes_no]:
                return attribute.name, value.name
    raise AssertionError(f"{instructions} asks for nothing")


@pytest.mark.parametrize("kind", KINDS)
def test_the_label_is_what_the_state_settles(kind: str) -> None:
    rng = random.Random(f"labels/{kind}")
    for _ in range(400):
        request, label = make_request(rng, kind=kind)
        question = request["questions"]["q"]
        attribute, value = asked(question["instructions"])
        (truth,) = settled(request["state"], attribute)
        if kind == "noul":
            assert label is (value == truth)
        elif kind == "choice":
            assert label == truth and truth in question["criteria"]
        else:
            assert isinstance(label, int) and question["criteria"][label].split(":")[0] == truth


def test_yes_and_no_are_as_frequent_and_every_form_of_state_occurs() -> None:
    rng = random.Random("balance")
    made = [make_request(rng) for _ in range(2000)]
    assert 900 < sum(label is True for _, label in made) < 1100
    assert {type(request["state"]) for request, _ in made} == {str, dict, list}
    assert len({json.dumps(request) for request, _ in made}) > 1950


@pytest.mark.parametrize("tokens", [80, 81, 83, 88, 96, 110, 111, 173, 321, 522, 1213, 2334, 3399, 4096])
def test_length_is_met_to_the_token(prompter: Prompter, tokens: int) -> None:
    rng = random.Random(f"exact/{tokens}")
    for kind in KINDS:
        request, _ = make_request(rng, tokens=tokens, prompter=prompter, kind=kind)
        prompts = compile_request(request)[0].prompts
        assert max(len(prompter.encode(prompt)) for prompt in prompts) == tokens


def test_every_length_from_80_on_is_met(prompter: Prompter) -> None:
    rng = random.Random("every")
    for tokens in range(80, 380):
        request, _ = make_request(rng, tokens=tokens, prompter=prompter)
        assert len(prompter.encode(compile_request(request)[0].prompt(0))) == tokens


def test_another_tokenizer_is_met_too(other_prompter: Prompter) -> None:
    rng = random.Random("other")
    for tokens in (500, 777, 2000):
        request, _ = make_request(rng, tokens=tokens, prompter=other_prompter)
        assert len(other_prompter.encode(compile_request(request)[0].prompt(0))) == tokens


def test_the_same_generator_state_gives_the_same_request(prompter: Prompter) -> None:
    for kind in KINDS:
        twice = [make_request(random.Random("7"), tokens=300, prompter=prompter, kind=kind) for _ in range(2)]
        assert twice[0] == twice[1]


def test_a_long_request_takes_far_less_than_a_tenth_of_a_second(prompter: Prompter) -> None:
    times = []
    for seed in range(8):
        started = time.perf_counter()
        make_request(random.Random(seed), tokens=3399, prompter=prompter)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.1


def test_what_cannot_be_made_is_refused(prompter: Prompter) -> None:
    rng = random.Random(0)
    with pytest.raises(LabError, match="one of noul, choice, score"):
        make_request(rng, kind="yes")
    with pytest.raises(LabError, match="needs the prompter"):
        make_request(rng, tokens=100)
    with pytest.raises(LabError, match="exactly 20 tokens with this tokenizer; ask for more"):
        make_request(rng, tokens=20, prompter=prompter)
