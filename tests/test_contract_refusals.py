"""What the contract refuses: each bad request names its question, what is wrong and what would be right."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev_lab.contract import ContractError, check_model, compile_request

text = st.text(max_size=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def noul(**more: Any) -> dict[str, Any]:
    return {"type": "noul", "instructions": "Is it?", **more}


def choice(*names: str) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(names)}


def score(*levels: Any) -> dict[str, Any]:
    return {"type": "score", "instructions": "How?", "criteria": list(levels)}


def questions(**given: Any) -> dict[str, Any]:
    return {"state": "s", "questions": given}


def candidates(question: dict[str, Any]) -> int:
    return len(compile_request(questions(q=question))[0].prompts)


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
    assert candidates(choice(*(str(index) for index in range(255)))) == 255
    assert candidates(score(*"abcdefghij")) == 10
    assert candidates(choice("a")) == 1
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
@given(st.fixed_dictionaries({"state": anything, "questions": anything | st.dictionaries(text, anything)}))
def test_nothing_but_a_contract_error_escapes(request):
    try:
        compile_request(request)
    except ContractError as error:
        str(error).encode("utf-8")


def test_model_names():
    names = {"open-jev", "tiny"}
    for given_ in ({}, {"model": None}, {"model": "tiny"}):
        check_model(given_, names)
    for wrong in ("gpt", "", "Tiny", 5, ["tiny"]):
        with pytest.raises(ContractError, match="send one of open-jev, tiny"):
            check_model({"model": wrong}, names)
