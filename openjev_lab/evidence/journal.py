"""An append-only file of JSON lines that survives being killed at any moment.

Takes checked rows, returns them again; a row is on disk when ``append`` returns. A kill can leave at most half of the
last line, which ``open`` cuts off. Apart from ``run`` because that knows what the rows mean.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import ValidationError

from openjev_lab.errors import LabError
from openjev_lab.evidence.rows import Row

RowT = TypeVar("RowT", bound=Row)


def read_rows(path: Path, kind: type[RowT]) -> list[RowT]:
    """Every whole line as a row; half a last line is left out. Raises LabError naming the line that is no row."""
    data = path.read_bytes() if path.exists() else b""
    rows = []
    for number, line in enumerate(data[: _whole(data)].splitlines(), 1):
        try:
            rows.append(kind.model_validate_json(line))
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(map(str, first["loc"])) or "line"
            raise LabError(f"{path.name} line {number} is not as it was written: {where}: {first['msg']}") from None
    return rows


def _whole(data: bytes) -> int:
    """Length of the part that ends with a whole line."""
    return data.rfind(b"\n") + 1


class Journal(Generic[RowT]):
    """Open for appending; ``rows`` holds what was there and what was added. One writer at a time: the run's lock."""

    def __init__(self, path: Path, kind: type[RowT]) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        data = path.read_bytes()
        if _whole(data) != len(data):
            os.ftruncate(self._file, _whole(data))
            os.fsync(self._file)
        self.rows = read_rows(path, kind)

    def append(self, row: RowT) -> None:
        """Write one line and wait until the disk has it."""
        line = row.model_dump_json().encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):  # a full disk: the half line is cut off when the run is continued
            raise OSError(f"{self._path}: {written} of {len(line)} bytes written")
        os.fsync(self._file)
        self.rows.append(row)

    def close(self) -> None:
        """No more rows."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
