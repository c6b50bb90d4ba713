"""The rows of a table in pieces: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any, overload

import numpy as np

from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.formats._tables.piece import Piece

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")

_ROWS_AT_ONCE = 20_000
_PIECE_BYTES = 8 * 2**20
_BLOCK_BYTES = 2**20
_LINE_BYTES_MAX = 16 * 2**20
_NESTED_MAX = 3
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")


def read_pieces(
    path: str, rows_at_once: int | None = None, whole: tuple[str, ...] = ()
) -> Iterator[Piece]:
    """The rows of the table; none if it has a header only.

    JSON objects in a row become columns of their own, the name behind an underscore, except of the
    columns of `whole`.

    Raises:
        DataLossError: it cannot be read as its suffix says.
        InvalidArgumentError: its header has no name or one twice.
        NotFoundError, FailedPreconditionError: it cannot be opened.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".parquet":
        from headrace.formats._tables.parquet_rows import parquet_pieces

        pieces = parquet_pieces(path, rows_at_once or _ROWS_AT_ONCE)
    elif suffix in (".jsonl", ".ndjson"):
        pieces = _json_pieces(path, rows_at_once or _ROWS_AT_ONCE)
    else:
        pieces = _csv_pieces(path, "\t" if suffix == ".tsv" else ",", rows_at_once)
    for piece in pieces:
        yield _flattened(piece, whole) if piece.typed else piece


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """The file; an OSError becomes the error of headrace that says the same."""
    try:
        with open(path, "rb") as file:
            yield file
    except HeadraceError:
        raise  # Some are OSErrors, too.
    except FileNotFoundError as error:
        raise NotFoundError(f"indexing {path}: no such file") from error
    except OSError as error:
        raise FailedPreconditionError(f"indexing {path}: {error.strerror}") from error


class _Lines:
    """Iterates over the lines of a file, decoded one at a time."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self.number = 0  # of the last line, from 1
        self.end = 0  # of it, in bytes

    def __iter__(self) -> _Lines:
        return self

    def block(self) -> bytes | None:
        """The next lines, about 1 MiB; None: a line is too long. `took` or `put_back` follows."""
        found = self._file.read(_BLOCK_BYTES)
        if not found.endswith(b"\n"):
            rest = self._file.readline(_LINE_BYTES_MAX)
            found += rest
            if len(rest) == _LINE_BYTES_MAX:
                return None
        return found

    def took(self, lines: int, size: int) -> None:
        """A block of so many lines was used."""
        self.number += lines
        self.end += size

    def put_back(self) -> None:
        """The block is to be read again, line by line."""
        self._file.seek(self.end)

    def __next__(self) -> str:
        line = self._file.readline(_LINE_BYTES_MAX + 1)
        if not line:
            raise StopIteration
        begin = self.end
        self.end += len(line)
        self.number += 1
        if len(line) > _LINE_BYTES_MAX:
            raise DataLossError(
                f"indexing {self._path}: byte {begin:,}: line {self.number:,} has more than "
                f"{_LINE_BYTES_MAX:,} bytes: no table of text; write a row a line"
            )
        try:
            return line.decode("utf-8-sig" if begin == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataLossError(
                f"indexing {self._path}: byte {begin + error.start:,}: line {self.number:,} is not "
                f"UTF-8 ({error.reason}); save the table as UTF-8"
            ) from error


def _piece_of_block(path: str, lines: _Lines, header: list[str], delimiter: str) -> Piece | None:
    """The rows of the next block, if each is a line, as in most tables; else None.

    No line is looked at by itself: that takes many times as long.
    """
    block = lines.block()
    found = None
    if block:
        found = _columns_of_plain(block, delimiter, len(header))
        found = found or _columns_of_lines(block, delimiter, len(header))
    if not block or found is None:
        lines.put_back()
        return None
    places, begin = range(lines.number + 1, lines.number + 1 + len(found[0])), lines.end
    lines.took(len(places), len(block))
    columns = dict(zip(header, found, strict=True))
    return Piece(path, columns, places, _Offsets(block, begin), typed=False)


def _columns_of_plain(block: bytes, delimiter: str, width: int) -> list[list[str]] | None:
    """The columns of lines without quotes; None if there are any, or other cells than `width`."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if any(each in block for each in (b'"', b"\r", b"\0")):
        return None
    if not block.endswith(b"\n"):
        block += b"\n"
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((data == ord(delimiter)) | (data == ord("\n")))
    are_lines = data[ends] == ord("\n")
    if ends.size % width or int(np.diff(ends, prepend=-1).max()) > csv.field_size_limit():
        return None
    by_line = are_lines.reshape(-1, width)
    if not by_line[:, -1].all() or by_line[:, :-1].any():
        return None
    if width == 1 and (np.diff(ends, prepend=-1) == 1).any():
        return None  # A line without anything is no row.
    try:
        cells = block.decode().replace("\n", delimiter).split(delimiter)
    except UnicodeDecodeError:
        return None  # Reading line by line says where.
    cells.pop()  # Behind the last line.
    return [cells[column::width] for column in range(width)]


def _columns_of_lines(block: bytes, delimiter: str, width: int) -> list[list[str]] | None:
    """The columns, if the block ends outside of quotes and each row is a line."""
    if block.count(b'"') % 2:
        return None  # It may end inside a cell.
    try:
        text = io.StringIO(block.decode(), newline="\n")
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error):
        return None  # Reading line by line says where.
    if reader.line_num != len(rows) or set(map(len, rows)) != {width}:
        return None
    return list(map(list, zip(*rows, strict=True)))


class _Offsets(Sequence[int]):
    """Where each line of a block begins in the file: found out if someone asks."""

    def __init__(self, block: bytes, begin: int) -> None:
        self._block = block
        self._begin = begin
        self._found: list[int] = []

    def __len__(self) -> int:
        return self._block.count(b"\n") + (not self._block.endswith(b"\n"))

    @overload
    def __getitem__(self, row: int) -> int: ...

    @overload
    def __getitem__(self, row: slice) -> list[int]: ...

    def __getitem__(self, row: int | slice) -> int | list[int]:
        if not self._found:
            ends = np.flatnonzero(np.frombuffer(self._block, np.uint8) == ord("\n")) + 1
            self._found = [self._begin, *(ends + self._begin).tolist()][: len(self)]
        return self._found[row]


def _csv_pieces(path: str, delimiter: str, rows_at_once: int | None) -> Iterator[Piece]:
    """`rows_at_once`: of a piece; None: as is fast."""
    with opened(path) as file:
        lines = _Lines(path, file)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = next(reader, None)
        except csv.Error as error:
            raise _not_csv(path, 1, 0, error) from error
        _check_header(path, header)
        assert header is not None
        while True:
            if rows_at_once is None:
                piece = _piece_of_block(path, lines, header, delimiter)
                if piece is not None:
                    yield piece
                    continue
            rows: list[list[str]] = []
            places: list[int] = []
            offsets: list[int] = []
            last = lines.end + _PIECE_BYTES
            width = len(header)
            place, offset = lines.number + 1, lines.end
            try:
                for row in reader:
                    if len(row) == width:
                        rows.append(row)
                        places.append(place)
                        offsets.append(offset)
                    elif row:  # Otherwise a line without anything.
                        raise DataLossError(
                            f"indexing {path}: line {place:,} (byte {offset:,}) has {len(row)} "
                            f"cells, the header {width}; put cells with commas, quotes or line "
                            "feeds in double quotes"
                        )
                    place, offset = lines.number + 1, lines.end
                    if len(rows) == (rows_at_once or _ROWS_AT_ONCE) or offset >= last:
                        break
            except csv.Error as error:
                raise _not_csv(path, place, offset, error) from error
            if not rows:
                if lines.end < last:
                    return
                continue
            columns = {
                name: list(values)
                for name, values in zip(header, zip(*rows, strict=True), strict=True)
            }
            yield Piece(path, columns, places, offsets, typed=False)


def _not_csv(path: str, line: int, offset: int, error: csv.Error) -> DataLossError:
    return DataLossError(
        f"indexing {path}: line {line:,} (byte {offset:,}): {error}; quote cells as RFC 4180 says: "
        "in double quotes, which are doubled inside"
    )


def _check_header(path: str, header: list[str] | None) -> None:
    if not header:
        raise InvalidArgumentError(
            f"indexing {path}: line 1 must name the columns; it is empty; add a header"
        )
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice and twice != [""]:
        raise InvalidArgumentError(
            f"indexing {path}: line 1 names the column {twice[0]!r} {header.count(twice[0])} "
            "times; give each column a name of its own"
        )
    for position, name in enumerate(header, 1):
        if not name.strip() or _NUMBER.fullmatch(name):
            raise InvalidArgumentError(
                f"indexing {path}: line 1 must name the columns; cell {position} is {name!r}; "
                "add a header"
            )


def _json_pieces(path: str, rows_at_once: int) -> Iterator[Piece]:
    with opened(path) as file:
        lines = _Lines(path, file)
        while True:
            rows: list[dict[str, Any]] = []
            places: list[int] = []
            offsets: list[int] = []
            begin = offset = lines.end
            for line in lines:
                if not line.isspace():
                    rows.append(_json_row(path, line, lines.number, offset))
                    places.append(lines.number)
                    offsets.append(offset)
                offset = lines.end
                if len(rows) == rows_at_once or offset - begin > _PIECE_BYTES:
                    break
            if not rows:
                if lines.end == begin:
                    return
                continue
            names = dict.fromkeys(chain.from_iterable(rows))
            columns = {name: [row.get(name) for row in rows] for name in names}
            yield Piece(path, columns, places, offsets, typed=True)


def _json_row(path: str, line: str, number: int, offset: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        at = len(line[: error.pos].encode()) if isinstance(error, json.JSONDecodeError) else 0
        raise DataLossError(
            f"indexing {path}: line {number:,} (byte {offset + at:,}) is no JSON: {why}; write one "
            "object a line"
        ) from error
    if not isinstance(row, dict):
        raise DataLossError(
            f"indexing {path}: line {number:,} (byte {offset:,}) is no JSON object; write one "
            "object a line"
        )
    return row


def _flattened(piece: Piece, whole: tuple[str, ...]) -> Piece:
    columns = piece.columns
    for _ in range(_NESTED_MAX):
        if not any(dict in set(map(type, values)) for values in columns.values()):
            break
        flat: dict[str, list[Any]] = {}
        for name, values in columns.items():
            if name in whole or set(map(type, values)) - {dict, type(None)}:
                parts = {name: values}  # Objects beside others stay, and are refused.
            else:
                keys = dict.fromkeys(chain.from_iterable(each for each in values if each))
                parts = {
                    f"{name}_{key}": [None if each is None else each.get(key) for each in values]
                    for key in keys
                } or {name: values}
            for part, entries in parts.items():
                if part in flat or (part != name and part in columns):
                    raise InvalidArgumentError(
                        f"{piece.where(0)}: column {part!r} and {name!r} with objects have the "
                        f"same names; keep the objects as text: text=({name!r},)"
                    )
                flat[part] = entries
        columns = flat
    return Piece(piece.path, columns, piece.places, piece.offsets, typed=True)
