"""A reply as the columns of a timings row: the answer where there is one, else what is wrong with it.

Takes a ``Reply`` and whether the request was one yes-or-no question; returns plain columns. Apart from ``client``
because this runs after the clock has stopped, and from ``passes`` because it can be tested on text alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from openjev_lab.evidence.manifest import sha256_of
from openjev_lab.measure.client import Reply

OK = 200
NS_PER_MS = 1_000_000
STAGES = ("queue", "prepare", "execute", "finish")
MAX_ERROR_CHARACTERS = 300
NO_ANSWER: dict[str, Any] = dict.fromkeys(
    ("tokens", *(f"{stage}_ns" for stage in STAGES), "probability", "score", "probabilities", "scores")
)


def columns(reply: Reply) -> dict[str, Any]:
    """started_ns, latency_ns, status, error, response_sha256, tokens, the stages, probabilities and scores."""
    sent = {"started_ns": reply.started_ns, "latency_ns": reply.latency_ns, "status": reply.status}
    if reply.text is None:
        return sent | NO_ANSWER | {"response_sha256": None, "error": _short(reply.error or "no reply")}
    if reply.status != OK:
        error = f"HTTP {reply.status}: {_detail(reply.text)}"
        return sent | NO_ANSWER | {"response_sha256": _sha256(reply.text), "error": _short(error)}
    try:
        return sent | _answered(reply.text) | {"error": None}
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as problem:
        error = f"not an answer of /v1/systemone: {type(problem).__name__}: {problem}"
        return sent | NO_ANSWER | {"response_sha256": _sha256(reply.text), "error": _short(error)}


def null_columns(reply: Reply) -> dict[str, Any]:
    """The same for the null endpoint, whose reply says nothing."""
    told = columns(reply)
    return told | NO_ANSWER | {"error": None} if reply.status == OK else told


def _answered(text: str) -> dict[str, Any]:
    response = json.loads(text, parse_constant=_refuse)
    metadata = response.pop("metadata")
    answers = list(response["answers"].values())
    probabilities = [value for answer in answers for value in _probabilities(answer)]
    scores = [float(score) for score in metadata["scores"]]
    if len(scores) != len(probabilities) or not all(0 <= value <= 1 for value in probabilities):
        raise ValueError(f"{len(probabilities)} probabilities and {len(scores)} scores, or one outside 0 to 1")
    lone = len(answers) == 1 and answers[0]["type"] == "noul"
    stages_ns = {f"{stage}_ns": _ns(metadata[f"{stage}_ms"]) for stage in STAGES}
    return {
        "tokens": response["usage"]["input_tokens"],
        **stages_ns,
        "probability": probabilities[0] if lone else None,
        "score": scores[0] if len(scores) == 1 else None,
        "probabilities": probabilities,
        "scores": scores,
        "response_sha256": sha256_of(response),
    }


def _probabilities(answer: dict[str, Any]) -> list[float]:
    if answer["type"] == "noul":
        return [float(answer["noul"])]
    return [float(value) for value in answer["probabilities"].values()]


def _ns(milliseconds: float) -> int:
    if not (math.isfinite(milliseconds) and milliseconds >= 0):
        raise ValueError(f"a stage took {milliseconds} ms")
    return round(milliseconds * NS_PER_MS)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _detail(text: str) -> str:
    """The problem's ``detail`` where the body is one, else the body."""
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, TypeError, KeyError):
        return text


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_ERROR_CHARACTERS else line[: MAX_ERROR_CHARACTERS - 1] + "…"
