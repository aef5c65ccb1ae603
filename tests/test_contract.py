"""The wire contract: prompts to the letter, answers against their formulas, every refusal with its question named."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openjev_lab import contract
from openjev_lab.contract import ContractError, answer, compile_request, render

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
content = text | st.lists(json_values, max_size=3) | st.dictionaries(text, json_values, max_size=3)
nouls = st.fixed_dictionaries(
    {"type": st.just("noul"), "instructions": content},
    optional={"criteria": st.none() | st.fixed_dictionaries({"true": content, "false": content})},
)
choices = st.fixed_dictionaries(
    {
        "type": st.just("choice"),
        "instructions": content,
        "criteria": st.dictionaries(text, st.none() | content, min_size=1, max_size=6),
    }
)
scores = st.fixed_dictionaries(
    {"type": st.just("score"), "instructions": content, "criteria": st.lists(content, min_size=2, max_size=10)}
)
requests = st.fixed_dictionaries(
    {"state": content, "questions": st.dictionaries(text, nouls | choices | scores, min_size=1, max_size=4)},
    optional={"model": st.none() | text},
)
logits = st.floats(-60, 60)


def one(question: dict[str, Any], state: Any = "s") -> contract.Question:
    [compiled] = compile_request({"state": state, "questions": {"q": question}})
    return compiled


def noul(**more: Any) -> dict[str, Any]:
    return {"type": "noul", "instructions": "Is it?", **more}


def choice(*names: str) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(names)}


def score(*levels: Any) -> dict[str, Any]:
    return {"type": "score", "instructions": "How?", "criteria": list(levels)}


# ---- prompts


def test_a_noul_prompt_to_the_letter():
    question = one(noul(), {"b": [1, 2.5], "a": "é"})
    assert question.prompts == (
        'Context:\n{"a": "é", "b": [1, 2.5]}\n\nQuestion: Is it?\n'
        "Is the answer to this question yes? Answer Yes or No.",
    )
    assert (question.id, question.kind, question.keys) == ("q", "noul", ("false", "true"))


def test_noul_criteria_follow_the_question():
    assert one(noul(criteria={"true": "it is", "false": {"z": 1, "a": None}})).prompts == (
        'Context:\ns\n\nQuestion: Is it?\nYes means: it is\nNo means: {"a": null, "z": 1}\n'
        "Is the answer to this question yes? Answer Yes or No.",
    )
    assert one(noul(criteria=None)).prompts == one(noul()).prompts


def test_choice_prompts_to_the_letter():
    question = one(
        {"type": "choice", "instructions": ["Which", "one?"], "criteria": {"b": "the {option} b", "a": None}}
    )
    head = 'Context:\ns\n\nQuestion: ["Which", "one?"]\nProposed answer: '
    tail = "\nIs this proposed answer correct? Answer Yes or No."
    assert question.prompts == (f"{head}b: the {{option}} b{tail}", f"{head}a{tail}")
    assert question.keys == ("b", "a")


def test_score_prompts_to_the_letter():
    question = one(score("low", {"name": "high"}))
    head, tail = (
        "Context:\ns\n\nQuestion: How?\nProposed answer: ",
        "\nIs this proposed answer correct? Answer Yes or No.",
    )
    assert question.prompts == (f"{head}low{tail}", f'{head}{{"name": "high"}}{tail}')
    assert question.keys == ("0", "1")


@given(content)
def test_render_keeps_text_and_sorts_the_rest(value):
    plain = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(", ", ": "))
    assert render(value) == (value if isinstance(value, str) else plain)


@given(requests)
def test_prompts_show_neither_ids_nor_order_nor_company(request):
    compiled = {question.id: question for question in compile_request(request)}
    assert list(compiled) == list(request["questions"])
    backwards = dict(reversed(request["questions"].items()))
    for question in compile_request({**request, "questions": backwards}):
        assert question == compiled[question.id]
    for name, question in request["questions"].items():
        alone = one(question, request["state"])
        assert alone.prompts == compiled[name].prompts
        if question["type"] == "choice":
            turned = one({**question, "criteria": dict(reversed(question["criteria"].items()))}, request["state"])
            assert dict(zip(turned.keys, turned.prompts, strict=True)) == dict(
                zip(alone.keys, alone.prompts, strict=True)
            )


# ---- answers


@given(logits, st.floats(0.5, 20))
def test_noul_is_the_logistic_of_the_score(value, temperature):
    question = one(noul())
    assert question.logits([value]) == [0.0, value]
    got = answer(question, [0.0, value], temperature)
    assert got == {"type": "noul", "noul": pytest.approx(1 / (1 + math.exp(-value / temperature)), abs=1e-15)}


@given(st.lists(logits, min_size=1, max_size=9), st.floats(0.05, 20))
def test_choice_against_its_formulas(values, temperature):
    names = [f"option {index}" for index in range(len(values))]
    got = answer(one(choice(*names)), values, temperature)
    weights = [math.exp(value / temperature - max(values) / temperature) for value in values]
    expected = [weight / sum(weights) for weight in weights]
    assert list(got["probabilities"]) == names
    assert list(got["probabilities"].values()) == pytest.approx(expected, abs=1e-14)
    assert got["choice"] == names[got_index(got, max)]
    n = len(values)
    wanted = 1.0 if n == 1 else (max(expected) - 1 / n) / (1 - 1 / n)
    assert got["confidence"] == pytest.approx(wanted, abs=1e-12)
    assert 0 <= got["confidence"] <= 1


def got_index(got: dict[str, Any], pick: Any) -> int:
    values = list(got["probabilities"].values())
    return values.index(pick(values))


@given(st.lists(logits, min_size=2, max_size=10), st.floats(0.05, 20))
def test_score_against_its_formulas(values, temperature):
    levels = [{"level": index} for index in range(len(values))]
    got = answer(one(score(*levels)), values, temperature)
    chances = list(got["probabilities"].values())
    keys = [str(index) for index in range(len(values))]
    assert list(got["probabilities"]) == keys
    assert got["legend"] == dict(zip(keys, levels, strict=True))
    assert got["score"] == pytest.approx(sum(index * chance for index, chance in enumerate(chances)), abs=1e-12)
    mode, centre = chances.index(max(chances)), (len(values) - 1) / 2
    spread = sum(chance * abs(index - mode) for index, chance in enumerate(chances))
    even = sum(abs(index - centre) for index in range(len(values))) / len(values)
    assert got["confidence"] == pytest.approx(max(0, 1 - spread / even), abs=1e-12)


def test_the_first_maximum_wins_a_tie():
    assert answer(one(choice("b", "a", "c")), [1.0, 3.0, 3.0], 1.0)["choice"] == "a"
    assert answer(one(score("x", "y", "z")), [2.0, 0.0, 2.0], 1.0)["confidence"] < 0.1  # mode 0, mass far away


@given(st.lists(logits, min_size=2, max_size=9, unique=True), st.randoms(use_true_random=False), st.floats(0.05, 20))
def test_an_option_has_the_same_bits_in_any_order(values, random, temperature):
    named = {f"o{index}": value for index, value in enumerate(values)}
    shuffled = list(named)
    random.shuffle(shuffled)
    first = answer(one(choice(*named)), list(named.values()), temperature)
    second = answer(one(choice(*shuffled)), [named[name] for name in shuffled], temperature)
    assert second["probabilities"] == first["probabilities"]
    assert second["confidence"] == first["confidence"]


def test_extreme_logits_stay_finite():
    got = answer(one(choice("a", "b")), [1e308, -1e308], 1e-3)
    assert got["probabilities"] == {"a": 1.0, "b": 0.0}
    assert answer(one(noul()), [0.0, -800.0], 1.0)["noul"] == 0.0


@pytest.mark.parametrize(
    ("values", "temperature", "message"),
    [
        ([0.0], 1.0, "needs 2 logits"),
        ([0.0, math.nan], 1.0, "finite"),
        ([0.0, math.inf], 1.0, "finite"),
        ([0.0, 1.0], 0.0, "temperature"),
        ([0.0, 1.0], math.nan, "temperature"),
    ],
)
def test_answers_refuse_what_they_cannot_mean(values, temperature, message):
    with pytest.raises(ContractError, match=message) as caught:
        answer(one(noul()), values, temperature)
    assert caught.value.where == "q"


def test_scores_come_one_a_candidate():
    with pytest.raises(ContractError, match="2 candidates need as many scores, got 1"):
        one(choice("a", "b")).logits([1.0])


def test_the_contract_needs_nothing_but_the_standard_library():
    code = (
        "import sys, openjev_lab.contract; "
        "assert not {'numpy', 'pydantic', 'torch', 'fastapi', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
