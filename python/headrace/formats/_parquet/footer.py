"""What the footer of a file says of each column of each row group.

pyarrow has the same, but ends the process where a damaged file names an unknown encoding, or a
type or counts of levels unlike its schema: so no `RowGroupMetaData.column()` is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.errors import DataLossError
from headrace.formats._files.npy import Read
from headrace.formats._parquet.thrift import (
    MalformedError,
    Struct,
    TruncatedError,
    read_struct,
    structs_in,
)

_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the footer's size, and _MAGIC


@dataclass(frozen=True)
class ColumnChunk:
    """A column of a row group; numbers are those of the format's parquet.thrift."""

    type: int
    encodings: frozenset[int]
    codec: int
    offset: int  # of the first data page
    size: int  # of all pages, as stored
    has_dictionary: bool


ColumnChunks = dict[tuple[int, str], ColumnChunk]
"""By the number of the row group, and the path of the column, as "image.bytes"."""


def chunks_of(path: str, read: Read, size: int) -> ColumnChunks:
    """All of them. Memory: that of the footer, ten times."""
    data = _footer(path, read, size)
    try:
        footer, _ = read_struct(data)
        return {
            (number, _path(column)): _chunk(column)
            for number, group in enumerate(_part(footer, 4, list))
            for column in _part(group, 1, list)
        }
    except (TruncatedError, MalformedError) as error:
        raise DataLossError(
            f"indexing {path}: its footer of {len(data):,} bytes is damaged: "
            f"{str(error) or 'it ends early'}; copy or write it again"
        ) from error


def first_chunks(path: str, read: Read, size: int) -> Iterator[tuple[str, ColumnChunk]]:
    """Those of the first row group with their paths; up to where the footer is damaged."""
    with suppress(TruncatedError, MalformedError):
        for column in structs_in(_footer(path, read, size), 4, 1):
            yield _path(column), _chunk(column)


def _footer(path: str, read: Read, size: int) -> bytes:
    tail = read(size - _TAIL_BYTES, _TAIL_BYTES) if size >= _TAIL_BYTES else b""
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > size - _TAIL_BYTES:
        raise DataLossError(
            f"indexing {path}: it does not end as a Parquet file: it was cut; copy or "
            "write it again"
        )
    return read(size - _TAIL_BYTES - length, length)


def _path(column: Any) -> str:
    parts = _part(_part(column, 3, dict), 3, list)
    return b".".join(part for part in parts if isinstance(part, bytes)).decode(errors="replace")


def _chunk(column: Any) -> ColumnChunk:
    about: Struct = _part(column, 3, dict)
    encodings = _part(about, 2, list)
    if not all(isinstance(encoding, int) for encoding in encodings):
        raise MalformedError("the encodings of a column are no numbers")
    return ColumnChunk(
        _part(about, 1, int),
        frozenset(encodings),
        _part(about, 4, int),
        _part(about, 9, int),
        _part(about, 7, int),
        11 in about,
    )


def _part(fields: Any, number: int, kind: type) -> Any:
    value = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(value, kind) or (isinstance(value, int) and value < 0):
        raise MalformedError(f"it has no field {number} of that type")
    return value
