"""What this machine can run, and why not: read-only, one line a finding.

Takes nothing; returns findings (group, name, ok, detail), printed for a person or as JSON. ``ok`` is None for a plain
fact. Apart from everything else because it must work on a machine where half of the rest cannot be imported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "fma", "sve", "asimd")
MARKS = {True: "+", False: "!", None: " "}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS")


Row = tuple[str, bool | None, str]  # name, ok, detail


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: ``ok`` True or False is a verdict, None a fact; ``detail`` says what was found or what is missing."""

    group: str
    name: str
    ok: bool | None
    detail: str


def findings() -> list[Finding]:
    """Every finding, in the order of GROUPS. A group that cannot be looked at is itself a finding."""
    found: list[Finding] = []
    for name, group in GROUPS.items():
        try:
            found += [Finding(name, *rest) for rest in group()]
        except Exception as problem:  # the doctor reports what is broken; it does not break with it
            found.append(Finding(name, name, False, f"{type(problem).__name__}: {problem}"))
    return found


def python_rows() -> Iterator[Row]:
    """Interpreter and where the project lies."""
    right = sys.version_info >= (3, 11)
    yield "python", right, platform.python_version() + ("" if right else ": 3.11 or newer is needed")
    yield "system", None, platform.platform()
    yield "project", None, str(ROOT)


def package_rows() -> Iterator[Row]:
    """Each pinned package against what is installed: a difference is a fact, an absent one a fault."""
    for name, pin in pins((ROOT / "constraints.txt").read_text()).items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, False, f"not installed (pinned {pin})"
            continue
        same = version.split("+")[0] == pin
        yield name, True if same else None, version + ("" if same else f" (committed runs used {pin})")


def pins(constraints: str) -> dict[str, str]:
    """``name==version`` lines of a constraints file as a dict."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", constraints, flags=re.MULTILINE))


def cpu_rows() -> Iterator[Row]:
    """Processor, the cores that this process may use, memory, and variables that change thread counts."""
    import psutil

    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    yield "cpu", None, model[1] if model else platform.machine()
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, flags=re.MULTILINE)
    has = set(flags[1].split()) if flags else set()
    yield "cpu features", None, " ".join(feature for feature in CPU_FEATURES if feature in has) or "none known"
    yield "cores", None, f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} usable"
    memory = psutil.virtual_memory()
    yield "memory", None, f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available"
    for variable in THREAD_VARIABLES:
        if variable in os.environ:
            yield variable, None, os.environ[variable]


def gpu_rows() -> Iterator[Row]:
    """The driver, PyTorch's view, CuPy with its run-time compiler, Numba's CUDA target."""
    if shutil.which("nvidia-smi") is None and not Path("/dev/nvidia0").exists():
        yield "gpu", None, "no NVIDIA driver here; the CPU rungs run"
        return
    import torch

    usable = torch.cuda.is_available()
    yield (
        "torch cuda",
        usable,
        f"torch {torch.__version__}, CUDA {torch.version.cuda}"
        + ("" if usable else ": this build or driver cannot use the GPU"),
    )
    for index in range(torch.cuda.device_count() if usable else 0):
        device = torch.cuda.get_device_properties(index)
        yield (
            f"gpu {index}",
            True,
            (
                f"{device.name}, {device.multi_processor_count} SMs, sm_{device.major}{device.minor}, "
                f"{device.total_memory / 2**30:.0f} GiB"
            ),
        )
    yield "cupy", *attempt("cupy", lambda: __import__("cupy").__version__)
    yield "nvrtc", *attempt("nvrtc", lambda: str(__import__("cupy").cuda.nvrtc.getVersion()))
    yield "numba-cuda", *attempt("numba-cuda", lambda: importlib.metadata.version("numba-cuda"))


def attempt(name: str, look: Callable[[], str]) -> tuple[bool, str]:
    """(True, what it says) or (False, why it cannot)."""
    try:
        return True, look()
    except Exception as problem:
        return False, f"{name}: {type(problem).__name__}: {problem} (pip install -e '.[gpu]')"


def tool_rows() -> Iterator[Row]:
    """What the notebooks and the browser test need beside Python packages."""
    checkpoint = ROOT / "checkpoints" / "tiny"
    yield (
        "tiny checkpoint",
        checkpoint.is_dir(),
        "checkpoints/tiny" if checkpoint.is_dir() else f"missing: {checkpoint}",
    )
    from jupyter_client.kernelspec import KernelSpecManager

    kernels = sorted(KernelSpecManager().find_kernel_specs())
    yield "jupyter kernel", "python3" in kernels, ", ".join(kernels) or "none"
    browser = shutil.which("chromium") and shutil.which("chromedriver")
    yield "browser", None, browser or "no chromium and chromedriver: the report's browser test needs them"


def rung_rows() -> Iterator[Row]:
    """Each rung on each device: available, or the reason why not."""
    from openjev_lab import rungs

    for rung in rungs.LADDER:
        for device in ("cpu", "cuda"):
            available, reason = rungs.available(rung.name, device)
            yield f"{rung.name} on {device}", available or None, "available" if available else reason


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "python": python_rows,
    "packages": package_rows,
    "cpu": cpu_rows,
    "gpu": gpu_rows,
    "tools": tool_rows,
    "rungs": rung_rows,
}


def show(*, as_json: bool) -> bool:
    """Print the findings; returns whether none is a fault."""
    found = findings()
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=1))
    else:
        group = ""
        for finding in found:
            if finding.group != group:
                group = finding.group
                print(f"\n{group}")
            print(f"  {MARKS[finding.ok]} {finding.name:24} {finding.detail}")
    return all(finding.ok is not False for finding in found)
