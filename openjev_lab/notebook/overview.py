"""The ladder's notebook: every rung side by side, from a run's rows alone.

Takes checked parameters; returns a table and the report's charts. By hand, without a run, it shows the newest one under
``reports/``. Apart from ``rung``, which measures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from openjev_lab.errors import LabError
from openjev_lab.evidence import read
from openjev_lab.evidence.run import RESOLVED
from openjev_lab.measure import gates
from openjev_lab.notebook.parameters import ROOT, SCRATCH, Parameters
from openjev_lab.notebook.show import Drawing, Text, table
from openjev_lab.report import charts, tables


class Overview:
    """One run."""

    def __init__(self, parameters: Parameters) -> None:
        self.folder = newest() if parameters.by_hand else ROOT / parameters.run_dir

    def __repr__(self) -> str:
        shown = self.folder.relative_to(ROOT) if self.folder.is_relative_to(ROOT) else self.folder
        return f"the run in {shown}"

    def table(self) -> Text:
        """A row a rung: status, times, agreement with the labels."""
        rows = [
            {
                "rung": row["arm"],
                "status": row["status"],
                "mean ms": row["mean_ms"],
                "p50 ms": row["p50_ms"],
                "p95 ms": row["p95_rank_ms"],
                "times raw": row["times_baseline"],
                "right": None if row["correct"] is None else f"{row['correct']}/{row['labelled']}",
                "why not": row["reason"] or "",
            }
            for row in tables.ladder(self.folder).to_dicts()
        ]
        return table(rows)

    def chart(self, name: str) -> Drawing:
        """One of the report's charts: ladder, savings, latency_by_tokens, relative_by_tokens, parity, stages, ..."""
        if name not in DRAWN:
            raise LabError(f"there is no chart {name!r}; there are {', '.join(DRAWN)}")
        return Drawing(DRAWN[name](self.folder))

    def verdict(self) -> Text:
        """Every gate, and the sum of it."""
        judgement = gates.judge(read(self.folder))
        data: dict[str, Any] = {"verdict": judgement.verdict, "arms": judgement.arms}
        return Text(f"```text\n{gates.table(judgement)}\n```", data)


DRAWN: dict[str, Callable[[Path], Any]] = {
    "ladder": charts.ladder,
    "savings": charts.savings,
    "latency_by_tokens": charts.latency_by_tokens,
    "relative_by_tokens": charts.relative_by_tokens,
    "parity": charts.parity_overview,
    "stages": charts.stages,
    "published": charts.published,
}


def newest() -> Path:
    """The run of ``reports/`` that was started last; LabError if there is none."""
    found = [path.parent for path in (ROOT / "reports").glob(f"*/{RESOLVED}") if path.parent != SCRATCH]
    if not found:
        raise LabError("there is no run under reports/ yet; make ladder records one")
    return max(found, key=lambda folder: read(folder).manifest["created"])
