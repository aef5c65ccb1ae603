"""What a gate may be about: one number for an arm, or for an arm against another.

Takes the timings table and names; returns a float, or raises ``CannotTell`` with the reason. Apart from ``gates`` so
that adding a metric is adding a function to the table at the end; how the numbers are computed is in ``stats``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openjev_lab import stats

if TYPE_CHECKING:
    import polars as pl

DECISION = 0.5


class CannotTell(Exception):
    """The rows do not hold what the metric needs; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: ``value(timings, arm, base, workload)``, with base None unless it ``compares``."""

    value: Callable[[pl.DataFrame, str, str | None, str], float]
    compares: bool
    says: str
    """The number in words, for a gate's reason; ``{value}`` in it."""


def mean_ms(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Mean latency over requests, each request's mean over the measured passes, in ms."""
    rows = stats.request_means(timings, arm, workload)
    if rows.is_empty():
        raise CannotTell(f"{arm} answered no request of {workload}")
    return float(rows["latency_ms"].to_numpy().mean())


def speedup(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Mean latency of ``base`` over that of ``arm``, on the requests that both answered."""
    ours, theirs = stats.paired_latencies(timings, arm, str(base), workload)
    if not ours.size:
        raise CannotTell(f"{arm} and {base} answered no request of {workload} in common")
    return float(theirs.mean() / ours.mean())


def speedup_of_fastest(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """As ``speedup``, with each request's fastest pass: what other work on the machine disturbs least."""
    import polars as pl

    rows = stats.usable(timings).filter((pl.col("workload") == workload) & pl.col("arm").is_in([arm, str(base)]))
    fastest = rows.group_by("arm", "request_id").agg(pl.col("latency_ns").min().cast(pl.Float64))
    ours, theirs = fastest.filter(pl.col("arm") == arm), fastest.filter(pl.col("arm") == base)
    both = ours.join(theirs, on="request_id").sort("request_id")
    if both.is_empty():
        raise CannotTell(f"{arm} and {base} answered no request of {workload} in common")
    return float(both["latency_ns_right"].to_numpy().mean() / both["latency_ns"].to_numpy().mean())


def max_probability_difference(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Largest |p - p of base| over every probability of every answer and all pairs of passes."""
    return _parity(timings, arm, base, workload).max_difference


def flips(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Probabilities that lie on the other side of 0.5 than the base's in some pair of passes."""
    return float(_parity(timings, arm, base, workload).flips)


def unequal_scores(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Candidates whose scores are not one and the same float64 in every pass of both arms."""
    return float(_parity(timings, arm, base, workload).unequal_scores)


def _parity(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> stats.Parity:
    found = stats.parity(stats.candidates(timings), arm, str(base), workload)
    if found is None:
        raise CannotTell(f"{arm} and {base} answered no request of {workload} in common")
    return found


def accuracy(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Share of labelled requests that are decided (probability of at least 0.5) as labelled, in the worst pass."""
    import polars as pl

    rows = timings.filter(
        pl.col("measured") & (pl.col("arm") == arm) & (pl.col("workload") == workload) & pl.col("label").is_not_null()
    )
    if rows.is_empty():
        raise CannotTell(f"{workload} has no labelled request that {arm} was sent")
    right = ((pl.col("probability") >= DECISION) == pl.col("label")).fill_null(False)  # no answer is a wrong one
    shares = rows.group_by("pass_index").agg(right.mean().alias("share"))["share"]
    return float(shares.to_numpy().min())


def errors(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Measured requests without a usable answer."""
    own = _measured(timings, arm, workload)
    return float(own.height - stats.usable(own).height)


def unexpected_tokens(timings: pl.DataFrame, arm: str, base: str | None, workload: str) -> float:
    """Measured requests whose token count on the server is not the one that the workload was built for."""
    import polars as pl

    own = _measured(timings, arm, workload)
    return float(own.filter(pl.col("tokens").ne_missing(pl.col("expected_tokens"))).height)


def _measured(timings: pl.DataFrame, arm: str, workload: str) -> pl.DataFrame:
    import polars as pl

    own = timings.filter(pl.col("measured") & (pl.col("arm") == arm) & (pl.col("workload") == workload))
    if own.is_empty():
        raise CannotTell(f"{arm} was sent no request of {workload}")
    return own


METRICS: dict[str, Metric] = {
    "mean_ms": Metric(mean_ms, False, "{value:.2f} ms on average"),
    "speedup": Metric(speedup, True, "{value:.2f} times as fast by the mean"),
    "speedup_of_fastest": Metric(speedup_of_fastest, True, "{value:.2f} times as fast by each request's fastest pass"),
    "max_probability_difference": Metric(
        max_probability_difference, True, "largest probability difference {value:.2e}"
    ),
    "flips": Metric(flips, True, "{value:.0f} decisions differ"),
    "unequal_scores": Metric(unequal_scores, True, "{value:.0f} candidates with other bits in their score"),
    "accuracy": Metric(accuracy, False, "{value:.1%} decided as labelled in the worst pass"),
    "errors": Metric(errors, False, "{value:.0f} requests without an answer"),
    "unexpected_tokens": Metric(unexpected_tokens, False, "{value:.0f} requests of another length than built for"),
}
