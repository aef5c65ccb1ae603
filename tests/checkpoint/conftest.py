"""Fixtures of the checkpoint tests: a copy of the tiny package that a test may break."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copy(tiny_package: Path, tmp_path: Path) -> Path:
    """A private copy of the tiny package."""
    return Path(shutil.copytree(tiny_package, tmp_path / "copy"))
