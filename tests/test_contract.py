"""The wire contract: prompts to the letter, answers against their formulas, every refusal with its question named."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev_lab import contract
from openjev_lab.contract import ContractError, answer, compile_request, parse_json, render

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


# ---- refusals


def questions(**given: Any) -> dict[str, Any]:
    return {"state": "s", "questions": given}


REFUSED = [
    ([], None, "must be an object"),
    ({"questions": {"q": noul()}}, None, "'state' is missing"),
    ({"state": "s"}, None, "'questions' is missing"),
    ({"state": None, "questions": {"q": noul()}}, None, "'state' must be text, an object or an array, not null"),
    ({"state": 3, "questions": {"q": noul()}}, None, "not a number"),
    ({"state": True, "questions": {"q": noul()}}, None, "not a boolean"),
    ({"state": [math.nan], "questions": {"q": noul()}}, None, "'state' holds NaN"),
    ({"state": ["\ud800"], "questions": {"q": noul()}}, None, "'state' holds a lone surrogate"),
    ({"state": {"a": {1, 2}}, "questions": {"q": noul()}}, None, "'state' is not JSON"),
    ({"state": "s", "questions": {}}, None, "1 to 4096 questions, got 0"),
    ({"state": "s", "questions": [noul()]}, None, "not an array"),
    ({"state": "s", "questions": {"q": noul()}, "stat": 1}, None, "unknown key 'stat'"),
    ({"state": "s", "questions": {"q": noul()}, "assets": {}}, None, "unknown key 'assets'"),
    ({"state": "s", "questions": {"q": noul()}, "model": 5}, None, "'model' must be a name or null"),
    (questions(q="noul"), "q", "must be an object"),
    (questions(q={"instructions": "x"}), "q", "type must be one of noul, choice, score"),
    (questions(ok=noul(), q={**noul(), "type": "box"}), "q", "got 'box'"),
    (questions(q={**noul(), "type": ["noul"]}), "q", "type must be"),
    (questions(q={"type": "noul"}), "q", "'instructions' is missing"),
    (questions(q=noul(instructions=None)), "q", "'instructions' must be text"),
    (questions(q=noul(instructions={"a": math.inf})), "q", "'instructions' holds NaN or Infinity"),
    (questions(q=noul(hint="x")), "q", "unknown key 'hint'"),
    (questions(q=noul(criteria={})), "q", "exactly"),
    (questions(q=noul(criteria={"true": "x"})), "q", "exactly"),
    (questions(q=noul(criteria={"true": "x", "false": "y", "maybe": "z"})), "q", "exactly"),
    (questions(q=noul(criteria={"true": "x", "false": None})), "q", "'false' must be text"),
    (questions(q=noul(criteria="x")), "q", "exactly"),
    (questions(q={"type": "choice", "instructions": "x"}), "q", "got null"),
    (questions(q=choice()), "q", "1 to 255 option names.*got 0 options"),
    (questions(q=choice(*(str(index) for index in range(256)))), "q", "got 256 options"),
    (questions(q={**choice("a"), "criteria": ["a"]}), "q", "got an array"),
    (questions(q={**choice("a"), "criteria": {"a": 1}}), "q", "'a' must be text"),
    (questions(q={**choice("a"), "criteria": {1: "a"}}), "q", "an option's name must be text"),
    (questions(q=choice("\ud800")), "q", "an option's name must be text"),
    (questions(q=score("a")), "q", "2 to 10 level descriptions; got 1 levels"),
    (questions(q=score(*"abcdefghijk")), "q", "got 11 levels"),
    (questions(q=score("a", None)), "q", "'1' must be text"),
    (questions(q={**score("a", "b"), "criteria": {"0": "a", "1": "b"}}), "q", "got an object"),
    ({"state": "s", "questions": {"\ud800": noul()}}, None, "id must be text"),
    ({"state": "s", "questions": {1: noul()}}, None, "id must be text"),
]


@pytest.mark.parametrize(("request_", "where", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_bad_request_names_its_question_and_what_is_wrong(request_, where, message):
    with pytest.raises(ContractError, match=message) as caught:
        compile_request(request_)
    assert caught.value.where == where
    assert where is None or str(caught.value).startswith("question 'q': ")
    str(caught.value).encode("utf-8")  # it must survive the way into a JSON response


def test_the_edges_of_the_limits_are_inside():
    assert len(one(choice(*(str(index) for index in range(255)))).prompts) == 255
    assert len(one(score(*"abcdefghij")).prompts) == 10
    assert len(one(choice("a")).prompts) == 1
    assert len(compile_request(questions(**{str(index): noul() for index in range(4096)}))) == 4096
    with pytest.raises(ContractError, match="got 4097"):
        compile_request(questions(**{str(index): noul() for index in range(4097)}))


def test_the_question_that_goes_past_the_candidates_is_named():
    wide = choice(*(str(index) for index in range(255)))
    full = {f"w{index}": wide for index in range(257)}  # 65,535 candidates
    assert sum(len(question.endings) for question in compile_request(questions(**full, last=noul()))) == 65_536
    with pytest.raises(ContractError, match="65536 candidates") as caught:
        compile_request(questions(**full, last=choice("a", "b")))
    assert caught.value.where == "last"


def test_many_prompts_of_one_long_state_share_it():
    compiled = compile_request({"state": "x" * 1_000_000, "questions": {str(index): noul() for index in range(1000)}})
    assert len({id(question.context) for question in compiled}) == 1


@settings(max_examples=300)
@given(st.fixed_dictionaries({"state": json_values, "questions": json_values | st.dictionaries(text, json_values)}))
def test_nothing_but_a_contract_error_escapes(request):
    try:
        compile_request(request)
    except ContractError as error:
        str(error).encode("utf-8")


def test_model_names():
    names = {"open-jev", "tiny"}
    for given_ in ({}, {"model": None}, {"model": "tiny"}):
        contract.check_model(given_, names)
    for wrong in ("gpt", "", "Tiny", 5, ["tiny"]):
        with pytest.raises(ContractError, match="send one of open-jev, tiny"):
            contract.check_model({"model": wrong}, names)


# ---- bytes


@given(st.dictionaries(text, json_values, max_size=4), st.booleans())
def test_any_json_object_is_read(value, ascii_only):
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=40) | text.map(lambda value: ('{"a": ' + value).encode()))
def test_any_bytes_are_an_object_or_a_contract_error(body):
    try:
        assert isinstance(parse_json(body), dict)
    except ContractError as error:
        str(error).encode("utf-8")


BAD_BYTES = [
    (b"", None, "not JSON"),
    (b"hello", None, "not JSON: Expecting value at line 1 column 1"),
    (b"[1]", None, "must be a JSON object, not an array"),
    (b"null", None, "not null"),
    (b'{"a": 1} x', None, "not JSON"),
    (b'{"a": 01}', None, "not JSON"),
    (b"{'a': 1}", None, "not JSON"),
    (b'{"a": "\t"}', None, "not JSON: Invalid control character"),
    (b"\xff\xfe{\x00}\x00", None, "not UTF-8: byte 0"),
    (b'{"a": "\xed\xa0\x80"}', None, "not UTF-8"),
    (b"[" * 100_000, None, "nested too deeply"),
    (b'{"a": ' + b"9" * 5000 + b"}", None, "cannot be read"),
    (b'{"a": NaN}', None, "'NaN' is not a finite number.*in 'a'"),
    (b'{"a": [-Infinity]}', None, "'-Infinity' is not a finite number"),
    (b'{"a": 1e999}', None, "'1e999' is not a finite number"),
    (b'{"a": 1, "a": 1}', None, "key 'a' is given twice"),
    (b'{"state": "s", "questions": {"q": 1, "q": 2}}', None, "key 'q' is given twice.*in 'questions'"),
    (b'{"questions": {"q": {"type": "noul", "type": "noul"}}}', "q", "key 'type' is given twice"),
    (b'{"questions": {"q": {"criteria": {"a": 1, "b": 2, "\\u0061": 3}}}}', "q", "key 'a' is given twice"),
    (b'{"a": {"x": 1, "x": 2}, "a": 3}', None, "key 'x' is given twice"),
    (b'{"questions": {"q": {"instructions": [NaN]}}}', "q", "not a finite number.*'q' / 'instructions' / '0'"),
    (b'{"questions": {"q": {"instructions": "\\ud83d"}}}', "q", "lone surrogate"),
    (b'{"questions": {"q": {"criteria": {"\\udc00": null}}}}', "q", "lone surrogate"),
    (b'{"questions": {"\\udfff": {}}}', "\udfff", "lone surrogate"),
    (b'{"state": ["\\ud83d \\ude00"]}', None, "lone surrogate.*in 'state' / '0'"),
]


@pytest.mark.parametrize(("body", "where", "message"), BAD_BYTES, ids=[str(body[:50]) for body, *_ in BAD_BYTES])
def test_bad_bytes_are_refused_with_where_they_are(body, where, message):
    with pytest.raises(ContractError, match=message) as caught:
        parse_json(body)
    assert caught.value.where == where
    str(caught.value).encode("utf-8")


def test_whole_surrogate_pairs_and_escapes_are_text():
    assert parse_json(b'{"a": "\\ud83d\\ude00 \\u00e9 \\u0000"}') == {"a": "😀 é \x00"}


def test_the_contract_needs_nothing_but_the_standard_library():
    code = (
        "import sys, openjev_lab.contract; "
        "assert not {'numpy', 'pydantic', 'torch', 'fastapi', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
