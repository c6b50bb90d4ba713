"""Rows of CSV tables in pieces: whole blocks where each row is a line, else line by line."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pytest

from headrace import errors
from headrace.formats._tables import pieces
from headrace.formats._tables.files import Files, NamedFiles, path_of
from headrace.formats._tables.pieces import read_pieces

Read = tuple[dict[str, list[Any]], list[int], list[int]]


def read(path: Path, rows_at_once: int | None = None) -> Read | str:
    """All rows, with their lines and offsets; or the error."""
    columns: dict[str, list[Any]] = {}
    places: list[int] = []
    offsets: list[int] = []
    try:
        for piece in read_pieces(str(path), rows_at_once):
            for name, values in piece.columns.items():
                columns.setdefault(name, []).extend(values)
            assert piece.offsets is not None
            assert len(piece.offsets) == len(piece.places) == len(piece)
            places += piece.places
            offsets += piece.offsets
    except errors.HeadraceError as error:
        return str(error)
    return columns, places, offsets


CELLS = [
    *(
        "a",
        "",
        "x.jpg",
        "ü",
        "日本",
        "1",
        '"q"',
        '"a,b"',
        '"a""b"',
        '"two\nlines"',
        '"open',
        '5" x 3"',
    ),
    *("a\rb", " ", "\x85", "\u2028", "\x0b"),
]


def table(draw: random.Random) -> bytes:
    """A table, of which a few rows are odd."""
    odd = draw.choice([0.0, 0.0, 0.002, 0.05])
    plain = [cell for cell in CELLS if not set(cell) & set('"\r')]
    end = draw.choice(["\n", "\r\n"])
    lines = ["path,label"]
    for _ in range(draw.randrange(120)):
        cells = [draw.choice(CELLS if draw.random() < odd else plain) for _ in range(2)]
        lines.append(",".join(cells))
        if draw.random() < odd / 4:
            lines.append(draw.choice(["", "one", "1,2,3"]))
    text = end.join(lines) + draw.choice(["", end, end + end])
    data = text.encode()
    if draw.random() < 0.1:
        data = b"\xef\xbb\xbf" + data
    if draw.random() < odd:
        data = data.replace(b"a", b"\xff", 1)
    return data


def test_blocks_give_what_lines_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(11)
    path = tmp_path / "a.csv"
    kinds = set()
    for _ in range(1500):
        monkeypatch.setattr(pieces, "_BLOCK_BYTES", draw.choice([40, 200, 2**20]))
        path.write_bytes(table(draw))
        found = read(path)
        assert found == read(path, draw.choice([1, 7, 1000]))
        kinds.add(type(found))
        if not isinstance(found, str) and found[0]:
            with open(path, newline="", encoding="utf-8-sig") as file:
                own = [row for row in csv.reader(file, strict=True) if row][1:]
            assert [list(row) for row in zip(*found[0].values(), strict=True)] == own
    assert kinds == {str, tuple}


def test_a_plain_table_is_read_in_blocks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("path,label\n" + "".join(f"{number}.jpg,a\n" for number in range(5000)))
    monkeypatch.setattr(pieces, "_BLOCK_BYTES", 4096)
    lines = 0
    real = pieces._Lines.__next__

    def count(self: Any) -> str:
        nonlocal lines
        lines += 1
        return real(self)

    monkeypatch.setattr(pieces._Lines, "__next__", count)
    assert len(read(path)[1]) == 5000
    assert lines <= 2  # The header, and that nothing follows.


def test_a_line_that_is_too_long_is_refused_in_blocks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_LINE_BYTES_MAX", 100)
    monkeypatch.setattr(pieces, "_BLOCK_BYTES", 50)
    path = tmp_path / "a.csv"
    path.write_text("path,label\n" + "a,b\n" * 30 + "x" * 400 + ",c\n")
    assert "byte 131: line 32 has more than 100 bytes" in str(read(path))


class _NoBuilder:
    root = "/"


def test_names_are_looked_up_as_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.jpg", "sub/b.jpg", "c d.jpg", "ü.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    names = [
        *("a.jpg", "sub/b.jpg", "c d.jpg", "ü.jpg", "no.jpg", "sub", "", ".", ".."),
        *("./a.jpg", "sub/../a.jpg", "no/../a.jpg", "sub//b.jpg", "a.jpg/", "sub/./b.jpg"),
        *(str(tmp_path / "a.jpg"), "/", "a\0.jpg", "\ud800.jpg", "x" * 5000, ".a"),
    ]
    draw = random.Random(1)
    for _ in range(300):
        some = draw.choices(names, k=draw.randrange(1, 6))
        files = Files(_NoBuilder(), str(tmp_path), "folder=")  # type: ignore[arg-type]
        found = files.look_up(some, lambda row: f"row {row}")
        for name, path, size in zip(some, found.paths, found.sizes.tolist(), strict=True):
            wanted = Path(path_of(str(tmp_path), name)) if name else Path("/")
            try:
                is_there = wanted.is_file()
            except (ValueError, OSError):  # A zero byte; too long.
                is_there = False
            assert (size >= 0) == is_there, name
            if is_there:
                assert size == wanted.stat().st_size
                assert path == str(wanted)


def test_found_files_are_selected() -> None:
    import numpy as np

    found = NamedFiles(["a", "b", "c"], np.array([1, -1, 3]), np.array([4, 0, 6]))
    assert found.are_there.tolist() == [True, False, True]
    assert found.select([0, 2]).paths == ["a", "c"]
    assert found.select([2]).times.tolist() == [6]
    assert found.select([]).paths == []
    assert found.select([0, 1, 2]) is found
