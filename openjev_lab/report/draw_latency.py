"""Charts of time: the ladder, what each rung saves, latency against tokens, and where a request's time goes.

Takes the run folder (or a loaded Run); returns one chart each, as ``charts`` describes. Apart from ``draw_context``
because these are about how fast, and that is about whether to believe it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from openjev_lab.report import facts, marks, source, tables, theme
from openjev_lab.report.marks import Chart
from openjev_lab.report.source import Run
from openjev_lab.report.tables import Source

LADDER = {"arm": "arm", "mean_ms": "mean (ms)", "p50_ms": "median (ms)", "p95_rank_ms": "p95, published rank (ms)"}
PASS = {"arm": "arm", "pass_index": "pass", "mean_ms": "mean (ms)", "requests": "requests"}
REQUEST = {"arm": "arm", "request_id": "request", "tokens": "tokens", "latency_ms": "latency (ms)", "passes": "passes"}
STAGE = {"arm": "arm", "stage": "stage", "mean_ms": "mean (ms)", "share_percent": "share (%)", "requests": "requests"}


def ladder(run: Source) -> Chart:
    """Mean latency of every arm from zero, each pass a dot; an arm without rows is a line of words."""
    run = source.load(run)
    arms = [arm.name for arm in run.arms]
    workload = tables.main_workload(run)
    dots = tables.passes(run).filter(
        (pl.col("workload") == workload) & pl.col("mean_ms").is_not_null() & pl.col("arm").is_in(arms)
    )
    furthest = dots.group_by("arm").agg(pl.col("mean_ms").max().alias("furthest_ms"))
    frame = tables.ladder(run).join(furthest, on="arm", how="left", maintain_order="left")
    measured = marks.worded(frame.filter(pl.col("mean_ms").is_not_null()), _figures)
    absent = marks.worded(frame.filter(pl.col("mean_ms").is_null()), _absence)
    y = marks.rows_axis(arms)
    x = marks.from_zero("mean_ms", f"mean latency over {workload}, client's clock (ms)")
    bars = alt.Chart(measured).mark_bar(height=18, color=theme.OURS_LIGHT)
    ticks = alt.Chart(measured).mark_tick(thickness=2, size=22, color=theme.OURS)
    points = alt.Chart(dots).mark_point(
        filled=True, size=52, color=theme.OURS, stroke="white", strokeWidth=1, opacity=1
    )
    labels = alt.Chart(measured).mark_text(align="left", dx=12)
    words = alt.Chart(absent).mark_text(align="left", dx=6, color=theme.MUTED, fontStyle="italic")
    layers = [
        bars.encode(x=x, y=y, tooltip=marks.tooltip(LADDER)),
        ticks.encode(x=x, y=y),
        points.encode(x=x, y=y, yOffset=marks.PASS_OFFSET, tooltip=marks.tooltip(PASS)),
        labels.encode(x="furthest_ms:Q", y=y, text="words:N"),
        words.encode(x=alt.value(0), y=y, text="words:N"),
    ]
    note = f"bar and tick: mean over passes; dot: one pass; ×: times as fast as {tables.baseline(run)}"
    return marks.finish(marks.layered(layers, len(arms)), run, "The ladder", note)


def _figures(row: dict[str, Any]) -> str:
    times = row["times_baseline"]
    faults = [f" · {row[what]} {what}" for what in ("errors", "missing") if row[what]]
    return f"{row['mean_ms']:,.1f} ms" + ("" if times is None else f" · {times:.2f}×") + "".join(faults)


def _absence(row: dict[str, Any]) -> str:
    return textwrap.shorten(f"{row['status']}: {row['reason'] or facts.UNFINISHED}", 120, placeholder=" …")


def savings(run: Source) -> Chart:
    """What each arm saves, with 95 % paired intervals: per cent against the rung below, times against the baseline."""
    run = source.load(run)
    frame = tables.savings(run)
    base = tables.baseline(run)
    below, first = (frame.filter(pl.col("against") == against) for against in ("below", "baseline"))
    upper = marks.forest(below, "saving_percent", "latency saved (% of the mean of the rung below)", 0.0)
    lower = marks.forest(first, "ratio", f"times as fast as {base} (ratio of means)", 1.0)
    upper = upper.properties(title=marks.panel_title("against the rung below"))
    lower = lower.properties(title=marks.panel_title(f"against {base}"))
    note = "dot: estimate; bar and [ ]: 95 % bootstrap interval, paired by request; hollow: it holds no difference"
    return marks.finish(alt.vconcat(upper, lower, spacing=28), run, "What each rung saves", note)


def saving(run: Source, arm: str, base: str) -> Chart:
    """One comparison of ``savings``: ``arm`` against any ``base`` of the run, in per cent of the base's mean."""
    run = source.load(run)
    title = f"latency saved against {base} (% of its mean)"
    forest = marks.forest(tables.saving(run, arm, base), "saving_percent", title, 0.0)
    return marks.finish(forest, run, f"What {arm} saves", "95 % bootstrap interval, paired by request")


def latency_by_tokens(run: Source, arms: Sequence[str] | None = None) -> Chart:
    """Latency of every request against its tokens, both on log scales; a point a request, a line an arm."""
    run = source.load(run)
    frame = _by_tokens(run, arms).filter(pl.col("latency_ms") > 0)
    scale = alt.Scale(type="log", nice=False, padding=8)
    y = alt.Y("latency_ms:Q", title="latency, mean over passes (ms, log scale)", scale=scale)
    note = "point: one request, its mean over passes; line: mean at each length"
    return marks.finish(_lines_and_points(run, frame, y), run, "Latency against tokens", note)


def relative_by_tokens(run: Source, arms: Sequence[str] | None = None) -> Chart:
    """Baseline latency over each arm's latency, request by request, against tokens (log): where the gain lies."""
    run = source.load(run)
    base = tables.baseline(run)
    frame = _by_tokens(run, arms)
    reference = _by_tokens(run, [base] if base else []).select("request_id", pl.col("latency_ms").alias("base_ms"))
    frame = frame.join(reference, on="request_id", maintain_order="left").with_columns(
        (pl.col("base_ms") / pl.col("latency_ms")).alias("times")
    )
    y = alt.Y("times:Q", title=f"times as fast as {base} on the same request", scale=alt.Scale(zero=True))
    chart = _lines_and_points(run, frame.filter(pl.col("times").is_finite()), y)
    note = "point: one request, its mean over passes; line: mean at each length"
    return marks.finish(chart, run, f"Gain over {base} against tokens", note)


def _by_tokens(run: Run, arms: Sequence[str] | None) -> pl.DataFrame:
    """tables.latency_by_request of the arms asked for (all by default); LabError for an unknown one."""
    for name in arms or ():
        run.arm(name)
    frame = tables.latency_by_request(run)
    return frame if arms is None else frame.filter(pl.col("arm").is_in(list(arms)))


def _lines_and_points(run: Run, frame: pl.DataFrame, y: alt.Y) -> Chart:
    """A line a (colour, shape) arm through the mean at each length, and a point a request."""
    if frame.is_empty():
        return marks.empty("No measured request to draw.")
    column = str(y.shorthand).removesuffix(":Q")
    means = frame.group_by("arm", "tokens").agg(pl.col(column).mean())
    means = means.sort("arm", "tokens").with_columns(tables.rounded())
    arms = [arm.name for arm in run.arms]
    shown = [arm for arm in arms if arm in set(frame["arm"])]
    color = alt.Color("arm:N", title=None, sort=shown, scale=alt.Scale(**theme.scale(arms, shown, theme.ARMS)))
    shape = alt.Shape("arm:N", title=None, sort=shown, scale=alt.Scale(**theme.scale(arms, shown, theme.SHAPES)))
    x = marks.tokens_axis(frame)
    lines = alt.Chart(means).mark_line(strokeWidth=1.6, opacity=0.75).encode(x=x, y=y, color=color)
    points = alt.Chart(frame).mark_point(filled=True, size=26, opacity=0.8)
    points = points.encode(x=x, y=y, color=color, shape=shape, tooltip=marks.tooltip(REQUEST))
    return alt.layer(lines, points).properties(width=theme.WIDTH - 130, height=380)


def stages(run: Source) -> Chart:
    """Where a request's time goes: share of the mean by stage, and beside it all but the forward in ms."""
    run = source.load(run)
    frame = tables.stages(run)
    if frame.is_empty():
        return marks.finish(marks.empty("No server reported its stages."), run, "Time by stage", "")
    names = list(theme.STAGES)
    arms = [arm.name for arm in run.arms if arm.name in set(frame["arm"])]
    frame = frame.with_columns(pl.col("stage").replace_strict({name: i for i, name in enumerate(names)}).alias("place"))
    scale = alt.Scale(domain=names, range=list(theme.STAGES.values()))
    color = alt.Color("stage:N", title=None, sort=names, scale=scale, legend=alt.Legend(orient="top"))
    tips = marks.tooltip(STAGE)
    height = theme.ROW * len(arms)
    y = marks.rows_axis(arms)
    shares = marks.from_zero("share_percent", "share of mean latency (%)", ticks=5).scale(domain=[0, 100])
    left = alt.Chart(frame).mark_bar(height=18).encode(x=shares, y=y, color=color, order="place:Q", tooltip=tips)
    rest = frame.filter(pl.col("stage") != "execute")
    around = marks.from_zero("mean_ms", "all but execute: mean (ms)", ticks=5)
    bare = marks.rows_axis(arms).axis(None)
    right = alt.Chart(rest).mark_bar(height=18).encode(x=around, y=bare, color=color, order="place:Q", tooltip=tips)
    panels = (left.properties(width=360, height=height), right.properties(width=270, height=height))
    both = alt.hconcat(*panels, spacing=28)
    note = "queue, prepare, execute and finish as the server reports them; HTTP and client: what is left of the latency"
    return marks.finish(both, run, "Time by stage", note)
