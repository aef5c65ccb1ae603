"""The wire format as pydantic models: the source of ``openapi.json`` and what the tests hold responses against.

Requests are not parsed with them: ``contract`` also sees what a parsed model can't show (repeated keys, surrogates),
says what would be right, and costs a tenth. A test holds the two to the same verdicts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from openjev_lab.contract import MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS, MIN_LEVELS

Content = str | dict[str, Any] | list[Any]
Probability = Annotated[float, Field(ge=0, le=1)]


class Wire(BaseModel):
    """What every model here shares: unknown keys and loose types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Meanings(Wire):
    """What yes and no mean for a noul."""

    true: Content
    false: Content


class NoulQuestion(Wire):
    """A yes-or-no question."""

    type: Literal["noul"]
    instructions: Content
    criteria: Meanings | None = None


class ChoiceQuestion(Wire):
    """One of several named options; an option without a description is shown by its name alone."""

    type: Literal["choice"]
    instructions: Content
    criteria: dict[str, Content | None] = Field(min_length=1, max_length=MAX_OPTIONS)


class ScoreQuestion(Wire):
    """A place on a scale whose levels are described from lowest to highest."""

    type: Literal["score"]
    instructions: Content
    criteria: list[Content] = Field(min_length=MIN_LEVELS, max_length=MAX_LEVELS)


Question = Annotated[NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


class SystemOneRequest(Wire):
    """A state and the questions about it, each with an id of the client's."""

    model: str | None = None
    state: Content
    questions: dict[str, Question] = Field(min_length=1, max_length=MAX_QUESTIONS)


class NoulAnswer(Wire):
    """P(yes)."""

    type: Literal["noul"]
    noul: Probability


class ChoiceAnswer(Wire):
    """The most probable option (the first of equals), and all probabilities in the order asked."""

    type: Literal["choice"]
    choice: str
    probabilities: dict[str, Probability]
    confidence: Probability


class ScoreAnswer(Wire):
    """The expected level, and the probability of each level "0".."n-1"."""

    type: Literal["score"]
    score: float
    probabilities: dict[str, Probability]
    confidence: Probability
    legend: dict[str, Content]


class Usage(Wire):
    """Tokens of the request."""

    input_tokens: int = Field(description="Every candidate's own tokens, whatever was shared.")
    output_tokens: Literal[0]


class Metadata(Wire):
    """What the request went through on this server."""

    request_id: str
    queue_ms: float = Field(description="Waiting, before prepare and before execute.")
    prepare_ms: float = Field(description="Validating, compiling, tokenizing.")
    execute_ms: float = Field(description="The forwards.")
    finish_ms: float = Field(description="Scores to answers to JSON.")
    elapsed_ms: float = Field(description="From the request's arrival to the end of finish.")
    candidate_tokens: list[int] = Field(description="Tokens of each candidate, in order of questions and options.")
    scores: list[float] = Field(description="The head's score of each candidate, before the temperature.")


class SystemOneResponse(Wire):
    """An answer for every question."""

    model: str
    answers: dict[str, Annotated[NoulAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]]
    usage: Usage
    metadata: Metadata


class Problem(Wire):
    """Any error."""

    detail: str = Field(description="What is wrong, in which question, and what would be right.")


class Health(Wire):
    """Sent with status 200 only after a warm-up forward."""

    status: Literal["ready"]


class ModelEntry(Wire):
    """One accepted model name."""

    name: str
    description: str
    release_date: str = Field(description='YYYY-MM-DD, or "unknown": checkpoints do not record one.')


class ModelList(Wire):
    """Every name that a request's ``model`` may hold; they all mean the one model served."""

    models: list[ModelEntry]
