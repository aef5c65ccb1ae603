"""Statistics with named methods, shared by the gates and by the report so that both say the same number.

Takes: the timings frame (one row a request; columns as evidence declares them, clocks in ns) or plain arrays.
Returns: polars frames and frozen records in milliseconds; ``None`` where there is nothing to measure, never NaN.
Apart from measuring and reporting because a gate's verdict and the table beside it must not compute things twice.

Methods, by the names that tables print:

- ``mean``: arithmetic mean over requests of a pass; an arm's mean is over all its usable rows.
- ``p50``, ``p95_linear``: numpy's ``percentile`` with ``method="linear"``.
- ``p95_rank``: ``sorted[int(0.95 * n) - 1]``, the rank that the published comparison used.
- intervals: scipy's bootstrap, 95 %, paired by request (each request's mean over its passes), BCa; percentile
  where BCa has no answer (constant differences), none for fewer than two requests. The note says which.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

NS_PER_MS = 1_000_000
RESAMPLES = 9_999
SEED = 20_261_001
CONFIDENCE = 0.95
HTTP_OK = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its bootstrap interval; ``low`` and ``high`` are None where no interval exists."""

    estimate: float
    low: float | None
    high: float | None
    method: str
    """"bca", "percentile" or "none", as computed and not as asked for."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Two arms on the same requests: what ``arm`` saves against ``base``. Positive saving = ``arm`` is faster."""

    arm: str
    base: str
    requests: int
    arm_mean_ms: float
    base_mean_ms: float
    saving_ms: Interval
    saving_fraction: Interval
    """(base mean - arm mean) / base mean; 0.25 = a quarter of the time is gone."""
    ratio: Interval
    """base mean / arm mean; 2.0 = twice as fast. Its interval is that of the fraction f, mapped by 1 / (1 - f)."""
    passes_disjoint: bool
    """Every pass mean of ``arm`` lies below every pass mean of ``base``."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Two arms' decisions on the same requests; differences are the largest over all pairs of their passes."""

    arm: str
    base: str
    requests: int
    max_difference: float
    mean_difference: float
    flips: int
    """Requests whose decision (probability >= 0.5) differs in any pair of passes."""
    largest_flip_margin: float | None
    """Among the flips, the largest |base probability - 0.5|; None without a flip."""
    exact: bool
    """Every score of every pass is the same float64."""
    unequal_scores: int


def usable(timings: pl.DataFrame) -> pl.DataFrame:
    """The rows that statistics are made of: measured, answered with 200, without an error."""
    return timings.filter(
        pl.col("measured")
        & (pl.col("status") == HTTP_OK)
        & pl.col("error").is_null()
        & pl.col("latency_ns").is_not_null()
    )


def mean(values: ArrayLike) -> float | None:
    """Arithmetic mean, None when empty."""
    array = np.asarray(values, dtype=np.float64)
    return float(array.mean()) if array.size else None


def percentile(values: ArrayLike, percent: float) -> float | None:
    """Linear interpolation between order statistics (numpy ``method="linear"``), None when empty."""
    array = np.asarray(values, dtype=np.float64)
    return float(np.percentile(array, percent, method="linear")) if array.size else None


def p95_rank(values: ArrayLike) -> float | None:
    """``sorted[int(0.95 * n) - 1]``, the published comparison's rank; None below two values, where it has no rank."""
    array = np.sort(np.asarray(values, dtype=np.float64))
    rank = int(0.95 * array.size) - 1
    return float(array[rank]) if rank >= 0 else None


def pass_summary(timings: pl.DataFrame) -> pl.DataFrame:
    """One row per (arm, workload, pass_index) of measured passes, in that order.

    Columns: requests (usable rows), errors (measured rows that are not usable), mean_ms, p50_ms, p95_rank_ms,
    p95_linear_ms; the four are null where no row is usable.
    """
    keys = ["arm", "workload", "pass_index"]
    measured = timings.filter(pl.col("measured"))
    rows = []
    for values, group in measured.group_by(keys, maintain_order=True):
        latencies_ms = latencies(usable(group))
        rows.append(
            dict(zip(keys, values, strict=True))
            | {
                "requests": latencies_ms.size,
                "errors": group.height - latencies_ms.size,
                "mean_ms": mean(latencies_ms),
                "p50_ms": percentile(latencies_ms, 50),
                "p95_rank_ms": p95_rank(latencies_ms),
                "p95_linear_ms": percentile(latencies_ms, 95),
            }
        )
    schema = {"arm": pl.String, "workload": pl.String, "pass_index": pl.Int64, "requests": pl.Int64, "errors": pl.Int64}
    schema |= dict.fromkeys(("mean_ms", "p50_ms", "p95_rank_ms", "p95_linear_ms"), pl.Float64)
    return pl.DataFrame(rows, schema=schema).sort(keys)


def latencies(rows: pl.DataFrame) -> Floats:
    """``latency_ns`` in ms, float64, in a fixed order so that sums do not depend on how rows were stored."""
    ordered = rows.sort("pass_index", "request_id", "latency_ns")
    return (ordered["latency_ns"].cast(pl.Float64) / NS_PER_MS).to_numpy()


def request_means(timings: pl.DataFrame, arm: str, workload: str) -> pl.DataFrame:
    """(request_id, latency_ms, passes): each request's mean over the arm's usable passes, sorted by request_id."""
    rows = usable(timings).filter((pl.col("arm") == arm) & (pl.col("workload") == workload))
    return (
        rows.sort("request_id", "pass_index")
        .group_by("request_id", maintain_order=True)
        .agg((pl.col("latency_ns").mean() / NS_PER_MS).alias("latency_ms"), pl.len().cast(pl.Int64).alias("passes"))
    )


def bootstrap(statistic: Callable[..., Floats], *samples: Floats) -> Interval:
    """95 % interval of ``statistic(*samples, axis)``, samples paired by index; seeded, so the same every time.

    BCa first; where it is undefined (every resample gives the same value) the percentile interval is returned and
    named. Fewer than two pairs have no interval (method "none").
    """
    from scipy import stats as scipy_stats

    estimate = float(statistic(*samples, axis=-1))
    if samples[0].size < 2:
        return Interval(estimate, None, None, "none")
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # scipy's doubts about degenerate data: the result is looked at below
            result = scipy_stats.bootstrap(
                samples,
                statistic,
                paired=True,
                vectorized=True,
                n_resamples=RESAMPLES,
                confidence_level=CONFIDENCE,
                method=method,
                rng=np.random.default_rng(SEED),
            )
        low, high = float(result.confidence_interval.low), float(result.confidence_interval.high)
        if np.isfinite(low) and np.isfinite(high):
            return Interval(estimate, low, high, method.lower())
    return Interval(estimate, None, None, "none")


def _saving(arm: Floats, base: Floats, axis: int = -1) -> Floats:
    return base.mean(axis=axis) - arm.mean(axis=axis)


def _saving_fraction(arm: Floats, base: Floats, axis: int = -1) -> Floats:
    return 1.0 - arm.mean(axis=axis) / base.mean(axis=axis)


def _as_ratio(fraction: Interval) -> Interval:
    low, high = (None if bound is None else 1 / (1 - bound) for bound in (fraction.low, fraction.high))
    return Interval(1 / (1 - fraction.estimate), low, high, fraction.method)


def paired_latencies(timings: pl.DataFrame, arm: str, base: str, workload: str) -> tuple[Floats, Floats]:
    """(arm_ms, base_ms) of the requests that both answered, in request order; each request's mean over its passes."""
    joined = request_means(timings, arm, workload).join(
        request_means(timings, base, workload), on="request_id", suffix="_base", maintain_order="left"
    )
    return joined["latency_ms"].to_numpy(), joined["latency_ms_base"].to_numpy()


def paired(timings: pl.DataFrame, arm: str, base: str, workload: str) -> Paired | None:
    """What ``arm`` saves against ``base`` over the requests that both answered; None if they share none."""
    ours, theirs = paired_latencies(timings, arm, base, workload)
    if not ours.size:
        return None
    passes = pass_summary(timings).filter((pl.col("workload") == workload) & pl.col("mean_ms").is_not_null())
    slowest_pass_ms = passes.filter(pl.col("arm") == arm)["mean_ms"].to_numpy().max()
    fastest_base_pass_ms = passes.filter(pl.col("arm") == base)["mean_ms"].to_numpy().min()
    fraction = bootstrap(_saving_fraction, ours, theirs)
    return Paired(
        arm=arm,
        base=base,
        requests=ours.size,
        arm_mean_ms=float(ours.mean()),
        base_mean_ms=float(theirs.mean()),
        saving_ms=bootstrap(_saving, ours, theirs),
        saving_fraction=fraction,
        ratio=_as_ratio(fraction),
        passes_disjoint=bool(slowest_pass_ms < fastest_base_pass_ms),
    )


def candidates(timings: pl.DataFrame) -> pl.DataFrame:
    """Usable rows with one row a candidate: its probability and score from ``probabilities`` and ``scores``.

    A request with several candidates becomes request_id/0, request_id/1, ...; a lone one keeps its name.
    """
    rows = usable(timings).filter(pl.col("probabilities").list.len() > 0).drop("probability", "score")
    count = pl.col("probabilities").list.len()
    numbered = rows.with_columns(pl.int_ranges(count).alias("candidate"), count.alias("count"))
    each = numbered.explode("candidate", "probabilities", "scores")
    name = pl.when(pl.col("count") > 1).then(pl.format("{}/{}", "request_id", "candidate")).otherwise("request_id")
    named = each.with_columns(name.alias("request_id")).drop("candidate", "count")
    return named.rename({"probabilities": "probability", "scores": "score"})


def _extremes(timings: pl.DataFrame, arm: str, workload: str) -> pl.DataFrame:
    rows = usable(timings).filter(
        (pl.col("arm") == arm) & (pl.col("workload") == workload) & pl.col("probability").is_not_null()
    )
    values = ("probability", "score")
    return rows.group_by("request_id").agg(
        pl.col("tokens").min(),
        *[pl.col(name).min().alias(f"{name}_min") for name in values],
        *[pl.col(name).max().alias(f"{name}_max") for name in values],
    )


def parity_by_request(timings: pl.DataFrame, arm: str, base: str, workload: str) -> pl.DataFrame:
    """One row a request that both arms answered with a probability, sorted by request_id.

    Columns: request_id, tokens, probability and base_probability (each arm's smallest over its passes), difference
    (largest |arm - base| over all pairs of passes), flip (decisions differ in some pair), base_margin (largest
    |base - 0.5|), exact (all scores one float64).
    """
    both = _extremes(timings, arm, workload).join(
        _extremes(timings, base, workload), on="request_id", suffix="_base", how="inner"
    )
    low, high = pl.col("probability_min"), pl.col("probability_max")
    base_low, base_high = pl.col("probability_min_base"), pl.col("probability_max_base")
    scores_agree = (
        (pl.col("score_min") == pl.col("score_max"))
        & (pl.col("score_min_base") == pl.col("score_max_base"))
        & (pl.col("score_min") == pl.col("score_min_base"))
    )
    return both.select(
        "request_id",
        "tokens",
        low.alias("probability"),
        base_low.alias("base_probability"),
        pl.max_horizontal(high - base_low, base_high - low).alias("difference"),
        ((pl.max_horizontal(high, base_high) >= 0.5) & (pl.min_horizontal(low, base_low) < 0.5)).alias("flip"),
        pl.max_horizontal((base_low - 0.5).abs(), (base_high - 0.5).abs()).alias("base_margin"),
        scores_agree.fill_null(False).alias("exact"),
    ).sort("request_id")


def parity(timings: pl.DataFrame, arm: str, base: str, workload: str) -> Parity | None:
    """Agreement of ``arm`` with ``base``; None if they share no request with a probability."""
    rows = parity_by_request(timings, arm, base, workload)
    if rows.is_empty():
        return None
    margins = rows.filter(pl.col("flip"))["base_margin"].to_numpy()
    unequal = int((~rows["exact"]).sum())
    return Parity(
        arm=arm,
        base=base,
        requests=rows.height,
        max_difference=float(rows["difference"].to_numpy().max()),
        mean_difference=float(rows["difference"].to_numpy().mean()),
        flips=margins.size,
        largest_flip_margin=float(margins.max()) if margins.size else None,
        exact=unequal == 0,
        unequal_scores=unequal,
    )
