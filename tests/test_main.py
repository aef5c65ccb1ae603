"""The command line: it answers without importing anything heavy, and a mistake is one line and status 2.

python -m pytest tests/test_main.py
"""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "numba", "numpy", "cupy", "polars", "altair", "pydantic", "fastapi", "papermill")
COMMANDS = ("doctor", "ladder", "run", "serve", "merge", "compile", "report", "verify")


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "openjev_lab", *arguments], capture_output=True, text=True, timeout=120
    )


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    program = (
        "import sys; from openjev_lab.__main__ import app\n"
        "try: app(['--help'])\n"
        f"except SystemExit: print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "HEAVY []" in done.stdout, done.stdout + done.stderr
    for command in COMMANDS:
        assert f" {command} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str) -> None:
    from typer.testing import CliRunner

    from openjev_lab.__main__ import app

    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("ladder", "no-such.yaml"),
        ("run", "no-such.yaml"),
        ("verify", "no-such-run"),
        ("report", "no-such-run"),
        ("merge", "no-such-package", "out"),
        ("serve", "--rung", "no-such-rung", "--checkpoint", "checkpoints/tiny"),
        ("serve", "--rung", "scalar", "--checkpoint", "no-such-package"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_mistake_is_one_line_and_status_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = cli(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("openjev-lab: ") and done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
