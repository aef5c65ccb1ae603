"""The complete synthetic run, and its report, made once a session; tests that need another write their own."""

import pytest
from synthetic_run import write_run


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    """Six arms measured, one skipped, gates green."""
    return write_run(tmp_path_factory.mktemp("reports") / "synthetic")


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """The same run in a folder of its own, with its report beside the evidence."""
    from openjev_lab.report import render

    folder = write_run(tmp_path_factory.mktemp("rendered") / "synthetic")
    render.render(folder)
    return folder
