"""The manifest holds what numbers depend on and nothing that names this machine or its folders."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openjev_lab.evidence import manifest


def test_it_is_whole_and_names_no_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, str(manifest.ROOT / "experiments/x.yaml"), "/somewhere/else/kernel.json", "--resume"]
    monkeypatch.setattr(sys, "orig_argv", argv)
    facts = manifest.collect("run", "exp", "0" * 64, {"workloads": {}})
    assert facts["argv"] == [Path(sys.executable).name, "experiments/x.yaml", "kernel.json", "--resume"]
    assert facts["packages"]["polars"] and facts["machine"]["cpu"] and facts["affinity"]
    text = json.dumps(facts)
    assert str(manifest.ROOT) not in text and sys.prefix not in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{manifest.ROOT}/kernels/x.cu: no", "kernels/x.cu: no"),
        (f"in {sys.prefix}/lib/python3/torch/a.py", "in <python>/lib/python3/torch/a.py"),
        (f"at {manifest.ROOT}", "at ."),
        (f"{manifest.ROOT}-other/x", f"{manifest.ROOT}-other/x"),
        ("synthetic:27b?seed=1", "synthetic:27b?seed=1"),
    ],
)
def test_paths_are_told_from_the_project_or_from_python(text: str, told: str) -> None:
    assert manifest.portable(text) == told
    assert manifest.portable_json({"a": [text, 1, None]}) == {"a": [told, 1, None]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with a module, a kernel and a report."""
    for name in ("openjev_lab/a.py", "openjev_lab/report/b.py", "kernels/k/c.cu", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(tmp_path)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    return tmp_path


def test_git_tells_what_differs_from_the_revision_but_for_reports(project: Path) -> None:
    clean = manifest.git()
    assert len(clean["revision"]) == 40 and clean["dirty"] is False and clean["dirty_sha256"] is None
    (project / "reports/run").mkdir(parents=True)
    (project / "reports/run/timings.jsonl").write_text("{}")
    assert manifest.git() == clean
    (project / "README.md").write_text("changed")
    changed = manifest.git()
    assert changed["dirty"] and changed["revision"] == clean["revision"]
    (project / "new.py").write_text("1")
    first = manifest.git()["dirty_sha256"]
    (project / "new.py").write_text("2")
    assert len({changed["dirty_sha256"], first, manifest.git()["dirty_sha256"]}) == 3


def test_an_unpacked_archive_has_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    assert manifest.git() == {"revision": None, "dirty": None, "dirty_sha256": None}


def test_the_code_hash_is_about_what_measures(project: Path) -> None:
    before = manifest.code_sha256()
    for name in ("openjev_lab/report/b.py", "README.md"):
        (project / name).write_text("other")
    assert manifest.code_sha256() == before
    for name in ("openjev_lab/a.py", "kernels/k/c.cu"):
        (project / name).write_text("other")
        assert manifest.code_sha256() != before
        before = manifest.code_sha256()


def test_hashes_do_not_depend_on_the_order_of_keys() -> None:
    assert manifest.sha256_of({"a": 1, "b": [2.0, None]}) == manifest.sha256_of({"b": [2.0, None], "a": 1})
    assert manifest.sha256_of({"a": 1}) != manifest.sha256_of({"a": 2})
    with pytest.raises(ValueError, match="JSON compliant"):
        manifest.sha256_of(float("nan"))
