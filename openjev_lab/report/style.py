"""How a frame looks as a table: which columns, their titles with units, decimals, a sign for null; by great-tables.

Takes a frame and its name in ``COLUMNS``; returns a GT that a notebook shows, or bare HTML for the page, whose own
style sheet covers every table once. Apart from ``tables`` so that a frame stays a frame: what is one row a stage there
is one row an arm here, and an estimate and its interval share a cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from great_tables import GT

# One title for a column wherever it appears, with its unit, and its decimals (None: as text).
TITLES: dict[str, tuple[str, int | None]] = {
    "arm": ("arm", None),
    "arms": ("arms", None),
    "base": ("against", None),
    "below": ("one change from", None),
    "candidates": ("probabilities", 0),
    "device": ("device", None),
    "distinct_lengths": ("distinct lengths", 0),
    "duration_s": ("duration (s)", 1),
    "error": ("error", None),
    "errors": ("errors", 0),
    "exact": ("bit for bit", None),
    "fact": ("fact", None),
    "flips": ("flips", 0),
    "gate": ("metric", None),
    "hypothesis": ("hypothesis", None),
    "interval": ("interval", None),
    "label_no": ("label no", 0),
    "label_yes": ("label yes", 0),
    "mean_ms": ("mean (ms)", 2),
    "name": ("name", None),
    "limit": ("limit", None),
    "missing": ("missing", 0),
    "notebook": ("notebook", None),
    "outcome": ("status", None),
    "p50_ms": ("median (ms)", 2),
    "p95_linear_ms": ("p95, linear (ms)", 2),
    "p95_rank_ms": ("p95, published rank (ms)", 2),
    "pass_index": ("pass", 0),
    "passes": ("passes", 0),
    "passes_ms": ("each pass (ms)", None),
    "passes_disjoint": ("passes apart", None),
    "promised": ("same bits promised", None),
    "questions": ("questions", 0),
    "ratio": ("times as fast [95 %]", None),
    "reason": ("reason", None),
    "requests": ("requests", 0),
    "saving_ms": ("saves (ms) [95 %]", None),
    "saving_percent": ("saves (%) [95 %]", None),
    "status": ("status", None),
    "times_baseline": ("times as fast as the baseline", 2),
    "tokens_max": ("longest (tokens)", 0),
    "tokens_mean": ("mean (tokens)", 1),
    "tokens_median": ("median (tokens)", 1),
    "tokens_min": ("shortest (tokens)", 0),
    "tokens_unexpected": ("unexpected lengths", 0),
    "unequal_scores": ("unequal scores", 0),
    "value": ("value", None),
    "verdict": ("verdict", None),
    "whose": ("whose", None),
    "workload": ("workload", None),
}
# Differences and their limits span ten orders of magnitude.
SCIENTIFIC = {
    "largest_flip_margin": "largest |p - 0.5| of a flip",
    "max_difference": "largest |difference|",
    "mean_difference": "mean |difference|",
}
FIGURES = ("mean_ms", "p50_ms", "p95_rank_ms", "p95_linear_ms")
COLUMNS: dict[str, tuple[str, ...]] = {
    "client_cost": ("pass_index", "requests", *FIGURES),
    "errors": ("arm", "workload", "pass_index", "status", "error", "requests"),
    "facts": ("fact", "value"),
    "gates_declared": ("gate", "workload", "base", "limit", "arms", "value", "verdict"),
    "ladder": ("arm", *FIGURES, "times_baseline", "passes", "requests", "errors", "missing", "outcome"),
    "notebooks": ("notebook", "status", "duration_s", "error"),
    "parity": (
        "group", "arm", "base", "candidates", "max_difference", "mean_difference", "flips", "largest_flip_margin",
        "unequal_scores", "exact",
    ),
    "passes": ("arm", "workload", "pass_index", "requests", "errors", *FIGURES),
    "published": ("whose", "name", "passes_ms", "mean_ms", "device", "arm"),
    "rungs": ("arm", "below", "promised", "hypothesis"),
    "savings": (
        "group", "arm", "base", "saving_ms", "saving_percent", "ratio", "requests", "interval", "passes_disjoint",
    ),
    "workload": (
        "workload", "requests", "questions", "distinct_lengths", "tokens_min", "tokens_median", "tokens_mean",
        "tokens_max", "label_yes", "label_no", "tokens_unexpected",
    ),
}  # fmt: skip
GROUPS = {"below": "against the rung below", "baseline": "against the baseline", "chosen": "against the arm chosen"}
FIGURES_IN_WORDS = ("passes_ms", "ratio", "saving_ms", "saving_percent")
DECIMALS = 3
WORDS = {True: "yes", False: "no"}
# Null means that nothing was measured; in these columns it means that there is nothing to say.
MISSING = "–"
EMPTY = (
    "arm", "base", "below", "error", "interval", "largest_flip_margin", "missing", "passes_disjoint", "reason",
)  # fmt: skip


def table(frame: pl.DataFrame, name: str) -> GT:
    """The frame of ``tables`` or ``facts`` styled as the table ``name``; "–" says that a figure was not measured.

    What follows a dash in the name tells two tables of one look apart: "ladder-jevbench" looks as "ladder".
    """
    from great_tables import GT

    identity, name = f"table-{name}", name.partition("-")[0]
    shown = SHAPES.get(name, pl.DataFrame)(frame)
    shown = shown.select(COLUMNS.get(name, tuple(shown.columns)))
    truths = [column for column, kind in shown.schema.items() if kind == pl.Boolean]
    shown = shown.with_columns(pl.col(truths).replace_strict(WORDS, return_dtype=pl.String))
    titles = {column: SCIENTIFIC.get(column) or TITLES.get(column, (column, None))[0] for column in shown.columns}
    group = "group" if "group" in shown.columns else None
    styled = GT(shown, id=identity, groupname_col=group).cols_label(cases=titles)
    styled = styled.cols_align("right", columns=[column for column in shown.columns if column in FIGURES_IN_WORDS])
    for column, kind in shown.schema.items():
        decimals = TITLES.get(column, (column, DECIMALS))[1]
        if column in SCIENTIFIC:
            styled = styled.fmt_scientific(columns=column, decimals=1)
        elif decimals is not None and kind.is_numeric():
            styled = styled.fmt_number(columns=column, decimals=decimals)
        elif kind.is_float():
            styled = styled.fmt(_plainly, columns=column)
    for words, wanted in (("", True), (MISSING, False)):
        chosen = [column for column in shown.columns if (column in EMPTY) == wanted]
        styled = styled.sub_missing(columns=chosen, missing_text=words) if chosen else styled
    unmeasured = shown.select(pl.any_horizontal(pl.exclude(EMPTY).is_null())).to_series().any()
    return styled.tab_source_note(f"{MISSING} not measured") if unmeasured else styled


def _by_base(compared: pl.DataFrame) -> pl.DataFrame:
    """Savings or parity in groups: against the rung below, against the baseline."""
    return compared.with_columns(pl.col("against").replace_strict(GROUPS).alias("group"))


def _unbroken_limits(gates: pl.DataFrame) -> pl.DataFrame:
    """Limits on one line: "at most 0.001" with spaces that do not break."""
    return gates.with_columns(pl.col("limit", "base").str.replace_all(" ", "\u00a0"))


def _with_outcome(ladder: pl.DataFrame) -> pl.DataFrame:
    """Status and reason in one cell: "skipped: CUDA graphs need a CUDA device"."""
    told = pl.concat_str("status", pl.lit(": "), "reason")
    return ladder.with_columns(pl.coalesce(told, "status").alias("outcome"))


def _below(rungs: pl.DataFrame) -> pl.DataFrame:
    """Base and promise under titles of their own: here they are neither comparison nor result."""
    return rungs.rename({"base": "below", "exact": "promised"})


def _with_intervals(savings: pl.DataFrame) -> pl.DataFrame:
    """Each estimate as text with its interval: "2.04 [1.56, 2.69]"."""

    def cell(row: dict[str, Any], column: str, decimals: int) -> str | None:
        low, high = row[f"{column}_low"], row[f"{column}_high"]
        if row[column] is None:
            return None
        interval = "" if low is None else f" [{low:,.{decimals}f}, {high:,.{decimals}f}]"
        return f"{row[column]:,.{decimals}f}{interval}"

    return _by_base(savings).with_columns(
        pl.Series(column, [cell(row, column, decimals) for row in savings.iter_rows(named=True)], dtype=pl.String)
        for column, decimals in {"saving_ms": 3, "saving_percent": 2, "ratio": 3}.items()
    )


def _stages_aside(stages: pl.DataFrame) -> pl.DataFrame:
    """One row an arm: ms of each stage, and the forward's share."""
    share = stages.filter(pl.col("stage") == "execute").select("arm", pl.col("share_percent").alias("execute (%)"))
    named = stages.with_columns(pl.format("{} (ms)", "stage").alias("stage"))
    wide = named.pivot("stage", index=["arm", "requests"], values="mean_ms", maintain_order=True)
    return wide.join(share, on="arm", how="left", maintain_order="left")


def _groups_aside(accuracy: pl.DataFrame) -> pl.DataFrame:
    """One row an arm: correct of labelled in each group."""
    counted = accuracy.with_columns(pl.format("{} of {}", "correct", "requests").alias("counts"))
    return counted.pivot("group", index="arm", values="counts", maintain_order=True)


def _passes_aside(published: pl.DataFrame) -> pl.DataFrame:
    """One row a published or own arm: its pass means in one cell, and their mean."""
    words = pl.col("mean_ms").round(2).cast(pl.String).str.join(", ").alias("passes_ms")
    keys = ["whose", "name", "device", "arm"]
    return published.group_by(keys, maintain_order=True).agg(words, pl.col("mean_ms").mean())


SHAPES: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "accuracy": _groups_aside,
    "gates_declared": _unbroken_limits,
    "ladder": _with_outcome,
    "parity": _by_base,
    "published": _passes_aside,
    "rungs": _below,
    "savings": _with_intervals,
    "stages": _stages_aside,
}


def _plainly(value: float | None) -> str:
    """A limit or a judged value, whose size may be 1e-7 or 300: four significant digits."""
    return MISSING if value is None else f"{value:.4g}"


def html(frame: pl.DataFrame, name: str) -> str:
    """The styled table as HTML without its style sheet, which would come again with every table of a page."""
    return re.sub(r"<style>.*?</style>\s*", "", table(frame, name).as_raw_html(), flags=re.DOTALL)
