"""What a notebook cell ends with: small objects that are readable as text alone and better in JupyterLab.

Takes rows, sources or text; returns objects with a Markdown and a plain-text form, both deterministic, so that a stored
output can be compared. Apart from the modules that compute, which stay free of formatting.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """Markdown that is also its own plain text; ``data`` travels with it for programs that read the notebook."""

    markdown: str
    data: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return self.markdown

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": self.markdown, "text/markdown": self.markdown}
        if self.data is not None:
            bundle["application/vnd.openjev-lab+json"] = dict(self.data)
        return bundle


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as SVG: it shows with the network off, in JupyterLab and in an executed copy alike.

    ``chart`` is Altair's, whose own output fetches its scripts from a network.
    """

    chart: Any

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        svg = io.StringIO()
        self.chart.save(svg, format="svg")
        return {"image/svg+xml": svg.getvalue(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        title = self.chart.to_dict().get("title", "")
        return f"chart: {title['text'] if isinstance(title, dict) else title}"


def table(rows: Sequence[Mapping[str, Any]], *, data: Mapping[str, Any] | None = None) -> Text:
    """A Markdown table of dicts that share their keys; numbers on the right, None as an empty cell."""
    columns = list(rows[0])
    cells = [[cell(row[column]) for column in columns] for row in rows]
    numeric = [all(is_number(row[column]) for row in rows) for column in columns]
    widths = [max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)]
    rule = [("-" * (width - 1) + ":") if right else "-" * width for width, right in zip(widths, numeric, strict=True)]
    lines = [columns, rule, *cells]
    padded = [
        [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        for line in lines
    ]
    return Text("\n".join("| " + " | ".join(line) + " |" for line in padded), data)


def is_number(value: Any) -> bool:
    """Whether a value stands on the right: a number, or none where a number could be."""
    return isinstance(value, int | float | None) and not isinstance(value, bool)


def cell(value: Any) -> str:
    """A table cell: thousands separated, floats to four significant digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def code(source: str, language: str = "python") -> Text:
    """Source text as a fenced block."""
    return Text(f"```{language}\n{source.rstrip()}\n```")


def diff(before: str, after: str, before_name: str, after_name: str) -> Text:
    """What changed from one source to the next, three lines of context, as JupyterLab colours it."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="")
    return code("\n".join(lines) or "(no difference)", "diff")
