"""The wire contract: a decoded request becomes questions with prompts, their scores become answers.

Takes what a client sent (bytes or a dict), returns plain data: no tokenizer, no model, no HTTP, nothing outside the
standard library, so that the service, the measurement, the training script and the tests all mean the same request.
Whatever a client got wrong is a ``ContractError`` that names the question, what is wrong and what would be right.

    request --compile_request--> [Question] --prompts--> (tokens, forward) --scores--> question.logits --answer--> dict
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openjev_lab.strict_json import ContractError, is_text, kind_of, parse_json, quoted

__all__ = ["ContractError", "Question", "answer", "check_model", "compile_request", "parse_json", "render"]

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_QUESTIONS = 4_096
MAX_CANDIDATES = 65_536
MAX_OPTIONS = 255
MIN_LEVELS = 2
MAX_LEVELS = 10
DEFAULT_MAX_LENGTH_TOKENS = 4_096
MAX_LENGTH_TOKENS = 16_384
"""No checkpoint may allow more tokens a candidate than this; what it does allow is its own ``max_length``."""

KINDS = ("noul", "choice", "score")
MODEL_ALIASES = ("open-jev", "jev-latest")
"""Names that every server of this contract answers to, beside the base's name and the checkpoint's alias."""

NOUL_ENDING = "Is the answer to this question yes? Answer Yes or No."
CANDIDATE_ENDING = "Proposed answer: {option}\nIs this proposed answer correct? Answer Yes or No."


@dataclass(frozen=True, slots=True)
class Question:
    """One typed question, ready to be scored. Prompts are put together when asked for: they share a long context."""

    id: str
    kind: str
    """"noul", "choice" or "score"."""
    keys: tuple[str, ...]
    """What each logit stands for: ("false", "true"), the option names in order, or "0".."n-1"."""
    context: str
    """``Context:`` and the state, up to the question; the same object for every question of a request."""
    text: str
    """The question's own text, ending in a newline."""
    endings: tuple[str, ...]
    """One a candidate: one for noul, one an option or level."""
    levels: tuple[Any, ...] = ()
    """The level descriptions of a score, as sent."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """The candidates' prompts, before the chat template."""
        return tuple(self.prompt(index) for index in range(len(self.endings)))

    def prompt(self, index: int) -> str:
        """The prompt of one candidate."""
        return f"{self.context}{self.text}{self.endings[index]}"

    def logits(self, scores: Sequence[float]) -> list[float]:
        """The question's logits, one a key, from its candidates' scores, one a prompt: [0, s] for noul."""
        if len(scores) != len(self.endings):
            raise ContractError(f"{len(self.endings)} candidates need as many scores, got {len(scores)}", self.id)
        return [0.0, float(scores[0])] if self.kind == "noul" else [float(score) for score in scores]


# ---- request -> questions


def render(value: Any) -> str:
    """Text as it is; an object or array as JSON with sorted keys, ", " and ": ", and non-ASCII kept. Refuses NaN."""
    if not isinstance(value, str | dict | list):
        raise ContractError(f"must be text, an object or an array, not {kind_of(value)}")
    text = value
    try:
        if not isinstance(text, str):
            text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    except ValueError:
        raise ContractError("holds NaN or Infinity; send finite numbers, text or null") from None
    except TypeError as error:
        raise ContractError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ContractError("is nested too deeply; flatten it") from None
    if not is_text(text):
        raise ContractError("holds a lone surrogate, which is not text; send whole characters")
    return text


def check_model(request: Mapping[str, Any], accepted: Collection[str]) -> None:
    """Raises ``ContractError`` unless the request's model is absent, null or one of the ``accepted`` names."""
    model = request.get("model")
    if model is not None and not (isinstance(model, str) and model in accepted):
        raise ContractError(f"model {quoted(model)} is not served here; send one of {', '.join(sorted(accepted))}")


def compile_request(request: dict[str, Any]) -> list[Question]:
    """The request's questions in order, each with the prompts of its candidates.

    Raises ``ContractError`` for the first thing that the contract refuses; nothing is repaired or dropped. The model's
    name is only known to a server: ``check_model``.
    """
    if not isinstance(request, dict):
        raise ContractError(f"the request must be an object, not {kind_of(request)}")
    _only(request, ("model", "state", "questions"), None)
    for key in ("state", "questions"):
        if key not in request:
            raise ContractError(f"{key!r} is missing; a request is {{model?, state, questions}}")
    if not isinstance(request.get("model"), str | None):
        raise ContractError(f"'model' must be a name or null, not {kind_of(request['model'])}")
    questions = request["questions"]
    if not isinstance(questions, dict):
        raise ContractError(f"'questions' must be an object of id to question, not {kind_of(questions)}")
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise ContractError(f"'questions' must hold 1 to {MAX_QUESTIONS} questions, got {len(questions)}")
    context = f"Context:\n{_content(request, 'state', None)}\n\nQuestion: "
    compiled: list[Question] = []
    candidates = 0
    for name, question in questions.items():
        compiled.append(_question(name, question, context))
        candidates += len(compiled[-1].endings)
        if candidates > MAX_CANDIDATES:
            raise ContractError(f"this question goes past {MAX_CANDIDATES} candidates a request; split it", name)
    return compiled


def _question(name: Any, question: Any, context: str) -> Question:
    if not isinstance(name, str) or not is_text(name):
        raise ContractError(f"a question's id must be text, got {quoted(name)}")
    if not isinstance(question, dict):
        raise ContractError(f"must be an object with type, instructions and criteria, not {kind_of(question)}", name)
    kind = question.get("type")
    if kind not in KINDS:
        raise ContractError(f"type must be one of {', '.join(KINDS)}, got {quoted(kind)}", name)
    _only(question, ("type", "instructions", "criteria"), name)
    if "instructions" not in question:
        raise ContractError("'instructions' is missing; send the question as text, an object or an array", name)
    instructions = _content(question, "instructions", name)
    criteria = question.get("criteria")
    if kind == "noul":
        text = f"{instructions}{_noul_meanings(criteria, name)}\n"
        return Question(name, kind, ("false", "true"), context, text, (NOUL_ENDING,))
    options = _options(criteria, name) if kind == "choice" else _levels(criteria, name)
    endings = tuple(CANDIDATE_ENDING.replace("{option}", option) for option in options.values())
    levels = tuple(question["criteria"]) if kind == "score" else ()
    return Question(name, kind, tuple(options), context, f"{instructions}\n", endings, levels)


def _noul_meanings(criteria: Any, name: str) -> str:
    if criteria is None:
        return ""
    if not isinstance(criteria, dict) or criteria.keys() != {"true", "false"}:
        raise ContractError("criteria of a noul must be absent, null or exactly {'true': ..., 'false': ...}", name)
    yes, no = _content(criteria, "true", name), _content(criteria, "false", name)
    return f"\nYes means: {yes}\nNo means: {no}"


def _options(criteria: Any, name: str) -> dict[str, str]:
    """Option name -> what the prompt proposes."""
    if not isinstance(criteria, dict) or not 1 <= len(criteria) <= MAX_OPTIONS:
        got = f"{len(criteria)} options" if isinstance(criteria, dict) else kind_of(criteria)
        raise ContractError(
            f"criteria of a choice must be an object of 1 to {MAX_OPTIONS} option names, each with a description or "
            f"null; got {got}",
            name,
        )
    for option in criteria:
        if not isinstance(option, str) or not is_text(option):
            raise ContractError(f"an option's name must be text, got {quoted(option)}", name)
    return {
        option: option if meaning is None else f"{option}: {_content(criteria, option, name)}"
        for option, meaning in criteria.items()
    }


def _levels(criteria: Any, name: str) -> dict[str, str]:
    """Level number as text -> what the prompt proposes."""
    if not isinstance(criteria, list) or not MIN_LEVELS <= len(criteria) <= MAX_LEVELS:
        got = f"{len(criteria)} levels" if isinstance(criteria, list) else kind_of(criteria)
        raise ContractError(
            f"criteria of a score must be an array of {MIN_LEVELS} to {MAX_LEVELS} level descriptions; got {got}", name
        )
    return {str(level): _content(criteria, level, name) for level in range(len(criteria))}


def _content(holder: Any, key: Any, where: str | None) -> str:
    try:
        return render(holder[key])
    except ContractError as error:
        raise ContractError(f"{quoted(key)} {error}", where) from None


def _only(given: dict[str, Any], known: Sequence[str], where: str | None) -> None:
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ContractError(f"unknown key {quoted(unknown[0])}; known are {', '.join(known)}", where)


# ---- scores -> answers


def softmax(logits: Sequence[float], temperature: float) -> list[float]:
    """softmax(logits / temperature) in float64.

    The sum is exactly rounded (``math.fsum``), so that an option's probability has the same bits in any order.
    """
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def answer(question: Question, logits: Sequence[float], temperature: float) -> dict[str, Any]:
    """The answer object of one question.

    ``logits`` are the question's, one a key in order: [0, s] for noul, else its candidates' scores
    (``question.logits(scores)``). ``temperature`` > 0 divides them. Raises ``ContractError`` for a wrong number of
    logits, for one that is not finite, and for a temperature that is not above 0.
    """
    if len(logits) != len(question.keys):
        raise ContractError(f"needs {len(question.keys)} logits, one a key, got {len(logits)}", question.id)
    if not all(math.isfinite(logit) for logit in logits):
        raise ContractError(f"logits must be finite, got {list(logits)[:8]}", question.id)
    if not (math.isfinite(temperature) and temperature > 0):
        raise ContractError(f"temperature must be a finite number above 0, got {temperature}", question.id)
    chances = softmax(logits, temperature)
    if question.kind == "noul":
        return {"type": "noul", "noul": chances[1]}
    if question.kind == "choice":
        return _choice(question, chances)
    return _score(question, chances)


def _choice(question: Question, chances: list[float]) -> dict[str, Any]:
    count, best = len(chances), max(chances)
    confidence = 1.0 if count == 1 else (best - 1 / count) / (1 - 1 / count)
    return {
        "type": "choice",
        "choice": question.keys[chances.index(best)],
        "probabilities": dict(zip(question.keys, chances, strict=True)),
        "confidence": min(1.0, max(0.0, confidence)),  # rounding may leave [0, 1] by one unit in the last place
    }


def _score(question: Question, chances: list[float]) -> dict[str, Any]:
    count, mode = len(chances), chances.index(max(chances))
    spread = math.fsum(chance * abs(level - mode) for level, chance in enumerate(chances))
    even = math.fsum(abs(level - (count - 1) / 2) for level in range(count)) / count
    return {
        "type": "score",
        "score": math.fsum(chance * level for level, chance in enumerate(chances)),
        "probabilities": dict(zip(question.keys, chances, strict=True)),
        "confidence": max(0.0, 1 - spread / even),
        "legend": dict(zip(question.keys, question.levels, strict=True)),
    }
