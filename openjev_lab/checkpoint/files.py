"""Small readers for a checkpoint's files: JSON objects with typed fields, safetensors headers, SHA-256 sums.

Takes paths, returns plain values; whatever is wrong becomes one ``LabError`` that names the file and what would be
right. Apart because every other module here reads files, and none of them should explain JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openjev_lab.errors import LabError

FLOATING = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes per element of the safetensors dtypes that a weight may have."""


def need_file(path: Path, why: str) -> Path:
    """The path, if it is a file; ``why`` says what it is for."""
    if not path.is_file():
        raise LabError(f"{path} is missing: {why}")
    return path


def read_json(path: Path, why: str) -> dict[str, Any]:
    """A JSON object without repeated keys."""
    try:
        value = json.loads(need_file(path, why).read_text(encoding="utf-8"), object_pairs_hook=lambda p: _once(path, p))
    except UnicodeDecodeError:
        raise LabError(f"{path} is not UTF-8 text; it must hold a JSON object: {why}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise LabError(f"{path} is not JSON ({error.msg} at {where}); it must hold an object: {why}") from None
    if not isinstance(value, dict):
        raise LabError(f"{path} holds a JSON {type(value).__name__}; it must hold an object: {why}")
    return value


def _once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise LabError(f"{path} gives {twice!r} twice; keep one")
    return found


def text_field(path: Path, values: dict[str, Any], name: str) -> str:
    """A field that must be text and not empty."""
    value = values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise LabError(f"{path}: {name} is {shown(values, name)}; it must be text, and not empty")
    return value


def integer_field(path: Path, values: dict[str, Any], name: str, low: int, high: int) -> int:
    """A field that must be a whole number from ``low`` to ``high``."""
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise LabError(f"{path}: {name} is {shown(values, name)}; it must be a whole number from {low} to {high}")
    return value


def number_field(path: Path, values: dict[str, Any], name: str, *, positive: bool = False) -> float:
    """A field that must be a finite number, above 0 if ``positive``."""
    value = values.get(name)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if math.isfinite(number) and (number > 0 or not positive):
        return float(number)
    raise LabError(f"{path}: {name} is {shown(values, name)}; it must be a finite number" + " above 0" * positive)


def shown(values: dict[str, Any], name: str) -> str:
    """A field as shown in a message: its JSON cut to 60 characters, or that it is missing."""
    return json.dumps(values[name], ensure_ascii=False)[:60] if name in values else "missing"


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a safetensors file, from the header alone."""

    file: Path
    key: str
    """The name in the file."""
    dtype: str
    """As safetensors writes it: F32, BF16, ..."""
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """What a safetensors file says before its tensors."""

    entries: dict[str, Entry]
    metadata: dict[str, str]

    @property
    def revisions(self) -> tuple[str, ...]:
        """The revision that the file says it belongs to, if it says one."""
        return (self.metadata["revision"],) if "revision" in self.metadata else ()


def read_header(path: Path) -> Header:
    """The ``Header`` of a safetensors file, no tensor read.

    The layout is the library's (an 8-byte little-endian length, a JSON header, the data); the file must be exactly as
    long as its header says, so that a download that was cut off is found here and not after minutes of loading.
    """
    size = need_file(path, "it holds weights").stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if 8 + length > size:
            raise LabError(f"{path} is no safetensors file or is cut off: it ends inside its header; copy it again")
        try:
            header = json.loads(file.read(length))
            metadata = dict(header.pop("__metadata__", {}))
            entries = {k: Entry(path, k, v["dtype"], tuple(v["shape"])) for k, v in header.items()}
            end = max((v["data_offsets"][1] for v in header.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
            raise LabError(f"{path} is no safetensors file: its header cannot be read; copy it again") from None
    if 8 + length + end != size:
        raise LabError(f"{path} has {size} bytes, its header asks for {8 + length + end}; copy it again")
    return Header(entries, metadata)


def sha256(path: Path) -> str:
    """The hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def few(names: list[str] | set[str], limit: int = 3) -> str:
    """The first names in order, and how many more there are."""
    ordered = sorted(names)
    rest = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + rest
