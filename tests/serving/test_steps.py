"""prepare, execute and finish alone: nothing is computed for a bad request, nothing leaks between candidates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from openjev_lab.contract import ContractError, compile_request
from openjev_lab.serving import models, steps

LIMITS = steps.Limits({"fake", "open-jev"}, 400)


class Bytes:
    """A tokenizer of one token a byte."""

    def encode(self, prompt: str) -> list[int]:
        return list(prompt.encode())


def score(ids: Any) -> float:
    return (sum(ids) % 89) / 10 - 4


def never() -> bool:
    return False


def respond(request: dict[str, Any]) -> dict[str, Any]:
    prepared = steps.prepare(json.dumps(request).encode(), Bytes(), LIMITS, never)
    scores = steps.execute(prepared, score, never)
    metadata = {"candidate_tokens": prepared.candidate_tokens, "scores": scores}
    return json.loads(steps.close(steps.finish(prepared, scores, 1.5, "fake"), metadata))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
content = text | st.lists(text | st.integers(), max_size=2) | st.dictionaries(text, text, max_size=2)
question = st.one_of(
    st.fixed_dictionaries({"type": st.just("noul"), "instructions": content}),
    st.fixed_dictionaries(
        {
            "type": st.just("choice"),
            "instructions": content,
            "criteria": st.dictionaries(text, st.none() | content, min_size=1, max_size=4),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("score"), "instructions": content, "criteria": st.lists(content, min_size=2, max_size=4)}
    ),
)
requests = st.fixed_dictionaries(
    {"state": content, "questions": st.dictionaries(text, question, min_size=1, max_size=3)}
)


@given(requests)
def test_answers_do_not_depend_on_order_or_company(request):
    whole = respond(request)
    turned = respond({**request, "questions": dict(reversed(request["questions"].items()))})
    assert turned["answers"] == whole["answers"]
    assert turned["usage"] == whole["usage"]
    for name, asked in request["questions"].items():
        alone = respond({"state": request["state"], "questions": {"another name": asked}})
        assert alone["answers"]["another name"] == whole["answers"][name]
        if asked["type"] == "choice":
            flipped = {**asked, "criteria": dict(reversed(asked["criteria"].items()))}
            again = respond({"state": request["state"], "questions": {name: flipped}})["answers"][name]
            assert again["probabilities"] == whole["answers"][name]["probabilities"]
            assert again["confidence"] == whole["answers"][name]["confidence"]


@given(requests)
def test_responses_fit_the_published_models(request):
    response = respond(request)
    times = dict.fromkeys(["queue_ms", "prepare_ms", "execute_ms", "finish_ms", "elapsed_ms"], 0.5)
    response["metadata"].update(request_id="x", **times)
    models.SystemOneResponse.model_validate(response)
    assert list(response["answers"]) == list(request["questions"])


junk = (
    st.none()
    | st.booleans()
    | st.integers()
    | text
    | st.lists(text, max_size=2)
    | st.dictionaries(text, text, max_size=2)
)
loose = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["noul", "choice", "score", "box"]) | junk,
        "instructions": content | junk,
        "criteria": junk | st.fixed_dictionaries({"true": content | junk, "false": content | junk}),
        "more": junk,
    },
)


@given(
    st.fixed_dictionaries(
        {"questions": st.dictionaries(text, loose | question, max_size=2) | junk},
        optional={"state": content | junk, "model": junk, "more": junk},
    )
)
def test_the_contract_and_the_published_models_give_the_same_verdict(request):
    try:
        models.SystemOneRequest.model_validate(request)
        accepted = True
    except ValidationError:
        accepted = False
    try:
        compile_request(request)
        assert accepted
    except ContractError:
        assert not accepted


def test_equal_prompts_are_computed_once_and_counted_each_time():
    same = {"type": "noul", "instructions": "Is it?"}
    levels = {"type": "score", "instructions": "How?", "criteria": ["low", "low", "high"]}
    body = json.dumps({"state": "s", "questions": {"a": same, "b": same, "c": levels}}).encode()
    prepared = steps.prepare(body, Bytes(), LIMITS, never)
    seen: list[Any] = []
    scores = steps.execute(prepared, lambda ids: seen.append(ids) or score(ids), never)
    assert len(seen) == 3 and len(scores) == 5
    assert scores[0] == scores[1] and scores[2] == scores[3]
    lengths = [len(prompt) for asked in prepared.questions for prompt in asked.prompts]
    assert prepared.candidate_tokens == lengths
    assert json.loads(steps.finish(prepared, scores, 1.0, "m") + b"}")["usage"]["input_tokens"] == sum(lengths)


def test_a_prompt_may_be_as_long_as_the_checkpoint_takes_and_no_longer():
    def body(length: int) -> bytes:
        return json.dumps({"state": "x" * length, "questions": {"q": {"type": "noul", "instructions": "?"}}}).encode()

    [empty] = steps.prepare(body(0), Bytes(), LIMITS, never).candidate_tokens
    assert steps.prepare(body(400 - empty), Bytes(), LIMITS, never).candidate_tokens == [400]
    with pytest.raises(ContractError, match=r"question 'q': the prompt has 401 tokens, the checkpoint takes 400"):
        steps.prepare(body(401 - empty), Bytes(), LIMITS, never)


def test_the_candidate_that_is_too_long_is_named():
    criteria = {"a": None, "b": "x" * 500}
    request = {"state": "s", "questions": {"q": {"type": "choice", "instructions": "?", "criteria": criteria}}}
    with pytest.raises(ContractError, match="question 'q': candidate 1 has") as caught:
        steps.prepare(json.dumps(request).encode(), Bytes(), LIMITS, never)
    assert caught.value.where == "q"


def test_a_client_that_has_gone_stops_prepare_and_execute():
    body = json.dumps({"state": "s", "questions": {"q": {"type": "noul", "instructions": "?"}}}).encode()
    with pytest.raises(steps.Stopped):
        steps.prepare(body, Bytes(), LIMITS, lambda: True)
    prepared = steps.prepare(body, Bytes(), LIMITS, never)
    with pytest.raises(steps.Stopped):
        steps.execute(prepared, score, lambda: True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_fails_the_forward(value):
    body = json.dumps({"state": "s", "questions": {"q": {"type": "noul", "instructions": "?"}}}).encode()
    prepared = steps.prepare(body, Bytes(), LIMITS, never)
    with pytest.raises(steps.ForwardFailed, match="not a number"):
        steps.execute(prepared, lambda ids: value, never)
