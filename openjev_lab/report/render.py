"""Write a run's report: report.html, tables/*.csv and *.parquet, charts/*.vl.json, *.svg and *.png.

Takes a run folder; writes beside the evidence (``render``) or into another folder (``rebuild``). The same evidence
gives the same bytes: nothing here asks for the time, ids are names, frames are sorted, and fonts come with the
exporter. Apart from ``page`` because this is files, and that is prose.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from openjev_lab.report import charts, facts, page, source, style, verdict
from openjev_lab.report.marks import Chart
from openjev_lab.report.source import Run

REPORT = "report.html"
TEMPLATE = "report.html.j2"
STYLE_SHEET = "report.css"
PNG_SCALE = 1.5
VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"
# File names in charts/, and the function that draws each.
CHARTS: dict[str, Callable[[Run], Chart]] = {
    "ladder": charts.ladder,
    "savings": charts.savings,
    "latency_by_tokens": charts.latency_by_tokens,
    "relative_by_tokens": charts.relative_by_tokens,
    "parity": charts.parity_overview,
    "stages": charts.stages,
    "published": charts.published,
    "workload": charts.workload,
}


def render(run_dir: Path | str) -> Path:
    """Write the report beside the evidence; returns the path of report.html."""
    return rebuild(run_dir, run_dir)


def rebuild(run_dir: Path | str, out_dir: Path | str) -> Path:
    """Write the report of ``run_dir`` into ``out_dir``, replacing an older one; the evidence is only read."""
    run, out = source.load(run_dir), Path(out_dir)
    frames = page.frames(run)
    specs = draw(run)
    write_tables(frames, out / "tables")
    write_charts(specs, out / "charts")
    path = out / REPORT
    path.write_text(html(run, frames, specs), encoding="utf-8")
    return path


def draw(run: Run) -> dict[str, dict[str, Any]]:
    """The Vega-Lite spec of every chart of the report, by the name of its files."""
    return {name: chart(run).to_dict() for name, chart in CHARTS.items()}


def write_tables(frames: dict[str, pl.DataFrame], folder: Path) -> None:
    """One CSV and one Parquet file a frame; a file that is no longer written goes."""
    _emptied(folder)
    for name, frame in frames.items():
        frame.write_csv(folder / f"{name}.csv")
        frame.write_parquet(folder / f"{name}.parquet")


def write_charts(specs: dict[str, dict[str, Any]], folder: Path) -> None:
    """Vega-Lite JSON, SVG and PNG a chart; a file that is no longer written goes."""
    import vl_convert

    _emptied(folder)
    for name, spec in specs.items():
        (folder / f"{name}.vl.json").write_text(_json(spec, indent=1) + "\n", encoding="utf-8")
        svg = vl_convert.vegalite_to_svg(spec, vl_version=_vega_lite())
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{name}.png").write_bytes(
            vl_convert.vegalite_to_png(spec, vl_version=_vega_lite(), scale=PNG_SCALE)
        )


def html(run: Run, frames: dict[str, pl.DataFrame], specs: dict[str, dict[str, Any]]) -> str:
    """The page in one string: style sheet, Vega and every chart's spec inside, no address to fetch from."""
    import jinja2

    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    sections = page.sections(run, frames)
    return environment.get_template(TEMPLATE).render(
        run=run,
        title=run.resolved.get("title") or run.resolved.get("name") or run.run_id,
        verdict=verdict.verdict(run),
        headline=verdict.headline(run, frames),
        summary=facts.summary(run),
        not_measured=facts.not_measured(run),
        facts=style.html(frames["facts"], "facts"),
        sections=[(section, page.table_html(frames, section)) for section in sections],
        specs={name: _json(spec).replace("<", "\\u003c") for name, spec in specs.items()},
        style_sheet=(folder / STYLE_SHEET).read_text(encoding="utf-8"),
        vega=_vega(),
    )


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent, sort_keys=True)


def _emptied(folder: Path) -> None:
    """The folder without the files of an older report."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.suffix in {".csv", ".parquet", ".json", ".svg", ".png"}:
            path.unlink()


@cache
def _vega() -> str:
    """Vega-Embed, Vega-Lite and Vega as one script, the same for every page."""
    import vl_convert

    return vl_convert.javascript_bundle(VEGA_SNIPPET, vl_version=_vega_lite()).replace("</script", "<\\/script")


def _vega_lite() -> str:
    """The Vega-Lite release that altair's specs are written for, as vl-convert names it ("6.4")."""
    import altair

    return ".".join(altair.VEGALITE_VERSION.split(".")[:2])
