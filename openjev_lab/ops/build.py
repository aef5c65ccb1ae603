"""CUDA C++ source -> cubin, on any machine: the GPU is not needed until the cubin is loaded.

Takes one ``.cu`` text with the headers it includes, an architecture and macro definitions; returns a ``Build``: the
cubin and what the assembler said about each kernel (registers, shared memory, spills). NVRTC does the work, through
cuda.core, so neither nvcc nor a CUDA toolkit has to be installed. Kept apart from ``launch`` because compiling is what
a machine without a GPU can check.

Builds are cached on disk under a key of everything that decides the result: source, headers (found recursively),
definitions, options, architecture and compiler version. An entry is a folder, written aside and renamed into place,
so jobs in parallel never see half of one; where the cache can't be written, the build is simply not kept.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path

from openjev_lab.errors import LabError

OPTIONS = ("std=c++17", "ptxas -v")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What the assembler reports for one kernel."""

    name: str
    registers: int
    """Registers a thread."""
    shared_bytes: int
    """Static shared memory a block; dynamic shared memory is asked for at launch and not in here."""
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True, slots=True)
class Build:
    """One compiled source."""

    cubin: bytes = field(repr=False)
    arch: str
    key: str
    """Digest of all that the cubin depends on; the cache entry's name."""
    kernels: tuple[KernelReport, ...]
    log: str = field(repr=False)
    """Compiler and assembler output, warnings included."""
    path: Path | None
    """The cubin's file in the cache; None where the cache can't be written."""
    cached: bool
    """Whether the cache had it."""

    def kernel(self, name: str) -> KernelReport:
        """The report of kernel `name`; LabError with the names there are if it is not one of them."""
        for report in self.kernels:
            if report.name == name:
                return report
        raise LabError(f"no kernel {name!r} in this build; it has {', '.join(k.name for k in self.kernels) or 'none'}")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines of the log that warn, such as ptxas saying that wgmma instructions were serialized."""
        return tuple(line.strip() for line in self.log.splitlines() if re.search(r"warning|Potential", line))


def default_cache_dir() -> Path:
    """``$OPENJEV_LAB_CACHE``, else ``$XDG_CACHE_HOME/openjev-lab``, else ``~/.cache/openjev-lab``; then ``/cubin``."""
    own = os.environ.get("OPENJEV_LAB_CACHE")
    if own:
        return Path(own) / "cubin"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "openjev-lab" / "cubin"


def headers_of(text: str, include_dirs: Sequence[Path]) -> dict[str, str]:
    """Every header that `text` includes in quotes, directly or not: {name as found: content}, in order of first use.

    Looks in `include_dirs` in order. A header that is in none of them is left to the compiler, whose error names it.
    """
    found: dict[str, str] = {}
    pending = _INCLUDE.findall(text)
    while pending:
        name = pending.pop(0)
        if name in found:
            continue
        for folder in include_dirs:
            path = folder / name
            if path.is_file():
                found[name] = path.read_text()
                pending.extend(_INCLUDE.findall(found[name]))
                break
    return found


@cache
def compiler_version() -> str:
    """NVRTC's version, such as "nvrtc 13.0"; LabError where cuda.core or NVRTC is not installed."""
    try:
        from cuda.bindings import nvrtc

        error, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as problem:
        raise LabError(
            f"compiling CUDA kernels needs cuda-core, cuda-bindings and nvidia-cuda-nvrtc "
            f'(pip install "openjev-lab[gpu]"): {problem}'
        ) from problem
    if int(error) != 0:
        raise LabError(f"NVRTC does not answer: nvrtcVersion returned {error}")
    return f"nvrtc {major}.{minor}"


def build_key(text: str, *, arch: str, defines: Mapping[str, str | int], include_dirs: Sequence[Path]) -> str:
    """The cache key: a digest over source, headers, definitions, options, architecture and compiler version."""
    parts = {
        "source": text,
        "headers": headers_of(text, include_dirs),
        "defines": {name: str(value) for name, value in sorted(defines.items())},
        "options": OPTIONS,
        "arch": arch,
        "compiler": compiler_version(),
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def parse_log(log: str) -> tuple[KernelReport, ...]:
    """The kernels of a ``ptxas -v`` log, in the assembler's order."""
    starts = list(_ENTRY.finditer(log))
    reports = []
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(log)
        body = log[start.end() : end]
        stack, registers, shared = _STACK.search(body), _REGISTERS.search(body), _SHARED.search(body)
        if stack is None or registers is None:
            raise LabError(f"can't read the assembler's report on kernel {start['name']!r}:\n{body.strip()}")
        frame, stores, loads = (int(number) for number in stack.groups())
        shared_bytes = int(shared[1]) if shared else 0
        reports.append(KernelReport(start["name"], int(registers[1]), shared_bytes, frame, stores, loads))
    return tuple(reports)


def compile_text(
    text: str,
    *,
    name: str,
    arch: str,
    defines: Mapping[str, str | int] | None = None,
    include_dirs: Sequence[Path] = (),
    cache_dir: Path | None = None,
) -> Build:
    """Compiles CUDA C++ to a cubin, or takes it from the cache.

    `name` is what errors call the source (a path, or "family/idea" for a notebook cell); `arch` is "sm_80", "sm_90a",
    ...; `defines` become ``-D`` macros; headers are looked for in `include_dirs`; `cache_dir` defaults to
    `default_cache_dir()`. Raises LabError with the compiler's own lines (file, line, caret) if it does not compile.
    """
    defines = dict(defines or {})
    key = build_key(text, arch=arch, defines=defines, include_dirs=include_dirs)
    folder = (cache_dir or default_cache_dir()) / key
    kept = _read_entry(folder, key, arch)
    if kept is not None:
        return kept
    cubin, log = _run_nvrtc(text, name, arch, defines, include_dirs)
    kernels = parse_log(log)
    path = _write_entry(folder, cubin, kernels, log)
    return Build(cubin, arch, key, kernels, log, path, cached=False)


def _run_nvrtc(
    text: str, name: str, arch: str, defines: Mapping[str, str | int], include_dirs: Sequence[Path]
) -> tuple[bytes, str]:
    """(cubin, log); LabError if it does not compile."""
    version = compiler_version()
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        name=name,
        arch=arch,
        std="c++17",
        define_macro=[(key, str(value)) for key, value in defines.items()] or None,
        include_path=[str(folder) for folder in include_dirs] or None,
        ptxas_options=["-v"],
    )
    log = StringIO()
    try:
        code = Program(text, "c++", options).compile("cubin", logs=log).code
    except Exception as problem:  # cuda.core's own error class is private
        if "NVRTC_ERROR" not in str(problem):
            raise
        searched = ", ".join(str(folder) for folder in include_dirs) or "none"
        raise LabError(
            f"{name} does not compile for {arch} with {version}; include folders searched: {searched}\n"
            f"{_compiler_lines(str(problem))}"
        ) from problem
    return bytes(code), log.getvalue()


def _compiler_lines(message: str) -> str:
    """The compiler's own log inside cuda.core's message."""
    return (message.partition("compilation log:")[2] or message).strip().strip("\0").strip()


def _read_entry(folder: Path, key: str, arch: str) -> Build | None:
    """The cached build, or None if there is none or its files do not belong together."""
    path = folder / "kernel.cubin"
    try:
        cubin = path.read_bytes()
        facts = json.loads((folder / "build.json").read_text())
        if facts["sha256"] != hashlib.sha256(cubin).hexdigest():
            return None
        kernels = tuple(KernelReport(**report) for report in facts["kernels"])
        return Build(cubin, arch, key, kernels, facts["log"], path, cached=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_entry(folder: Path, cubin: bytes, kernels: tuple[KernelReport, ...], log: str) -> Path | None:
    """Writes a cache entry aside and renames it into place; None if the place can't be written."""
    facts = {
        "sha256": hashlib.sha256(cubin).hexdigest(),
        "kernels": [asdict(report) for report in kernels],
        "log": log,
    }
    aside: str | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = tempfile.mkdtemp(prefix=".aside-", dir=folder.parent)
        Path(aside, "kernel.cubin").write_bytes(cubin)
        Path(aside, "build.json").write_text(json.dumps(facts))
        if folder.exists() and _read_entry(folder, folder.name, "") is None:
            shutil.rmtree(folder, ignore_errors=True)  # a damaged entry must not stay for ever
        try:
            os.rename(aside, folder)
        except OSError:
            if not folder.is_dir():
                raise
            shutil.rmtree(aside, ignore_errors=True)  # another job was first, with the same bytes
        return folder / "kernel.cubin"
    except OSError:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        return None
