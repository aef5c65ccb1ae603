"""One look for every chart: colours told apart by anyone, one font that the exporter carries, readable sizes.

Takes nothing, returns Vega-Lite configuration and colour scales. Apart from ``charts`` so that a chart says what is
drawn and this says how it looks. The palette is that of Okabe and Ito (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Liberation Sans travels inside vl-convert, so SVG and PNG come out the same on every machine; it has Arial's widths.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
INK = "#1c2530"
MUTED = "#5c6773"
RULE = "#d7dce1"
OURS = "#0072b2"
OURS_LIGHT = "#a9cfe6"
THEIRS = "#d55e00"
FASTER = "#0072b2"
SLOWER = "#d55e00"
UNDECIDED = "#8b949e"
ARMS = ("#1c2530", "#8b949e", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#cc79a7", "#b8a900", "#7b4fa3")
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
STAGES = {
    "queue": "#cc79a7",
    "prepare": "#e69f00",
    "execute": "#0072b2",
    "finish": "#009e73",
    "HTTP and client": "#8b949e",
}
WIDTH = 780
ROW = 34
"""Height of one arm's band, px."""


def config() -> dict[str, Any]:
    """Vega-Lite ``config``: the same for the page, the SVG and the PNG."""
    axis = {
        "labelColor": INK,
        "titleColor": INK,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titlePadding": 10,
        "gridColor": "#eceff2",
        "domainColor": RULE,
        "tickColor": RULE,
        "labelLimit": 260,
        "labelFlush": False,
    }
    return {
        "font": FONT,
        "background": "#ffffff",
        "view": {"stroke": None},
        "axis": axis,
        "axisY": {"grid": False},
        "title": {
            "anchor": "start",
            "fontSize": 15,
            "fontWeight": "bold",
            "color": INK,
            "subtitleColor": MUTED,
            "subtitleFontSize": 12,
            "subtitlePadding": 5,
            "offset": 14,
            "frame": "bounds",
        },
        "legend": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": INK},
        "text": {"color": INK, "fontSize": 12},
        "header": {"labelFontSize": 12, "labelColor": INK, "titleColor": INK},
    }


def scale(arms: Sequence[str], shown: Sequence[str], looks: Sequence[str]) -> dict[str, list[str]]:
    """Domain and range of a colour or shape scale: an arm looks the same in every chart, by its place in the run."""
    places = {arm: looks[index % len(looks)] for index, arm in enumerate(arms)}
    return {"domain": list(shown), "range": [places[arm] for arm in shown]}
