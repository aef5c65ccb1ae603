"""report.render: one offline file, its tables and charts beside it, and the same bytes from the same evidence."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
from synthetic_run import LADDER, timing_rows, write_run

from openjev_lab.report import page, render, source


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of everything that a report writes."""
    paths = [folder / render.REPORT, *sorted(folder.glob("tables/*")), *sorted(folder.glob("charts/*"))]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_the_same_evidence_gives_the_same_bytes_in_another_process(rendered, tmp_path):
    code = f"from openjev_lab.report import render; render.rebuild({str(rendered)!r}, {str(tmp_path)!r})"
    elsewhere = {"PYTHONHASHSEED": "77", "TZ": "Pacific/Auckland", "LC_ALL": "C", "POLARS_MAX_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], env=os.environ | elsewhere, check=True)
    assert digests(tmp_path) == digests(rendered)


def test_the_report_needs_no_torch_and_no_engine(rendered, tmp_path):
    code = (
        "import sys; from openjev_lab.report import render; render.html; import openjev_lab.report.charts;"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'transformers', 'numba')"
        " or m.startswith(('openjev_lab.measure', 'openjev_lab.serving', 'openjev_lab.engine'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_table_and_chart_lies_beside_the_page_in_every_form(rendered):
    frames = page.frames(source.load(rendered))
    wanted = {f"{name}.{kind}" for name in frames for kind in ("csv", "parquet")}
    assert {path.name for path in (rendered / "tables").iterdir()} == wanted
    wanted = {f"{name}.{kind}" for name in render.CHARTS for kind in ("vl.json", "svg", "png")}
    assert {path.name for path in (rendered / "charts").iterdir()} == wanted
    for name, frame in frames.items():
        assert pl.read_parquet(rendered / "tables" / f"{name}.parquet").equals(frame), name


def test_every_link_of_the_page_leads_to_a_file_beside_it_or_to_a_section(rendered):
    text = (rendered / render.REPORT).read_text()
    body = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    links = set(re.findall(r'(?:href|src)="([^"]*)"', body)) - {"data:,"}
    assert len(links) > 30
    for link in links:
        found = f'id="{link[1:]}"' in body if link.startswith("#") else (rendered / link).exists()
        assert found, link


def test_the_page_names_no_address_to_fetch_from(rendered):
    text = (rendered / render.REPORT).read_text()
    outside_scripts = re.sub(r"(<script[^>]*>).*?</script>", r"\1", text, flags=re.DOTALL)
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?!data:)', outside_scripts)
    assert "@import" not in outside_scripts and "url(" not in outside_scripts
    assert len(re.findall(r"window\.vegaEmbed\s*=", text)) == 1, "the library is there once, not once a chart"


def test_text_from_evidence_is_escaped(tmp_path):
    rows = timing_rows()
    rows[-1] |= {"status": 500, "error": "<script>alert(1)</script>"}
    folder = write_run(tmp_path / "run", rows, invalid=["</script><b>broken</b>"])
    text = render.rebuild(folder, tmp_path / "out").read_text()
    assert "<script>alert" not in text and "<b>broken" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_files_of_an_older_report_go(tmp_path):
    folder = write_run(tmp_path / "run")
    stale = [tmp_path / "out" / "tables" / "old.csv", tmp_path / "out" / "charts" / "old.svg"]
    for path in stale:
        path.parent.mkdir(parents=True)
        path.write_text("old")
    render.rebuild(folder, tmp_path / "out")
    assert not any(path.exists() for path in stale)
    assert {path.name for path in folder.iterdir()} >= {"timings.parquet"} and not (folder / render.REPORT).exists()


def test_an_installed_package_carries_the_template_the_style_and_the_published_figures():
    root = Path(render.__file__).parents[2]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folder = Path(render.__file__).parent
    data = {path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    assert {render.TEMPLATE, render.STYLE_SHEET, "published.json"} <= data
    assert data <= {path.name for pattern in patterns["openjev_lab.report"] for path in folder.glob(pattern)}


def test_a_second_workload_has_tables_of_its_own(tmp_path):
    few = {name: LADDER[name] for name in ("raw-hf", "merged-hf")}
    rows = timing_rows(few) + timing_rows(few, workload="cases", tokens=(90, 120, 400))
    out = tmp_path / "out"
    text = render.rebuild(write_run(tmp_path / "run", rows), out).read_text()
    assert "Also measured: cases" in text and 'id="table-ladder-cases"' in text
    also = pl.read_csv(out / "tables" / "ladder-cases.csv").filter(pl.col("arm") == "raw-hf")
    assert also["requests"].item() == 2 * 3
    assert pl.read_csv(out / "tables" / "parity-cases.csv")["candidates"].to_list() == [3, 3]
