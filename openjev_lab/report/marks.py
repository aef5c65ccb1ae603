"""The parts that charts are put together from: axes, tooltips, interval plots, and the title that every chart carries.

Takes frames and names, returns Altair layers. Apart from ``charts`` so that a chart there reads as what it shows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt
import polars as pl

from openjev_lab.report import facts, theme
from openjev_lab.report.source import Run

Chart: TypeAlias = alt.LayerChart | alt.VConcatChart | alt.HConcatChart | alt.Chart
TOKEN_TICKS = [100, 200, 500, 1000, 2000, 3400, 8000, 16000]
# The passes of one arm one above the other inside its band: their means are often closer than a dot is wide.
PASS_OFFSET = alt.YOffset("pass_index:O", scale=alt.Scale(paddingOuter=1))
# Room to the right of an interval plot for its numbers in words, px.
WORDS_WIDTH = 290


def finish(chart: Chart, run: Run, title: str, note: str) -> Chart:
    """Title, the run's facts below it, and the house theme; concatenations get their title at the top left."""
    lines = [facts.summary(run), *textwrap.wrap(note, 130)]
    described = chart.properties(title=alt.TitleParams(title, subtitle=lines), description=f"{title}: {note}")
    return described.configure(**theme.config())


def empty(words: str, width: int = theme.WIDTH) -> alt.Chart:
    """A chart that says why there is nothing to draw."""
    frame = pl.DataFrame({"words": [words]})
    text = alt.Chart(frame).mark_text(align="left", fontStyle="italic", fontSize=13, color=theme.MUTED)
    return text.encode(x=alt.value(8), y=alt.value(24), text="words:N").properties(width=width, height=48)


def layered(layers: Sequence[alt.Chart], rows: int, width: int = theme.WIDTH) -> alt.LayerChart:
    """Layers over one band a row."""
    return alt.layer(*layers).properties(width=width, height=theme.ROW * max(rows, 1))


def rows_axis(names: Sequence[str], field: str = "arm") -> alt.Y:
    """One band a name, in the order given."""
    axis = alt.Axis(ticks=False, domain=False, labelPadding=8)
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=axis, scale=alt.Scale(domain=list(names)))


def from_zero(field: str, title: str, ticks: int = 8) -> alt.X:
    """A quantitative axis that starts at zero, with about so many round ticks."""
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=ticks))


def panel_title(words: str, color: str = theme.INK) -> alt.TitleParams:
    """The small title of one panel of several."""
    return alt.TitleParams(words, fontSize=12, color=color, offset=6)


def tooltip(fields: Mapping[str, str]) -> list[alt.Tooltip]:
    """Tooltips from {column: title}; columns in ms get three decimals."""
    return [
        alt.Tooltip(f"{name}:Q", title=title, format=".3f") if name.endswith("_ms") else alt.Tooltip(name, title=title)
        for name, title in fields.items()
    ]


def tokens_axis(frame: pl.DataFrame, field: str = "tokens") -> alt.X:
    """Tokens on a log scale from just below the shortest to just above the longest request of ``frame``."""
    tokens = frame[field].drop_nulls().to_numpy()
    low, high = float(tokens.min()), float(tokens.max())
    axis = alt.Axis(values=[tick for tick in TOKEN_TICKS if low <= tick <= high * 1.1], grid=True, format=",d")
    scale = alt.Scale(type="log", domain=[low * 0.93, high * 1.08], nice=False)
    return alt.X(f"{field}:Q", title="tokens in the request (log scale)", scale=scale, axis=axis)


def worded(frame: pl.DataFrame, words: Callable[[dict[str, Any]], str]) -> pl.DataFrame:
    """``frame`` with a text column "words", made row by row."""
    return frame.with_columns(pl.Series("words", [words(row) for row in frame.iter_rows(named=True)], dtype=pl.String))


def forest(frame: pl.DataFrame, column: str, title: str, nothing: float) -> alt.LayerChart:
    """Estimate and interval a row of ``savings`` columns, beside them the same in words; ``nothing`` = no difference.

    An interval that holds ``nothing`` is hollow and grey; a row without figures shows its note.
    """
    arms = frame["arm"].to_list()
    judged = worded(frame.filter(pl.col(column).is_not_null()), WORDS[column]).with_columns(
        pl.when(pl.col(f"{column}_low") > nothing).then(pl.lit("faster"))
        .when(pl.col(f"{column}_high") < nothing).then(pl.lit("slower"))
        .otherwise(pl.lit("no difference shown")).alias("verdict"),
    )  # fmt: skip
    scale = alt.Scale(domain=list(VERDICTS), range=list(VERDICTS.values()))
    color = alt.Color("verdict:N", scale=scale, legend=None)
    y, width = rows_axis(arms), theme.WIDTH - WORDS_WIDTH
    x = from_zero(column, title)
    zero = alt.Chart(pl.DataFrame({"x": [nothing]})).mark_rule(color=theme.MUTED, strokeDash=[3, 3]).encode(x="x:Q")
    spans = alt.Chart(judged).mark_rule(strokeWidth=3, opacity=0.55)
    dots = alt.Chart(judged).mark_point(size=75, strokeWidth=2, opacity=1)
    fill = alt.condition("datum.verdict == 'no difference shown'", alt.value("white"), color)
    words = alt.Chart(judged).mark_text(align="left").encode(x=alt.value(width + 14), y=y, text="words:N")
    absent = alt.Chart(frame.filter(pl.col(column).is_null())).mark_text(
        align="left", dx=6, fontStyle="italic", color=theme.MUTED
    )
    layers = [
        zero,
        spans.encode(x=alt.X(f"{column}_low:Q", title=title), x2=f"{column}_high:Q", y=y, color=color),
        dots.encode(x=x, y=y, color=color, fill=fill, tooltip=tooltip(SAVING)),
        words,
        absent.encode(x=alt.value(width + 14), y=y, text="note:N"),
    ]
    return layered(layers, len(arms), width)


VERDICTS = {"faster": theme.FASTER, "slower": theme.SLOWER, "no difference shown": theme.UNDECIDED}
SAVING = {
    "arm": "arm", "base": "against", "arm_mean_ms": "its mean (ms)", "base_mean_ms": "the base's mean (ms)",
    "saving_ms": "saving (ms)", "requests": "requests", "interval": "interval", "passes_disjoint": "passes apart",
}  # fmt: skip


def _ratio_in_words(row: dict[str, Any]) -> str:
    low, high = row["ratio_low"], row["ratio_high"]
    interval = "" if low is None else f" [{low:.2f}, {high:.2f}]"
    return f"{row['ratio']:.2f}×{interval}, saves {row['saving_ms']:,.2f} ms"


def _saving_in_words(row: dict[str, Any]) -> str:
    low, high = row["saving_ms_low"], row["saving_ms_high"]
    interval = "" if low is None else f" [{low:,.2f}, {high:,.2f}]"
    return f"{row['saving_percent']:.1f} %, {row['saving_ms']:,.2f} ms{interval}"


WORDS = {"saving_percent": _saving_in_words, "ratio": _ratio_in_words}
