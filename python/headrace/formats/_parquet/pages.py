"""Where the values of a column lie in the file, if its pages have them as they are.

Such are values of bytes or text in pages that are neither compressed nor encoded otherwise than
PLAIN: each value behind its length of 4 bytes, or all of one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace.errors import DataLossError
from headrace.formats._files.npy import Read
from headrace.formats._parquet.footer import ColumnChunk, ColumnChunks, chunks_of, first_chunks
from headrace.formats._parquet.parquet_column import ParquetColumn
from headrace.formats._parquet.thrift import MalformedError, Struct, TruncatedError, read_struct

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_HEADER_BYTES = (512, 16384, 1 << 20, 16 << 20)  # to read; most headers have 30
_LENGTH_BYTES = 4
_UNCOMPRESSED = 0
_BYTE_ARRAY, _FIXED_LEN_BYTE_ARRAY = 6, 7
_PLAIN, _RLE, _BIT_PACKED = 0, 3, 4
_PLAIN_AND_LEVELS = {_PLAIN, _RLE, _BIT_PACKED}  # the latter two are those of nulls
_DATA_PAGE, _INDEX_PAGE, _DATA_PAGE_V2 = 0, 1, 3


@dataclass(frozen=True)
class Page:
    """The values of a page."""

    offset: int  # in the file
    size: int
    count: int


def are_plain(
    path: str, read: Read, size: int, file: pq.ParquetFile, columns: Sequence[ParquetColumn]
) -> bool:
    """Whether the footer says that the values of all these columns lie in pages as they are."""
    paths = {column.path for column in columns}
    for name, chunk in first_chunks(path, read, size):  # Mostly one column of one group decides.
        if name in paths and not _is_plain(chunk):
            return False
    chunks = chunks_of(path, read, size)
    return all(
        _is_plain(chunks.get((group, column_path)))
        for group in range(file.metadata.num_row_groups)
        for column_path in paths
    )


def _is_plain(chunk: ColumnChunk | None) -> bool:
    """Of one column of one row group; None where it is a list."""
    return (
        chunk is not None
        and chunk.codec == _UNCOMPRESSED
        and not chunk.has_dictionary
        and chunk.encodings <= _PLAIN_AND_LEVELS
        and chunk.type in (_BYTE_ARRAY, _FIXED_LEN_BYTE_ARRAY)
    )


def offsets_of(
    path: str,
    read: Read,
    chunks: ColumnChunks,
    group: int,
    column: ParquetColumn,
    lengths: npt.NDArray[np.int64],
    has_nulls: bool,
) -> npt.NDArray[np.int64]:
    """Where each value begins in the file. `lengths` are those that pyarrow found.

    `has_nulls`: by the schema, so that pages have levels before their values.
    """
    chunk = chunks[group, column.path]
    before = _LENGTH_BYTES if chunk.type == _BYTE_ARRAY else 0
    ends = np.cumsum(lengths + before)
    offsets = ends - lengths
    done = 0
    at, end = chunk.offset, chunk.offset + chunk.size
    while done < len(lengths):
        if at >= end:
            raise _unlike(path, group, column, at, f"its pages have {done:,} values")
        page, at = _page(path, read, group, column, at, has_nulls)
        if page is None:
            continue
        first = 0 if done == 0 else int(ends[done - 1])
        last = done + page.count
        if page.count < 1 or last > len(lengths) or int(ends[last - 1]) - first != page.size:
            raise _unlike(
                path, group, column, page.offset, f"a page of {page.count:,} values differs"
            )
        offsets[done:last] += page.offset - first
        done = last
    return offsets


def _page(
    path: str, read: Read, group: int, column: ParquetColumn, at: int, has_levels: bool
) -> tuple[Page | None, int]:
    """The page whose header lies at `at`, None for one without values; where the next begins."""
    header, size = _header(path, read, group, column, at)
    stored = _whole(header, 3)
    start = at + size
    kind = _whole(header, 1)
    if stored is None or kind not in (_DATA_PAGE, _INDEX_PAGE, _DATA_PAGE_V2):
        raise _unlike(path, group, column, at, f"a page is of type {kind}")
    if kind == _INDEX_PAGE:
        return None, start + stored
    about = header.get(5 if kind == _DATA_PAGE else 8)
    about = about if isinstance(about, dict) else {}
    count = _whole(about, 1) or 0
    levels: int | None
    if kind == _DATA_PAGE_V2:
        is_plain = about.get(4) == _PLAIN
        levels = (_whole(about, 5) or 0) + (_whole(about, 6) or 0)
    else:
        is_plain = about.get(2) == _PLAIN and (not has_levels or about.get(3) == _RLE)
        levels = 0
        if has_levels:
            levels = _LENGTH_BYTES + int.from_bytes(read(start, _LENGTH_BYTES), "little")
    if not is_plain:
        raise _unlike(path, group, column, at, "a page is encoded, which the footer does not say")
    return Page(start + levels, stored - levels, count), start + stored


def _header(
    path: str, read: Read, group: int, column: ParquetColumn, at: int
) -> tuple[Struct, int]:
    for count in _HEADER_BYTES:
        data = read(at, count)
        try:
            return read_struct(data)
        except TruncatedError:
            if len(data) < count:
                break
        except MalformedError as error:
            raise _unlike(path, group, column, at, f"no header of a page: {error}") from error
    raise _unlike(path, group, column, at, "no header of a page: it does not end")


def _whole(fields: Struct, number: int) -> int | None:
    """A field that is a number of 0 or more."""
    value = fields.get(number)
    return value if isinstance(value, int) and value >= 0 else None


def _unlike(path: str, group: int, column: ParquetColumn, at: int, what: str) -> DataLossError:
    return DataLossError(
        f"indexing {path}: row group {group}: column {column.path!r}: byte {at}: {what}; copy or "
        "write the file again, or have row groups decoded: hr.formats.Parquet(decode=True)"
    )
