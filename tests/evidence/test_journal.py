"""A journal keeps every whole line, cuts off half a line, and names a line that is none."""

from pathlib import Path

import pytest
from test_rows import row

from openjev_lab.errors import LabError
from openjev_lab.evidence.journal import Journal, read_rows
from openjev_lab.evidence.rows import TimingRow


def write(path: Path, count: int) -> bytes:
    with Journal(path, TimingRow) as journal:
        for index in range(count):
            journal.append(row(request_id=f"r{index}"))
    return path.read_bytes()


def test_rows_come_back_and_more_can_be_added(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, 2)
    with Journal(path, TimingRow) as journal:
        assert [one.request_id for one in journal.rows] == ["r0", "r1"]
        journal.append(row(request_id="r2"))
        assert len(journal.rows) == 3
    assert [one.request_id for one in read_rows(path, TimingRow)] == ["r0", "r1", "r2"]


def test_half_a_last_line_is_cut_off_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    data = write(path, 3)
    second = data.index(b"\n", data.index(b"\n") + 1) + 1
    for cut in (second + 1, second + 100, len(data) - 1):
        path.write_bytes(data[:cut])
        assert len(read_rows(path, TimingRow)) == 2, "reading leaves half a line out"
        assert path.stat().st_size == cut, "reading repairs nothing"
        with Journal(path, TimingRow) as journal:
            assert len(journal.rows) == 2
            journal.append(row(request_id="r2"))
        assert path.read_bytes() == data


def test_a_whole_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    data = write(path, 2)
    path.write_bytes(data.replace(b'"tokens":80', b'"tokens":8x', 1))
    with pytest.raises(LabError, match=r"j\.jsonl line 1 is not as it was written"):
        Journal(path, TimingRow)
    path.write_bytes(data + data.replace(b'"tokens":80', b'"tokens":-8')[: data.index(b"\n") + 1])
    with pytest.raises(LabError, match=r"line 3 is not as it was written: tokens"):
        read_rows(path, TimingRow)


def test_a_file_that_is_not_there_holds_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none.jsonl", TimingRow) == []
