"""What the tree promises: sizes, import directions, twins that must agree, notebooks as they are stored, README.

python -m pytest tests/test_structure.py
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
# Longer on purpose, each with its reason. Kernels are excepted by the rule itself.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
CONDA_NAMES = {"torch": "pytorch"}


def tracked(*patterns: str) -> list[str]:
    """Files of the project by git pathspec, committed or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted({path for path in listed if path and (ROOT / path).exists()})


MODULES = tracked("openjev_lab/*.py", "tests/*.py")
NOTEBOOKS = tracked("notebooks/*.ipynb")


@pytest.mark.parametrize("path", MODULES)
def test_files_and_functions_are_short_and_modules_say_why(path: str) -> None:
    text = (ROOT / path).read_text()
    tree = ast.parse(text)
    assert not text.strip() or ast.get_docstring(tree), "no module docstring"
    assert text.count("\n") <= MAX_FILE_LINES or path in LONG_FILES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES or f"{path}:{node.name}" in LONG_FUNCTIONS, f"{node.name}: {lines} lines"


def test_exceptions_are_still_needed() -> None:
    for path in LONG_FILES:
        assert (ROOT / path).read_text().count("\n") > MAX_FILE_LINES
    for name in LONG_FUNCTIONS:
        path, function = name.split(":")
        nodes = [
            node for node in ast.walk(ast.parse((ROOT / path).read_text())) if getattr(node, "name", "") == function
        ]
        assert any((node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES for node in nodes), name


def imports(path: str) -> set[str]:
    """Every module that a file imports, wherever in it; relative ones do not occur in this project."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


# Who may never import whom: imports point down the request's list and down the measurement's.
FORBIDDEN = {
    "openjev_lab/report/*.py": r"torch|transformers|openjev_lab\.(?!errors|stats|report)",
    "openjev_lab/contract.py": r"numpy|torch|transformers|fastapi|openjev_lab\.(?!errors|strict_json)",
    "openjev_lab/geometry.py": r"torch|transformers|openjev_lab\.(?!errors)",
    "openjev_lab/forward.py": r"numba|cupy|kernels|openjev_lab\.(rungs|engine|serving|measure|report|hf)",
    "openjev_lab/engine.py": r"openjev_lab\.(serving|measure|report|contract)",
    "openjev_lab/ops/*.py": r"openjev_lab\.(engine|forward|serving|measure|report|hf)",
    "openjev_lab/evidence/*.py": (
        r"torch|transformers|openjev_lab\.(serving|engine|forward|rungs|hf|ops|measure|report)"
    ),
    "openjev_lab/measure/*.py": r"torch|transformers|openjev_lab\.(engine|forward|hf|ops)",
    "kernels/*.py": r"openjev_lab\.(engine|forward|rungs|serving|measure|report|hf)",
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_imports_point_the_right_way(pattern: str) -> None:
    paths = tracked(pattern)
    assert paths, f"nothing matches {pattern}"
    for path in paths:
        wrong = sorted(name for name in imports(path) if re.match(rf"({FORBIDDEN[pattern]})(\.|$)", name))
        assert not wrong, f"{path} imports {wrong}"


def test_importing_the_report_never_brings_in_torch() -> None:
    modules = [path[:-3].replace("/", ".").removesuffix(".__init__") for path in tracked("openjev_lab/report/*.py")]
    program = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def declared(project: dict[str, Any]) -> list[str]:
    """What everybody installs, and the extras that need no GPU."""
    extras = project["optional-dependencies"]
    return project["dependencies"] + extras["lab"] + extras["dev"]


def requirement(text: str) -> tuple[str, str]:
    """``name spec`` or ``namespec`` as (name, spec)."""
    name = re.match(r"[\w.-]+", text)
    assert name, text
    return name[0], text[name.end() :].strip()


def test_environment_yml_is_the_conda_twin_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = dict(map(requirement, declared(project)))
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = (entry["pip"] for entry in conda if isinstance(entry, dict))
    assert pip[-1] == "-e ."
    found = dict(map(requirement, [entry for entry in conda if isinstance(entry, str)] + pip[:-1]))
    assert found.pop("python") == project["requires-python"]
    assert found.pop("pip") == ""
    assert found == {CONDA_NAMES.get(name, name): spec for name, spec in wanted.items()}


def test_constraints_pin_every_dependency_inside_its_range() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
    wanted = [Requirement(text) for text in declared(project)]
    assert sorted(pins) == sorted(entry.name for entry in wanted)
    for entry in wanted:
        assert entry.specifier.contains(pins[entry.name]), f"{entry} is pinned to {pins[entry.name]}"


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook_is_stored_bare_with_one_literal_parameters_cell(path: str) -> None:
    notebook = json.loads((ROOT / path).read_text())
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    tagged = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    assert tagged == [code[0]], "the first code cell, and it alone, is tagged parameters"
    for statement in ast.parse("".join(code[0]["source"])).body:
        assert isinstance(statement, ast.AnnAssign) and statement.value is not None, (
            "name: type = literal, nothing else"
        )
        ast.literal_eval(statement.value)
    for cell in code:
        source = "".join(cell["source"])
        assert not re.search(r"^\s*(async\s+)?(def|class)\s", source, flags=re.MULTILINE), source
        checked = "NBVAL_CHECK_OUTPUT" in source
        assert bool(cell["outputs"]) == checked, f"outputs are stored in checked cells, and only there: {source}"
        assert (cell["execution_count"] is not None) == checked, f"nbval compares a cell that has a count: {source}"


def test_all_ten_notebooks_are_there() -> None:
    names = ["00-device", "01-workload", "10-raw-hf", "11-merged-hf", "12-scalar", "13-fused-gate", "14-cached-rmsnorm"]
    names += ["15-packed-silu", "16-graph-64", "20-ladder"]
    assert [Path(path).stem for path in NOTEBOOKS][: len(names)] == names


def shown_tree() -> dict[str, str]:
    """Path -> purpose from README's tree: two blanks of indentation a level, folders end with a slash."""
    (block,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    found, parents = {}, [""]
    for line in block.splitlines():
        name, _, purpose = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // 2
        path = parents[depth] + name
        parents = [*parents[: depth + 1], path]
        found[path] = purpose.strip()
    return found


def real_tree() -> set[str]:
    """What the tree must show: every file of the package, notebooks and the root, and folders for the rest."""
    found = set()
    for path in tracked():
        first, _, rest = path.partition("/")
        if path in (".gitignore", ".gitattributes") or path.endswith("/__init__.py"):
            continue
        if first == "tests":
            path = "tests/"
        elif first in ("kernels", "checkpoints", "reports") or path.startswith("experiments/workloads/"):
            path = "/".join(path.split("/")[:2]) + "/"
        found.add(path)
        parts = path.rstrip("/").split("/")
        found |= {"/".join(parts[: i + 1]) + "/" for i in range(len(parts) - 1)}
    return found


def test_readme_shows_the_real_tree_with_a_purpose_each() -> None:
    shown = shown_tree()
    assert set(shown) == real_tree()
    assert not [path for path, purpose in shown.items() if not purpose and not path.endswith("/")]


def test_readme_links_to_what_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text()):
        assert target.startswith("https://") or (ROOT / target).exists(), target
