"""The notebook runner, on tiny notebooks: order, a failing one, a dead kernel, resume, unknown parameters.

python -m pytest tests/test_runner.py
"""

import json
import sys
from pathlib import Path

import nbformat
import pytest

from openjev_lab import runner
from openjev_lab.errors import LabError


def notebook(folder: Path, name: str, *sources: str) -> Path:
    """A notebook with one parameters cell and the given code cells."""
    cells = [nbformat.v4.new_code_cell("word: str = 'default'", metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = folder / f"{name}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def test_failed_and_dead_notebooks_are_rows_and_the_rest_runs(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    books = [
        notebook(tmp_path, "00-fails", "1 / 0"),
        notebook(tmp_path, "01-dies", "import os", "os._exit(0)"),
        notebook(tmp_path, "02-works", f"open({str(tmp_path / 'said')!r}, 'w').write(word)"),
    ]
    outcomes = runner.run_notebooks(books, {"word": "passed"}, run_dir)
    assert [(row.notebook, row.status) for row in outcomes] == [
        ("00-fails", "failed"),
        ("01-dies", "dead"),
        ("02-works", "done"),
    ]
    assert outcomes[0].error == "ZeroDivisionError: division by zero"
    assert "kernel died" in (outcomes[1].error or "")
    assert (tmp_path / "said").read_text() == "passed"
    index = json.loads((run_dir / "index.json").read_text())["notebooks"]
    assert [row["status"] for row in index] == ["failed", "dead", "done"]
    executed = nbformat.read(run_dir / "notebooks" / "00-fails.ipynb", as_version=4)
    assert any(output.output_type == "error" for cell in executed.cells for output in cell.get("outputs", []))
    assert not list(run_dir.rglob("*.partial.ipynb"))


def test_resume_repeats_only_what_is_not_done_or_changed(tmp_path: Path) -> None:
    run_dir, log = tmp_path / "run", tmp_path / "log"
    append = f"with open({str(log)!r}, 'a') as file: print({{0!r}}, file=file)"
    first = notebook(tmp_path, "a", append.format("a"))
    second = notebook(tmp_path, "b", append.format("b"), "assert not word == 'default'")
    runner.run_notebooks([first, second], {}, run_dir)
    assert log.read_text().split() == ["a", "b"]
    outcomes = runner.run_notebooks([first, second], {}, run_dir, resume=True)
    assert log.read_text().split() == ["a", "b", "b"]  # b had failed
    assert [row.status for row in outcomes] == ["done", "failed"]
    runner.run_notebooks([first, second], {"word": "x"}, run_dir, resume=True)
    assert log.read_text().split() == ["a", "b", "b", "a", "b"]  # other parameters
    notebook(tmp_path, "a", append.format("a2"))
    (run_dir / "notebooks" / "b.ipynb").write_text("{}")
    runner.run_notebooks([first, second], {"word": "x"}, run_dir, resume=True)
    assert log.read_text().split() == ["a", "b", "b", "a", "b", "a2", "b"]  # other source; executed copy touched


def test_unknown_parameter_is_refused_before_anything_runs(tmp_path: Path) -> None:
    book = notebook(tmp_path, "a", "1")
    with pytest.raises(LabError, match=r"has no parameter words; its parameters cell declares word"):
        runner.run_notebooks([book], {"words": "x"}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_executed_copy_names_no_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ROOT", tmp_path.resolve())
    book = notebook(tmp_path, "a", "import sys; print('as', sys.prefix + '/lib/x.py', 'warns')")
    (outcome,) = runner.run_notebooks([book], {}, tmp_path / "run")
    assert outcome.status == "done"
    executed = nbformat.read(tmp_path / "run" / "notebooks" / "a.ipynb", as_version=4)
    assert "as <python>/lib/x.py warns" in str(executed.cells) and sys.prefix not in str(executed.cells)
    recorded = executed.metadata["papermill"]
    assert (recorded["input_path"], recorded["output_path"]) == ("a.ipynb", "run/notebooks/a.ipynb")
