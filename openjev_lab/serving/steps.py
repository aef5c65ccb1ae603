"""One request's three steps as plain functions: ``prepare`` (bytes to token ids), ``execute`` (scores), ``finish``.

Takes bytes, an arm's ``score`` and a package's settings; returns the response's bytes. No thread, no queue and no HTTP
here, so that each step can be read, tested and timed alone. ``worker`` says where and when each of them runs.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from openjev_lab.contract import ContractError, Question, answer, check_model, compile_request, parse_json
from openjev_lab.tokens import Prompter


class Stopped(Exception):
    """The client has gone: whatever is computed now is for nobody."""


class ForwardFailed(RuntimeError):
    """The arm raised, or gave a score that is not a number: the request gets a 500, its neighbours nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request is held to, from the checkpoint."""

    names: Collection[str]
    """Accepted model names."""
    max_length_tokens: int
    """Most tokens of one candidate."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that the contract accepts, tokenized; nothing of it has been computed yet."""

    questions: list[Question]
    ids: list[array[int]]
    """Token ids of each different prompt (C ints: a request may hold 65,536 of them)."""
    which: list[int]
    """For every candidate, in order of questions and then of keys: its place in ``ids``."""

    @property
    def candidate_tokens(self) -> list[int]:
        """Every candidate's own tokens, shared prompts counted each time."""
        return [len(self.ids[place]) for place in self.which]


def prepare(body: bytes, prompter: Prompter, limits: Limits, gone: Callable[[], bool]) -> Prepared:
    """Validates, compiles and tokenizes; prompts of a request that are the same text are kept once.

    Raises ``ContractError`` (nothing is cut to fit), or ``Stopped`` once ``gone()``.
    """
    request = parse_json(body)
    questions = compile_request(request)
    check_model(request, limits.names)
    ids: list[array[int]] = []
    which: list[int] = []
    known: dict[tuple[str, str], int] = {}  # the state is the same for all, so text and ending tell prompts apart
    for question in questions:
        for index, ending in enumerate(question.endings):
            if gone():
                raise Stopped
            place = known.setdefault((question.text, ending), len(ids))
            if place == len(ids):
                ids.append(_encode(question, index, prompter, limits.max_length_tokens))
            which.append(place)
    return Prepared(questions, ids, which)


def _encode(question: Question, index: int, prompter: Prompter, max_length_tokens: int) -> array[int]:
    ids = prompter.encode(question.prompt(index))
    if len(ids) > max_length_tokens:
        part = "the prompt" if question.kind == "noul" else f"candidate {index}"
        raise ContractError(
            f"{part} has {len(ids)} tokens, the checkpoint takes {max_length_tokens}; nothing is cut, send less",
            question.id,
        )
    return array("i", ids)


def execute(prepared: Prepared, score: Callable[[Sequence[int]], float], gone: Callable[[], bool]) -> list[float]:
    """Every candidate's score, each computed alone: neighbours, order and ids can't reach it.

    Raises ``ForwardFailed``, or ``Stopped`` once ``gone()``.
    """
    scores: list[float] = []
    for ids in prepared.ids:
        if gone():
            raise Stopped
        try:
            value = float(score(ids.tolist()))
        except Exception as error:
            raise ForwardFailed(f"the forward of {len(ids)} tokens failed: {type(error).__name__}: {error}") from error
        if not math.isfinite(value):
            raise ForwardFailed(f"the forward of {len(ids)} tokens gave the score {value}, which is not a number")
        scores.append(value)
    return [scores[place] for place in prepared.which]


def finish(prepared: Prepared, scores: Sequence[float], temperature: float, model: str) -> bytes:
    """The response as JSON, without its metadata and still open at the end: ``close`` adds them."""
    answers: dict[str, Any] = {}
    start = 0
    for question in prepared.questions:
        stop = start + len(question.endings)
        answers[question.id] = answer(question, question.logits(scores[start:stop]), temperature)
        start = stop
    usage = {"input_tokens": sum(prepared.candidate_tokens), "output_tokens": 0}
    return dump({"model": model, "answers": answers, "usage": usage})[:-1]


def close(opened: bytes, metadata: dict[str, Any]) -> bytes:
    """The whole response: the timings of ``finish`` itself are only known once its bytes are there."""
    return opened + b',"metadata":' + dump(metadata) + b"}"


def dump(value: Any) -> bytes:
    """JSON as the service writes it: compact, UTF-8, never NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
