"""Altair charts of a run, for the report and for notebooks; what they draw comes from ``tables`` and ``facts``.

Every function takes the run folder (or a loaded Run) and returns one chart in the house theme, titled, with units on
its axes and device, date and passes below the title. Nulls are never drawn as numbers; where a chart would be empty it
says so in words. Apart from ``render`` so that a notebook can show one chart:

    from openjev_lab.report import charts
    charts.ladder("reports/ladder-tiny")
"""

from openjev_lab.report.draw_context import parity, parity_overview, published, workload
from openjev_lab.report.draw_latency import ladder, latency_by_tokens, relative_by_tokens, saving, savings, stages

__all__ = [
    "ladder",
    "latency_by_tokens",
    "parity",
    "parity_overview",
    "published",
    "relative_by_tokens",
    "saving",
    "savings",
    "stages",
    "workload",
]
