"""What every Numba CPU kernel shares: compiler settings, where compiled code is kept, threads, ``supports``.

Takes plain functions and NumPy views of torch tensors; returns compiled functions and steps. Apart so that a kernel
file holds its arithmetic and nothing else.

Compiled code is cached, so a server starts in a second instead of half a minute. Numba notices when the kernel's own
file changes, but not when a function that it inlines does, so the cache's folder is named after the contents of the
files that are inlined everywhere. Parallel work is cut here, over Python threads that release the interpreter lock:
Numba's own pool and torch's would spin against each other on a small machine, and each keep a core from the other.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Step

INLINED = sorted(Path(__file__).parent.glob("numba_*.py"))
"""Files whose functions end up inside kernels."""


def supports(geometry: Geometry, device: str, dtype: str) -> tuple[bool, str]:
    """What a Numba CPU kernel can serve: float32 on the CPU, any geometry."""
    if device != "cpu":
        return False, "a Numba CPU kernel runs on the CPU only"
    if dtype != "float32":
        return False, f"Numba has no {dtype}; its CPU kernels are float32"
    return True, ""


def supports_multiples(lanes: int, *names: str) -> Callable[[Geometry, str, str], tuple[bool, str]]:
    """``supports`` of a kernel that handles ``lanes`` values at a time along the sizes of these names."""

    def supports_these(geometry: Geometry, device: str, dtype: str) -> tuple[bool, str]:
        for name in names:
            if getattr(geometry, name) % lanes:
                return False, f"{name} is {getattr(geometry, name)}, not a multiple of {lanes}"
        return supports(geometry, device, dtype)

    return supports_these


def jit(function: Callable[..., Any]) -> Any:
    """Compile at first call, without the interpreter lock, and cache the code on disk.

    No fast-math: sums keep their order, and products and sums are fused only where ``numba_math.fma`` says so, so two
    kernels that write the same arithmetic give the same bits. Division by zero gives infinity, as in NumPy.
    """
    with _cache_folder():
        return numba.njit(function, cache=True, nogil=True, error_model="numpy")


@contextmanager
def _cache_folder() -> Iterator[None]:
    """Point Numba's cache at our folder while a function is declared, and leave the setting as it was."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


@cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: the first of these that can be written.

    ``$NUMBA_CACHE_DIR``, ``$OPENJEV_LAB_CACHE/numba``, ``$XDG_CACHE_HOME/openjev-lab/numba``,
    ``~/.cache/openjev-lab/numba``; else a folder for this user in the temporary directory. Compiled code is unpickled,
    so a folder there that another user owns or may write is refused for a fresh one.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in INLINED)).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    bases = [
        os.environ.get("NUMBA_CACHE_DIR"),
        os.environ.get("OPENJEV_LAB_CACHE") and os.path.join(os.environ["OPENJEV_LAB_CACHE"], "numba"),
        os.path.join(home, "openjev-lab", "numba"),
    ]
    for base in filter(None, bases):
        folder = Path(base, digest)
        if _writable(folder):
            return folder
    folder = Path(tempfile.gettempdir(), f"openjev-lab-{os.getuid()}", "numba", digest)
    return folder if _writable(folder) and _private(folder.parents[1]) else Path(tempfile.mkdtemp(), digest)


def _writable(folder: Path) -> bool:
    """Whether the folder is there, or can be made, and takes a file. A home of ``~`` unexpanded is none."""
    if not folder.is_absolute():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _private(folder: Path) -> bool:
    """Whether the folder belongs to this user, who alone may write in it."""
    facts = folder.stat()
    return facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="kernel")


def run_pieces(kernel: Callable[..., None], pieces: Sequence[tuple[Any, ...]]) -> None:
    """``kernel(*piece)`` for every piece at once: the first on this thread, the others on the pool's."""
    others: list[Future[None]] = [_pool(len(pieces) - 1).submit(kernel, *piece) for piece in pieces[1:]]
    kernel(*pieces[0])
    for other in others:
        other.result()


def over_rows(kernel: Callable[..., None], *arguments: Any, grain: int) -> Step:
    """A step that runs ``kernel(*arguments, first, last)`` over the rows, cut among torch's number of threads.

    ``grain``: the fewest rows worth a thread of their own. Handing work over takes 30 microseconds, and up to 100 while
    a thread of torch's still spins after a GEMM, so a piece should last 150 or more.
    """

    def step(tokens: int) -> None:
        pieces = min(torch.get_num_threads(), tokens // grain)
        if pieces <= 1:
            kernel(*arguments, 0, tokens)
            return
        bounds = [tokens * piece // pieces for piece in range(pieces + 1)]
        run_pieces(kernel, [(*arguments, first, last) for first, last in zip(bounds, bounds[1:], strict=False)])

    return step
