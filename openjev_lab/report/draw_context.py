"""Charts of what the times rest on: parity between arms, the workload's lengths, and the published figures.

Takes the run folder (or a loaded Run); returns one chart each, as ``charts`` describes. Apart from ``draw_latency``
because these are about whether to believe a time, and those are about how fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import altair as alt
import polars as pl

from openjev_lab import stats
from openjev_lab.report import facts, marks, source, tables, theme
from openjev_lab.report.marks import Chart
from openjev_lab.report.tables import Source

PARITY = {
    "request_id": "request", "tokens": "tokens", "difference": "|difference|", "base_probability": "baseline's P(yes)",
}  # fmt: skip


def parity_overview(run: Source) -> Chart:
    """|probability - baseline's| of every request and arm, log scale; differences of exactly 0 are counted in words."""
    run = source.load(run)
    base = tables.baseline(run)
    summary = tables.parity(run).filter(pl.col("against") == "baseline")
    if base is None or summary.is_empty():
        return marks.finish(marks.empty("No two arms answered the same request."), run, "Parity", "")
    arms, workload = summary["arm"].to_list(), tables.main_workload(run)
    answers = stats.candidates(run.timings)
    each = pl.concat(
        stats.parity_by_request(answers, arm, base, workload).with_columns(pl.lit(arm).alias("arm")) for arm in arms
    )
    drawn = each.filter(pl.col("difference") > 0)
    equal = each.group_by("arm").agg((pl.col("difference") == 0).sum().alias("equal"))
    summary = marks.worded(summary.join(equal, on="arm", maintain_order="left"), _agreement)
    y, width = marks.rows_axis(arms), theme.WIDTH - marks.WORDS_WIDTH
    limits = pl.DataFrame({"limit": facts.difference_limits(run)}, schema={"limit": pl.Float64})
    decades = _decades([*drawn["difference"], *limits["limit"]])
    x = alt.X("difference:Q", title=f"|P(yes) - {base}'s P(yes)|, worst pair of passes (log scale)", **decades)
    ticks = alt.Chart(drawn).mark_tick(thickness=1.4, size=20, opacity=0.6, color=theme.OURS)
    words = alt.Chart(summary).mark_text(align="left").encode(x=alt.value(width + 14), y=y, text="words:N")
    rule = alt.Chart(limits).mark_rule(color=theme.SLOWER, strokeDash=[5, 3], strokeWidth=1.5).encode(x="limit:Q")
    layers = [rule, ticks.encode(x=x, y=y, tooltip=marks.tooltip(PARITY)), words]
    note = "each tick: one request; dashed: the gate's limit; equal: probabilities identical to the last bit, not drawn"
    return marks.finish(marks.layered(layers, len(arms), width), run, f"Parity with {base}", note)


def _decades(values: Iterable[float]) -> dict[str, Any]:
    """A log scale over whole powers of ten, each labelled; one decade of probability where there is no value."""
    powers = [math.log10(value) for value in values] or [-1.0, 0.0]
    low, high = math.floor(min(powers)), math.ceil(max(powers))
    ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
    scale = alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    return {"scale": scale, "axis": alt.Axis(values=ticks, format=".0e")}


def _agreement(row: dict[str, Any]) -> str:
    flips = f"{row['flips']} flip{'' if row['flips'] == 1 else 's'}"
    return f"max {row['max_difference']:.1e}, {flips}, {row['equal']} of {row['candidates']} equal"


def parity(run: Source, arm: str, baseline: str) -> Chart:
    """Each request's |probability difference| (log) against the baseline's probability; flipped decisions stand out."""
    run = source.load(run)
    run.arm(arm), run.arm(baseline)
    title = f"Parity of {arm} with {baseline}"
    each = stats.parity_by_request(stats.candidates(run.timings), arm, baseline, tables.main_workload(run))
    drawn = each.filter(pl.col("difference") > 0)
    equal = each.height - drawn.height
    if drawn.is_empty():
        words = f"All {equal} requests have the same probability to the last bit." if equal else "No request in common."
        return marks.finish(marks.empty(words), run, title, "")
    across = {"title": f"P(yes) of {baseline}", "scale": alt.Scale(domain=[0, 1])}
    y = alt.Y("difference:Q", title="|difference| (log scale)", **_decades(drawn["difference"]))
    scale = alt.Scale(domain=["same decision", "flipped"], range=[theme.OURS, theme.SLOWER])
    flip = alt.Color("decision:N", title=None, scale=scale)
    half = alt.Chart(pl.DataFrame({"x": [tables.DECISION]})).mark_rule(strokeDash=[3, 3], color=theme.MUTED)
    drawn = drawn.with_columns(
        pl.when("flip").then(pl.lit("flipped")).otherwise(pl.lit("same decision")).alias("decision")
    )
    points = alt.Chart(drawn).mark_point(filled=True, size=40, opacity=0.8)
    x = alt.X("base_probability:Q", **across)
    layers = [half.encode(x=alt.X("x:Q", **across)), points.encode(x=x, y=y, color=flip, tooltip=marks.tooltip(PARITY))]
    chart = alt.layer(*layers).properties(width=theme.WIDTH - 130, height=280)
    return marks.finish(chart, run, title, f"each point: one request; {equal} more are equal to the last bit")


def published(run: Source) -> Chart:
    """The published means over the 74 requests beside ours: on one axis where device and geometry are theirs, else
    on two, because a ratio across devices would say nothing about either program.
    """
    run = source.load(run)
    frame = facts.published_ladder(run)
    theirs, ours = (frame.filter(pl.col("whose") == whose) for whose in ("theirs", "ours"))
    panels = [_means(theirs, f"THEIRS: System1-Omni, {facts.PUBLISHED_DEVICE}, {facts.PUBLISHED_DATE}", theme.THEIRS)]
    if not ours.is_empty():
        panels.append(_means(ours, f"OURS: {facts.device(run)}, {facts.date(run)}", theme.OURS))
    same = facts.same_device(run)
    both = alt.vconcat(*panels, spacing=26).resolve_scale(x="shared" if same else "independent")
    note = "the same 74 token counts, HTTP mean; bar: mean over passes; symbol: one pass. "
    note += "One axis." if same else "Two devices and models, two axes: compare the ladders' shapes, not milliseconds."
    return marks.finish(both, run, "The published figures, and ours", note)


def _means(frame: pl.DataFrame, title: str, color: str) -> alt.LayerChart:
    """Pass means over bars from zero; theirs are hollow diamonds, ours filled circles."""
    names = frame["name"].unique(maintain_order=True).to_list()
    both = (pl.col("mean_ms").mean(), pl.col("mean_ms").max().alias("furthest_ms"))
    means = frame.group_by("name", maintain_order=True).agg(*both)
    means = marks.worded(means.with_columns(tables.rounded()), lambda row: f"{row['mean_ms']:,.1f} ms")
    y = marks.rows_axis(names, "name")
    x = marks.from_zero("mean_ms", "mean latency over HTTP (ms)")
    theirs = color == theme.THEIRS
    symbol = {"shape": "diamond" if theirs else "circle", "filled": not theirs, "size": 70 if theirs else 52}
    bars = alt.Chart(means).mark_bar(height=12, color=color, opacity=0.25).encode(x=x, y=y)
    points = alt.Chart(frame).mark_point(color=color, opacity=1, **symbol)
    labels = alt.Chart(means).mark_text(align="left", dx=12).encode(x="furthest_ms:Q", y=y, text="words:N")
    points = points.encode(x=x, y=y, yOffset=marks.PASS_OFFSET)
    chart = marks.layered([bars, points, labels], len(names), theme.WIDTH - 60)
    return chart.properties(title=marks.panel_title(title, color))


def workload(run: Source) -> Chart:
    """How many requests of the first workload have which length: a bar a doubling of tokens."""
    run = source.load(run)
    name = tables.main_workload(run)
    tokens = run.timings.filter(pl.col("workload") == name).unique("request_id")["tokens"].drop_nulls()
    if tokens.is_empty():
        return marks.finish(marks.empty("No request was recorded."), run, "The workload", "")
    edges = [64 * 2**i for i in range(10)]
    rows = [
        {"range": f"{low} to {high - 1}", "requests": int(tokens.is_between(low, high - 1).sum())}
        for low, high in zip(edges, edges[1:], strict=False)
    ]
    frame = pl.DataFrame([row for row in rows if row["requests"]])
    x = alt.X("range:N", sort=frame["range"].to_list(), title="tokens in the request", axis=alt.Axis(labelAngle=0))
    bars = alt.Chart(frame).mark_bar(size=46, color=theme.OURS_LIGHT)
    bars = bars.encode(x=x, y=alt.Y("requests:Q", title="requests"))
    words = alt.Chart(frame).mark_text(dy=-8).encode(x=x, y="requests:Q", text="requests:Q")
    chart = alt.layer(bars, words).properties(width=theme.WIDTH - 130, height=170)
    note = f"{tokens.len()} requests, {tokens.n_unique()} distinct lengths"
    return marks.finish(chart, run, f"The workload: {name}", note)
