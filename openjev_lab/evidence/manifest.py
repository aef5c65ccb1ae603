"""What a run's numbers depend on besides its experiment: code, packages, machine, inputs, command line.

Takes hashes of the inputs from ``measure``; returns the dict that becomes manifest.json. Nothing in it names the host
or a path outside the project, so that evidence can be shown to anybody. Apart from ``run`` because each fact here is
looked up in its own way.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
"""The project's root: paths in evidence are relative to it."""
PACKAGES = (
    "torch", "transformers", "peft", "tokenizers", "safetensors", "numba", "numba-cuda", "cupy-cuda13x", "numpy",
    "scipy", "polars", "pydantic", "fastapi", "uvicorn", "uvloop", "httptools", "altair", "vl-convert-python",
    "great-tables", "papermill", "jevbench", "flash-linear-attention", "causal-conv1d",
)  # fmt: skip
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CODE = ("openjev_lab", "kernels")
CODE_SUFFIXES = {".py", ".cu", ".cuh"}
NOT_MEASURING = ("openjev_lab/report/", "openjev_lab/notebook/", "openjev_lab/tiny/")
"""Code that no latency or answer depends on: what the requests say is in the workload's own hash."""
GPU_FIELDS = ("name", "uuid", "driver_version", "memory.total")


def collect(run_id: str, experiment: str, config_hash: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Every fact, as JSON-able values."""
    from openjev_lab.evidence.rows import SCHEMA_VERSION

    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "experiment": experiment,
        "config_hash": config_hash,
        "created": now(),
        "inputs": dict(inputs),
        "git": git(),
        "code_sha256": code_sha256(),
        "python": platform.python_version(),
        "packages": packages(),
        "machine": machine(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "thread_variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "argv": portable_argv(sys.orig_argv),
    }


def now() -> str:
    """UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def packages() -> dict[str, str]:
    """Name -> version of what numbers may depend on; absent ones are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git() -> dict[str, Any]:
    """The revision, and a hash of everything that differs from it (reports left out); revision None outside git."""
    everything = ("--", ".", ":(exclude)reports")
    revision = _git("rev-parse", "HEAD")
    if revision is None:
        return {"revision": None, "dirty": None, "dirty_sha256": None}
    digest = hashlib.sha256(_git("diff", "HEAD", "--binary", *everything) or b"")
    untracked = (_git("ls-files", "--others", "--exclude-standard", "-z", *everything) or b"").split(b"\0")
    for name in filter(None, untracked):
        digest.update(name + b"\0" + (ROOT / os.fsdecode(name)).read_bytes())
    dirty = bool(_git("status", "--porcelain", *everything))
    revision_text = revision.decode().strip()
    return {"revision": revision_text, "dirty": dirty, "dirty_sha256": digest.hexdigest() if dirty else None}


def _git(*arguments: str) -> bytes | None:
    """What git prints at the project's root; None where it can't."""
    if not (ROOT / ".git").exists():
        return None  # an unpacked archive inside somebody else's repository is not that repository
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def code_sha256() -> str:
    """One hash over the code that measures, by path and content: arms of a run must share it to be compared."""
    digest = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in CODE_SUFFIXES and not name.startswith(NOT_MEASURING):
                digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def machine() -> dict[str, Any]:
    """Processor, core count, memory, operating system and GPUs."""
    return {
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": f"{platform.system()} {platform.machine()}",
        "gpus": _gpus(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text() if info.exists() else "", flags=re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _gpus() -> list[dict[str, str]]:
    """The driver's view, one dict a GPU: name, uuid, driver_version, memory.total (MiB)."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return []
    lines = [line.split(", ") for line in done.stdout.strip().splitlines()]
    return [dict(zip(GPU_FIELDS, line, strict=True)) for line in lines]


def portable(text: str) -> str:
    """The text without this machine's paths: from the project's root inside it, shortened elsewhere."""
    # Python first: its venv may lie inside the project
    for folder, short in ((sys.prefix, "<python>/"), (str(ROOT), ""), (str(Path.home()), "~/")):
        if folder != "/":
            text = text.replace(folder + "/", short)
            text = re.sub(rf"{re.escape(folder)}(?![\w.-])", short or ".", text)
    return text


def portable_json(value: Any) -> Any:
    """``portable`` on every string in a JSON-able value."""
    if isinstance(value, str):
        return portable(value)
    if isinstance(value, Mapping):
        return {key: portable_json(part) for key, part in value.items()}
    return [portable_json(part) for part in value] if isinstance(value, list | tuple) else value


def portable_argv(argv: Sequence[str]) -> list[str]:
    """The command line with absolute paths from the project's root, or as bare names where they lie elsewhere.

    Python and what is installed beside it are bare names wherever they lie, in a venv inside the project too.
    """
    words = []
    for word in argv:
        path = Path(word)
        inside = path.is_absolute() and path.is_relative_to(ROOT) and not path.is_relative_to(sys.prefix)
        words.append(str(path.relative_to(ROOT)) if inside else path.name if path.is_absolute() else word)
    return words


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: what hashes are made of."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def sha256_of(value: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()
