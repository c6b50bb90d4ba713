"""The rows of a table in pieces: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any, overload

import numpy as np

from headrace import _places
from headrace._text import unread_reason
from headrace._units import counted
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.formats._base.format import Format, written
from headrace.formats._json.members import Members
from headrace.formats._tables.cells import Cells, Oddities, check_delimiter, column_names
from headrace.formats._tables.row_piece import RowPiece

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")

_ROWS_AT_ONCE = 20_000
_PIECE_BYTES = 8 * 2**20
_BLOCK_BYTES = 2**20
_LINE_BYTES_MAX = 16 * 2**20
_NESTED_MAX = 3


def read_pieces(
    path: str,
    rows_at_once: int | None = None,
    whole: tuple[str, ...] = (),
    cells: Cells | None = None,
    odd: Oddities | None = None,
    row: Format | None = None,
) -> Iterator[RowPiece]:
    """The rows of the table; none if it has a header only.

    JSON objects in a row become columns of their own, the name behind an underscore, except of the
    columns of `whole`. `odd` takes what may be a mistake; `row`: the format, for advice.

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
        pieces = _json_pieces(path, rows_at_once or _ROWS_AT_ONCE, odd or Oddities())
    else:
        pieces = _csv_pieces(path, cells or Cells(), rows_at_once, odd or Oddities(), row)
    for piece in pieces:
        yield _flattened(piece, whole) if piece.typed else piece


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """The file; an OSError becomes the error of headrace that says the same."""
    try:
        with _places.open(path) as file:
            yield file
    except HeadraceError:
        raise  # Some are OSErrors, too.
    except FileNotFoundError as error:
        raise NotFoundError(f"indexing {path}: no such file") from error
    except OSError as error:
        raise FailedPreconditionError(f"indexing {path}: {unread_reason(error)}") from error


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
        block = self._file.read(_BLOCK_BYTES)
        if not block.endswith(b"\n"):
            rest = self._file.readline(_LINE_BYTES_MAX)
            block += rest
            if len(rest) == _LINE_BYTES_MAX:
                return None
        return block

    def next_text(self) -> str:
        """The line that follows, which is read again."""
        line = self._file.readline(_LINE_BYTES_MAX)
        self.put_back()
        return line.decode(errors="replace")

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


def _piece_of_block(path: str, lines: _Lines, header: list[str], cells: Cells) -> RowPiece | None:
    """The rows of the next block, if each is a line, as in most tables; else None.

    No line is looked at by itself: that takes many times as long.
    """
    block = lines.block()
    texts = None
    if block:
        texts = _columns_of_plain(block, path, cells, len(header))
        texts = texts or _columns_of_lines(block, path, cells, len(header))
    if not block or texts is None:
        lines.put_back()
        return None
    places, begin = range(lines.number + 1, lines.number + 1 + len(texts[0])), lines.end
    lines.took(len(places), len(block))
    columns = dict(zip(header, cells.taken(texts), strict=True))
    return RowPiece(path, columns, places, _Offsets(block, begin), typed=False)


def _columns_of_plain(block: bytes, path: str, cells: Cells, width: int) -> list[list[str]] | None:
    """The columns of lines without quotes; None if there are any, or other cells than `width`."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    quote = b"\0" if cells.quote is None else cells.quote.encode()
    if any(character in block for character in (quote, b"\r", b"\0")):
        return None
    delimiter = cells.delimiter_of(path)
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
        texts = block.decode().replace("\n", delimiter).split(delimiter)
    except UnicodeDecodeError:
        return None  # Reading line by line says where.
    texts.pop()  # Behind the last line.
    return [texts[column::width] for column in range(width)]


def _columns_of_lines(block: bytes, path: str, cells: Cells, width: int) -> list[list[str]] | None:
    """The columns, if the block ends outside of quotes and each row is a line."""
    if cells.quote is not None and block.count(cells.quote.encode()) % 2:
        return None  # It may end inside a cell.
    try:
        text = io.StringIO(block.decode(), newline="\n")
        reader = cells.reader(text, path)
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
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return self._block.count(b"\n") + (not self._block.endswith(b"\n"))

    @overload
    def __getitem__(self, row: int) -> int: ...

    @overload
    def __getitem__(self, row: slice) -> list[int]: ...

    def __getitem__(self, row: int | slice) -> int | list[int]:
        if not self._offsets:
            ends = np.flatnonzero(np.frombuffer(self._block, np.uint8) == ord("\n")) + 1
            self._offsets = [self._begin, *(ends + self._begin).tolist()][: len(self)]
        return self._offsets[row]


def _csv_pieces(
    path: str, cells: Cells, rows_at_once: int | None, odd: Oddities, row: Format | None
) -> Iterator[RowPiece]:
    """`rows_at_once`: of a piece; None: as is fast."""
    delimiter = cells.delimiter_of(path)
    with opened(path) as file:
        lines = _Lines(path, file)
        reader = cells.reader(lines, path)
        try:
            first = next(reader, None)
        except csv.Error as error:
            raise _not_csv(path, 1, 0, error, _or_no_quotes(cells, row)) from error
        if first and cells.delimiter is None:
            check_delimiter(path, first, lines.next_text(), row)
        header = column_names(path, _header_of(first or [], cells), delimiter)
        odd.note_header(header)
        while True:
            if rows_at_once is None:
                piece = _piece_of_block(path, lines, header, cells)
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
                for line_cells in reader:
                    if len(line_cells) == width:
                        rows.append(line_cells)
                        places.append(place)
                        offsets.append(offset)
                        if lines.number > place:
                            odd.note_lines(line_cells, delimiter, place)
                    elif line_cells:  # Otherwise a line without anything.
                        file.seek(offset)
                        text = file.read(min(lines.end - offset, _LINE_BYTES_MAX))
                        advice = _or_no_quotes(cells, row, text)
                        raise _of_other_width(path, place, offset, len(line_cells), width, advice)
                    place, offset = lines.number + 1, lines.end
                    if len(rows) == (rows_at_once or _ROWS_AT_ONCE) or offset >= last:
                        break
            except csv.Error as error:
                raise _not_csv(path, place, offset, error, _or_no_quotes(cells, row)) from error
            if not rows:
                if lines.end < last:
                    return
                continue
            own_columns = cells.taken(list(map(list, zip(*rows, strict=True))))
            columns = dict(zip(header, own_columns, strict=True))
            yield RowPiece(path, columns, places, offsets, typed=False)


def _header_of(cells: list[str], how: Cells) -> list[str]:
    return [cell.strip() for cell in cells] if how.strip else cells


def _not_csv(path: str, line: int, offset: int, error: csv.Error, advice: str) -> DataLossError:
    why, remedy = (
        str(error),
        "quote cells as RFC 4180 says: in double quotes, which are doubled inside",
    )
    if "unexpected end" in why:
        why = "a quote that begins in this row is not closed"
    elif "new-line" in why:
        stem, suffix = os.path.splitext(path)
        why = "a carriage return (CR) stands alone, outside of quotes"
        command = f"tr '\\r' '\\n' < {shlex.quote(path)} > {shlex.quote(f'{stem}-lf{suffix}')}"
        remedy = f"if lines end with it, write line feeds: `{command}`; otherwise {remedy}"
        advice = ""  # Without quotes it stands alone, too.
    elif "field limit" in why:
        remedy = "if the cell is so long, call csv.field_size_limit(2**27) before"
    return DataLossError(
        f"indexing {path}: line {line:,} (byte {offset:,}): {why}; {remedy}{advice}"
    )


def _of_other_width(
    path: str, line: int, offset: int, count: int, width: int, advice: str
) -> DataLossError:
    return DataLossError(
        f"indexing {path}: line {line:,} (byte {offset:,}) has {counted(count, 'cell')}, the "
        f"header {width:,}; put cells with commas, quotes or line feeds in double quotes"
        f"{advice}"
    )


def _or_no_quotes(cells: Cells, row: Format | None, text: bytes | None = None) -> str:
    """`text`: of the row, which may have no quotes."""
    if cells.quote is None or row is None:
        return ""
    if text is not None and cells.quote.encode() not in text:
        return ""
    return f"; if quotes are part of the text: format={written(row, quote=None)}"


def _json_pieces(path: str, rows_at_once: int, odd: Oddities) -> Iterator[RowPiece]:
    members = Members()
    with opened(path) as file:
        lines = _Lines(path, file)
        while True:
            rows: list[dict[str, Any]] = []
            places: list[int] = []
            offsets: list[int] = []
            begin = offset = lines.end
            for line in lines:
                if not line.isspace():
                    rows.append(_json_row(path, line, lines.number, offset, members.decoder))
                    for name in members.taken():
                        odd.add("member_twice", f"{name!r} in {path}: line {lines.number:,}")
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
            yield RowPiece(path, columns, places, offsets, typed=True)


def _json_row(
    path: str, line: str, number: int, offset: int, decoder: json.JSONDecoder
) -> dict[str, Any]:
    try:
        row = decoder.decode(line)
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


def _flattened(piece: RowPiece, whole: tuple[str, ...]) -> RowPiece:
    columns = piece.columns
    for _ in range(_NESTED_MAX):
        if not any(dict in set(map(type, values)) for values in columns.values()):
            break
        flat: dict[str, list[Any]] = {}
        for name, values in columns.items():
            if name in whole or set(map(type, values)) - {dict, type(None)}:
                parts = {name: values}  # Objects beside others stay, and are refused.
            else:
                keys = dict.fromkeys(chain.from_iterable(value for value in values if value))
                parts = {
                    f"{name}_{key}": [None if value is None else value.get(key) for value in values]
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
    return RowPiece(piece.path, columns, piece.places, piece.offsets, typed=True)
