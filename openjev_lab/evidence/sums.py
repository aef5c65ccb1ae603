"""SHA256SUMS of a run folder, in the form that ``sha256sum -c`` reads.

Takes a run folder; writes the sums of everything in it, or says what no longer fits. Apart from ``run`` because anybody
can check these without this project.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

SUMS = "SHA256SUMS"
LOCK = ".lock"
LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files(folder: Path) -> list[str]:
    """Every file that is evidence or was made from it, as sorted relative paths; no lock, no half-written files."""
    found = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        passing = name in (SUMS, LOCK) or ".partial." in path.name or path.suffix == ".tmp"
        if path.is_file() and not passing and ".ipynb_checkpoints" not in path.parts:
            found.append(name)
    return sorted(found)


def replace(path: Path, data: bytes) -> None:
    """Write a whole file at once: a kill leaves the old one or the new one."""
    aside = path.with_name(path.name + ".tmp")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def seal(folder: Path | str) -> Path:
    """Write SHA256SUMS over everything in the run folder; returns its path. Done last, and again after any change."""
    folder = Path(folder)
    lines = [f"{sha256(folder / name)}  {name}\n" for name in files(folder)]
    replace(folder / SUMS, "".join(lines).encode())
    return folder / SUMS


def check(folder: Path) -> list[tuple[str, str]]:
    """(file, what is wrong) for each file that differs from SHA256SUMS, is absent, or is not listed."""
    path = folder / SUMS
    if not path.exists():
        return [(SUMS, "is missing: the run was never sealed")]
    wrong: list[tuple[str, str]] = []
    listed = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        found = LINE.fullmatch(line.decode(errors="replace"))
        if found is None:
            wrong.append((SUMS, f"line {number} is no line of sha256sum"))
        else:
            listed[found[2]] = found[1]
    present = set(files(folder))
    for name in sorted(present | set(listed)):
        if name not in present:
            wrong.append((name, f"is listed in {SUMS} and is not there"))
        elif name not in listed:
            wrong.append((name, f"is not listed in {SUMS}"))
        elif sha256(folder / name) != listed[name]:
            wrong.append((name, f"its SHA-256 is not the one in {SUMS}"))
    return wrong
