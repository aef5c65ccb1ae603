"""The two row types of a run, their checks, and the table that the timings become.

Takes what was measured, returns checked records and a polars frame in a declared schema. Null means "not measured";
NaN does not exist here. Apart from the journal because a row means the same wherever it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1
NULL_ARM = "null-endpoint"
"""Arm and workload of the rows that time the client alone: a POST that the server only reads and answers."""
FIRST_INFERENCE = -2
"""Pass index of an arm's first request, which is never counted."""
FEASIBILITY = -1
"""Pass index of the pass that only shows that every request can be served."""

Count = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Row(BaseModel):
    """What both kinds share: exact types, no unknown fields, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class TimingRow(Row):
    """One request, sent once."""

    run_id: str
    """Name of the run, the same in every row."""
    arm: str
    """Arm of the experiment, or ``NULL_ARM``."""
    workload: str
    """Workload of the experiment, or ``NULL_ARM``."""
    pass_index: Annotated[int, Field(ge=FIRST_INFERENCE)]
    """0, 1, ... for measured passes; negative for what is excluded."""
    measured: bool
    """Whether statistics may use the row: exactly the passes from 0 on."""
    position: Count
    """Place in its pass, in the order sent."""
    request_id: str
    """Name of the request in its workload."""
    question_count: Count
    """Questions in the request."""
    tokens: Count | None
    """Input tokens as the server counted them, over all candidates."""
    expected_tokens: Count | None
    """Input tokens as the workload was built for; null where there is no such number."""
    label: bool | None
    """The right answer of a labelled yes-or-no request."""
    started_ns: Count
    """Wall clock just before sending, ns since 1970."""
    latency_ns: Count | None
    """From just before the POST to its body read and decoded; null without a whole response."""
    queue_ns: Count | None
    """Server: waiting."""
    prepare_ns: Count | None
    """Server: validating, compiling, tokenizing."""
    execute_ns: Count | None
    """Server: the forwards."""
    finish_ns: Count | None
    """Server: scores to answers to JSON."""
    probability: Probability | None
    """P(yes) where the request is one yes-or-no question, else null."""
    score: float | None
    """The head's score where the request has one candidate, else null."""
    probabilities: list[Probability] | None
    """Every probability of the answers, in order: P(yes) of a noul, all of a choice or a score."""
    scores: list[float] | None
    """The head's score behind each of ``probabilities``."""
    status: int | None
    """HTTP status; null without a whole response."""
    response_sha256: Sha256 | None
    """Of the answer in canonical JSON without its ``metadata`` (times and ids); of the body where it is no answer."""
    error: str | None
    """Why the row has no answer; null for an answered request."""
    attempt: Count
    """Which server process of this arm answered: 0 for the first, one more each time the run was continued."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.measured != (self.pass_index >= 0):
            raise ValueError(f"measured={self.measured} with pass_index {self.pass_index}: 0 and up are measured")
        if self.error is None and (self.status is None or self.latency_ns is None):
            raise ValueError("a row without an error has a status and a latency")
        if self.error is not None and self.probabilities is not None:
            raise ValueError("a row with an error has no answer")
        return self

    @property
    def key(self) -> tuple[str | int, ...]:
        """What may occur once in a run: a measured request of a pass; an excluded one once a server process."""
        attempt = -1 if self.measured else self.attempt
        return (self.arm, self.workload, self.pass_index, self.request_id, attempt)


class ArmRow(Row):
    """What became of an arm; the last row about an arm holds."""

    arm: str
    status: Literal["running", "measured", "skipped", "failed"]
    """running: a server was ready; measured: every row is there; skipped: it can't run here; failed: it broke."""
    reason: str | None
    """Why skipped or failed."""
    attempt: Count
    """Server processes of this arm before this one."""
    at: str
    """UTC, ISO 8601."""
    code_sha256: Sha256
    """Of the code that measured (``manifest.code_sha256``)."""
    describe: dict[str, Any]
    """What the server said really runs; empty if none was ready."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.status in ("skipped", "failed")) != bool(self.reason):
            raise ValueError(f"status {self.status} with reason {self.reason!r}: skipped and failed have one")
        return self


SORT = ("workload", "arm", "pass_index", "attempt", "position", "request_id")


def schema() -> pl.Schema:
    """Column -> polars type of timings.parquet, in order."""
    import polars as pl

    whole = pl.Int64()
    types: dict[str, pl.DataType] = {
        **dict.fromkeys(("run_id", "arm", "workload", "request_id", "response_sha256", "error"), pl.String()),
        **dict.fromkeys(("measured", "label"), pl.Boolean()),
        **dict.fromkeys(("pass_index", "position", "question_count", "tokens", "expected_tokens"), whole),
        **dict.fromkeys(("started_ns", "latency_ns", "queue_ns", "prepare_ns", "execute_ns", "finish_ns"), whole),
        **dict.fromkeys(("status", "attempt"), whole),
        **dict.fromkeys(("probability", "score"), pl.Float64()),
        **dict.fromkeys(("probabilities", "scores"), pl.List(pl.Float64())),
    }
    return pl.Schema({name: types[name] for name in TimingRow.model_fields})


def frame(rows: Iterable[TimingRow]) -> pl.DataFrame:
    """Rows as a table in ``schema()``, in an order that does not depend on when they were measured."""
    import polars as pl

    return pl.DataFrame([row.model_dump() for row in rows], schema=schema(), orient="row").sort(SORT)
