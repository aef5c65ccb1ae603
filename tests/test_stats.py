"""openjev_lab.stats against hand-worked numbers: ranks, passes, pairing, parity, and what has no answer."""

import numpy as np
import polars as pl
import pytest

from openjev_lab import stats

MIX = "mix74"


def frame(rows):
    """Timings rows from (arm, pass_index, request_id, latency_ms, probability, score[, overrides])."""
    full = []
    for arm, pass_index, request_id, latency_ms, probability, score, *rest in rows:
        full.append(
            {
                "arm": arm,
                "workload": MIX,
                "pass_index": pass_index,
                "measured": pass_index >= 0,
                "request_id": request_id,
                "tokens": 100,
                "latency_ns": int(latency_ms * 1e6),
                "status": 200,
                "error": None,
                "probability": probability,
                "score": score,
            }
            | (rest[0] if rest else {})
        )
    schema = {"probability": pl.Float64, "score": pl.Float64, "error": pl.String, "status": pl.Int64}
    return pl.DataFrame(full, schema_overrides=schema, infer_schema_length=None)


def test_p95_by_both_definitions():
    values = np.arange(1, 75, dtype=float)
    assert stats.p95_rank(values) == sorted(values)[int(0.95 * 74) - 1] == 70
    assert stats.percentile(values, 95) == pytest.approx(1 + 0.95 * 73)
    assert stats.percentile(values, 50) == 37.5


def test_what_is_not_measured_is_none_and_never_nan():
    assert stats.mean([]) is None
    assert stats.percentile([], 95) is None
    assert stats.p95_rank([]) is None
    assert stats.p95_rank([3.0]) is None
    empty = frame([("a", 0, "r0", 1, 0.5, 0.0)]).clear()
    assert stats.pass_summary(empty).is_empty()
    assert stats.paired(empty, "a", "b", MIX) is None
    assert stats.parity(empty, "a", "b", MIX) is None


def test_pass_summary_leaves_out_the_feasibility_pass_and_counts_errors():
    timings = frame(
        [
            ("a", -1, "r0", 999, 0.5, 0.0),
            ("a", 0, "r0", 10, 0.5, 0.0),
            ("a", 0, "r1", 30, 0.5, 0.0),
            ("a", 0, "r2", 500, None, None, {"status": 503, "error": "queue full"}),
            ("a", 1, "r0", 0, None, None, {"status": None, "error": "connection reset"}),
        ]
    )
    first, second = stats.pass_summary(timings).to_dicts()
    assert (first["requests"], first["errors"], first["mean_ms"]) == (2, 1, 20.0)
    assert first["p95_rank_ms"] == 10.0
    assert (second["requests"], second["errors"]) == (0, 1)
    assert second["mean_ms"] is None and second["p95_rank_ms"] is None


def test_pairing_is_by_request_and_over_passes():
    timings = frame(
        [
            ("base", 0, "r0", 20, 0.5, 0.0),
            ("base", 1, "r0", 22, 0.5, 0.0),
            ("base", 0, "r1", 40, 0.5, 0.0),
            ("base", 0, "only-base", 4000, 0.5, 0.0),
            ("arm", 0, "r0", 10, 0.5, 0.0),
            ("arm", 0, "r1", 21, 0.5, 0.0),
        ]
    )
    result = stats.paired(timings, "arm", "base", MIX)
    assert result.requests == 2
    assert (result.arm_mean_ms, result.base_mean_ms) == (15.5, 30.5)
    assert result.saving_ms.estimate == 15.0
    assert result.ratio.estimate == pytest.approx(30.5 / 15.5)
    assert result.saving_fraction.estimate == pytest.approx(15 / 30.5)
    assert result.passes_disjoint


def test_the_interval_is_paired_seeded_and_around_its_estimate():
    lengths = np.linspace(20, 400, 74)
    noise = np.random.default_rng(3).normal(0, 0.2, 74)
    rows = [("base", 0, f"r{i:02}", lengths[i], 0.5, 0.0) for i in range(74)]
    rows += [("arm", 0, f"r{i:02}", lengths[i] - 5 + noise[i], 0.5, 0.0) for i in range(74)]
    first = stats.paired(frame(rows), "arm", "base", MIX)
    again = stats.paired(frame(rows[::-1]), "arm", "base", MIX)
    assert first == again
    saving = first.saving_ms
    assert saving.method == "bca"
    assert saving.low < saving.estimate < saving.high
    # unpaired, lengths of 20 to 400 ms would make it tens of ms wide
    assert saving.high - saving.low < 0.2


def test_intervals_without_bca_say_so():
    constant = np.full(10, 2.0)
    assert stats.bootstrap(stats._saving, constant, constant * 3).method == "percentile"
    one = stats.bootstrap(stats._saving, np.array([1.0]), np.array([4.0]))
    assert (one.estimate, one.low, one.high, one.method) == (3.0, None, None, "none")


def test_parity_takes_the_worst_pair_of_passes():
    timings = frame(
        [
            ("base", 0, "r0", 1, 0.40, 1.0),
            ("base", 1, "r0", 1, 0.42, 1.1),
            ("arm", 0, "r0", 1, 0.43, 1.2),
            ("arm", 1, "r0", 1, 0.51, 1.3),
            ("base", 0, "r1", 1, 0.9, 2.0),
            ("arm", 0, "r1", 1, 0.9, 2.0),
        ]
    )
    result = stats.parity(timings, "arm", "base", MIX)
    assert result.max_difference == pytest.approx(0.11)
    assert (result.flips, result.unequal_scores, result.exact) == (1, 1, False)
    assert result.largest_flip_margin == pytest.approx(0.1)
    assert stats.parity(timings, "base", "base", MIX).exact is False, "its own passes disagree"


def test_exactness_needs_every_score():
    rows = [(arm, p, "r0", 1, 0.7, 0.123456789012345) for arm in ("arm", "base") for p in (0, 1)]
    assert stats.parity(frame(rows), "arm", "base", MIX).exact
    rows[-1] = ("base", 1, "r0", 1, 0.7, np.nextafter(0.123456789012345, 1))
    assert not stats.parity(frame(rows), "arm", "base", MIX).exact


def test_a_request_of_many_candidates_counts_in_full():
    several = {"probabilities": [0.2, 0.8], "scores": [1.0, 2.0]}
    lone = {"probabilities": [0.9], "scores": [3.0]}
    failed = {"probabilities": None, "scores": None, "status": 500, "error": "broken"}
    rows = []
    for arm in ("base", "arm"):
        rows += [(arm, 0, "choice", 1, None, None, several), (arm, 0, "noul", 1, 0.9, 3.0, lone)]
    rows.append(("arm", 0, "late", 1, None, None, failed))
    rows[2] = (*rows[2][:-1], several | {"probabilities": [0.3, 0.7]})
    each = stats.candidates(frame(rows))
    assert sorted(each.filter(pl.col("arm") == "arm")["request_id"]) == ["choice/0", "choice/1", "noul"]
    result = stats.parity(each, "arm", "base", MIX)
    assert (result.requests, result.flips, result.exact) == (3, 0, True)
    assert result.max_difference == pytest.approx(0.1)
