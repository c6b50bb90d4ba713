"""Where the rows of one Arrow array are: a reader for each type of column."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import HeadraceError
from headrace.formats._arrow.media_files import with_files
from headrace.formats._arrow.record_batch import Chunk
from headrace.formats._arrow.row_data import Extents, Ragged, RowData, RowNumbers, Values
from headrace.formats._base.field import Kind

_VIEW_BYTES = 16
_VIEW_INLINE_MAX = 12  # bytes of a value that its view holds


@dataclass(frozen=True, kw_only=True)
class Reader(ABC):
    """Reads the rows of a column of one type, for a field of this kind."""

    kind: Kind = "array"
    dtype: str | None = None
    shape: tuple[int | None, ...] = ()
    inline: bool = False

    @abstractmethod
    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        """The rows of an array; `picks`: only these, in this order."""


def _picked(part: RowData, picks: RowNumbers | None) -> RowData:
    return part if picks is None else part.take(picks)


@dataclass(frozen=True, kw_only=True)
class NumberReader(Reader):
    """Numbers, which the index holds."""

    stored: str
    inline: bool = True

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        chunk.refuse_nulls(name, array)
        if self.stored == "bool":
            return _picked(
                Values(chunk.bits(name, array.buffers()[1], array.offset, len(array))), picks
            )
        values = chunk.items(name, array.buffers()[1], self.stored, array.offset, len(array))
        if self.stored == "uint64" and values.size and int(values.max()) > np.iinfo(np.int64).max:
            row = chunk.first_row + int(values.argmax())
            raise chunk.refused(
                name,
                f"row {row:,} is {int(values.max())}, which int64 does not hold",
                "cast the column to float64, or leave it out with columns=(...)",
            )
        return _picked(Values(values.astype(self.dtype, copy=False)), picks)


@dataclass(frozen=True, kw_only=True)
class BinaryReader(Reader):
    """Text or bytes with offsets of this type."""

    offsets: str

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        chunk.refuse_nulls(name, array)
        return _picked(self.extents(name, array, chunk), picks)

    def extents(self, name: str, array: Any, chunk: Chunk) -> Extents:
        """Where the rows are, those that are null included."""
        ends = chunk.offsets(name, array, self.offsets)
        _, near, data = array.buffers()
        return chunk.extents(name, data, ends[:-1], np.diff(ends), near)


@dataclass(frozen=True, kw_only=True)
class ViewReader(Reader):
    """Text or bytes as views: short values lie in the view itself."""

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        chunk.refuse_nulls(name, array)
        _, views, *data = array.buffers()
        words = chunk.items(name, views, "<i4", 4 * array.offset, 4 * len(array)).reshape(-1, 4)
        sizes = words[:, 0].astype(np.int64)
        if (sizes < 0).any():
            raise chunk.damaged(name, "a value has a negative length")
        own = _VIEW_BYTES * (array.offset + np.arange(len(array), dtype=np.int64)) + 4
        is_short = sizes <= _VIEW_INLINE_MAX
        parts = [chunk.extents(name, views, own[is_short], sizes[is_short])]
        rows = [np.flatnonzero(is_short)]
        for number, buffer in enumerate(data):
            inside = np.flatnonzero(~is_short & (words[:, 2] == number))
            starts = words[inside, 3].astype(np.int64)
            parts.append(chunk.extents(name, buffer, starts, sizes[inside]))
            rows.append(inside)
        order = np.concatenate(rows)
        if order.size != len(array):
            raise chunk.damaged(name, f"a value lies in none of its {len(data)} buffers")
        return _picked(Extents.joined(parts).take(np.argsort(order)), picks)


@dataclass(frozen=True, kw_only=True)
class FixedBinaryReader(Reader):
    """Bytes of one length."""

    width: int

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        chunk.refuse_nulls(name, array)
        chunk.check_room(name, 8 * self.width * len(array), array.buffers()[1])
        starts = self.width * (array.offset + np.arange(len(array), dtype=np.int64))
        sizes = np.full(len(array), self.width, np.int64)
        return _picked(chunk.extents(name, array.buffers()[1], starts, sizes), picks)


@dataclass(frozen=True, kw_only=True)
class ListReader(Reader):
    """Lists of numbers: of one length (`widths` alone), or of any (`offsets`, then `widths`)."""

    stored: str
    offsets: str | None = None
    widths: tuple[int, ...] = ()
    """The lengths of fixed lists, from the outside."""

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        chunk.refuse_nulls(name, array)
        count, widths = len(array), self.widths
        if self.offsets is not None:
            ends = chunk.offsets(name, array, self.offsets)
            values = array.values
        else:
            data, value_bits = array.values, 1 if self.stored == "bool" else 8
            for _ in widths[1:]:
                data = data.values
            chunk.check_room(name, value_bits * math.prod(widths) * count, data.buffers()[1])
            ends = widths[0] * (array.offset + np.arange(count + 1, dtype=np.int64))
            values, widths = array.values, widths[1:]
        values, ends = innermost(name, values, widths, ends, chunk)
        data = values.buffers()[1]
        if self.stored == "bool":
            return _picked(self._bits(name, data, ends, chunk), picks)
        size = np.dtype(self.stored).itemsize
        near = array.buffers()[1] if self.offsets is not None else None
        return _picked(
            chunk.extents(name, data, ends[:-1] * size, np.diff(ends) * size, near), picks
        )

    def _bits(self, name: str, data: Any, ends: RowNumbers, chunk: Chunk) -> RowData:
        first, count = int(ends[0]), int(ends[-1] - ends[0])
        bits = chunk.bits(name, data, first, count)
        if self.offsets is None:
            return Values(bits.reshape(len(ends) - 1, *(size or 0 for size in self.shape)))
        inner = tuple(size or 0 for size in self.shape[1:])
        return Ragged(bits.reshape(-1, *inner), np.diff(ends) // math.prod(inner))


def innermost(
    name: str, values: Any, widths: tuple[int, ...], ends: RowNumbers, chunk: Chunk
) -> tuple[Any, RowNumbers]:
    """The array of numbers, and the ends of the rows in its buffer.

    Row i has entries [ends[i], ends[i + 1]) of `values`.
    """
    rows = ends
    for width in (*widths, None):
        values, first = entries(name, values, ends, rows, chunk), int(ends[0])
        ends = ends - first + values.offset
        if width is not None:
            ends, values = ends * width, values.values
            rows = rows * width
    return values, ends


def entries(name: str, values: Any, ends: RowNumbers, rows: RowNumbers, chunk: Chunk) -> Any:
    """The entries of a list's array that rows have: none is null. `rows`: as `ends`, for errors."""
    first, last = int(ends[0]), int(ends[-1])
    if last > len(values):
        raise chunk.damaged(name, f"its lists end at entry {last} of {len(values)}")
    part = values.slice(first, last - first)
    chunk.refuse_nulls(name, part, rows - rows[0])
    return part


@dataclass(frozen=True, kw_only=True)
class TensorReader(Reader):
    """Arrays that are stored as lists of lists, which all must have these lengths."""

    stored: str
    lists: tuple[int | None, ...]
    """From the outside; None: any."""

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        count, near = len(array), array.buffers()[1]
        chunk.check_room(name, 32 * count, near)
        bounds = np.arange(count + 1, dtype=np.int64)  # of the rows, in entries of this level
        for level, expected in enumerate(self.lists):
            first, last = int(bounds[0]), int(bounds[-1])
            if last > len(array):
                raise chunk.damaged(name, f"its lists end at entry {last} of {len(array)}")
            part = array.slice(first, last - first)
            chunk.refuse_nulls(name, part, bounds - first if level else None)
            ends = chunk.offsets(
                name, part, "int64" if str(part.type).startswith("large") else "int32"
            )
            if expected is not None and (wrong := np.flatnonzero(np.diff(ends) != expected)).size:
                at = int(wrong[0])
                row = int(np.searchsorted(bounds - first, at, "right")) - 1
                length = int(np.diff(ends)[at])
                raise chunk.refused(
                    name,
                    f"row {chunk.first_row + row:,} has {length} entries in dimension {level}, its "
                    f"type says {expected}",
                    "leave the column out with columns=(...)",
                )
            bounds, array = ends[bounds - first], array.values
        first, last = int(bounds[0]), int(bounds[-1])
        if last > len(array):
            raise chunk.damaged(name, f"its lists end at entry {last} of {len(array)}")
        chunk.refuse_nulls(name, array.slice(first, last - first), bounds - first)
        bounds = bounds + array.offset
        data = array.buffers()[1]
        if self.stored == "bool":
            bits = chunk.bits(name, data, int(bounds[0]), int(bounds[-1] - bounds[0]))
            return _picked(Values(bits.reshape(count, *(size or 0 for size in self.shape))), picks)
        size = np.dtype(self.stored).itemsize
        part = chunk.extents(name, data, bounds[:-1] * size, np.diff(bounds) * size, near)
        return _picked(part, picks)


@dataclass(frozen=True, kw_only=True)
class MediaReader(Reader):
    """A struct of bytes and path: an image, a sound. Without bytes the path is a file's."""

    content: BinaryReader
    paths: BinaryReader
    places: tuple[int, int]  # of bytes and path in the struct

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        chunk.refuse_nulls(name, array)
        content, paths = (array.field(place) for place in self.places)
        if not len(array) == len(content) == len(paths):
            raise chunk.damaged(
                name, f"{len(array)} rows, and {len(content)} bytes, {len(paths)} paths"
            )
        extents = self.content.extents(name, content, chunk)
        missing = chunk.missing(name, content)
        if picks is not None:
            extents = extents.take(picks)
            missing = np.flatnonzero(np.isin(picks, missing))
        if missing.size == 0:
            return extents
        rows = missing if picks is None else picks[missing]
        return with_files(
            name, extents, missing, rows, self._texts(name, paths, rows, chunk), chunk
        )

    def content_of(self, array: Any) -> Any:
        """The bytes, of which some are null if they are files."""
        return array.field(self.places[0])

    def _texts(self, name: str, array: Any, rows: RowNumbers, chunk: Chunk) -> list[str | None]:
        ends = chunk.offsets(name, array, self.paths.offsets)
        none = set(chunk.missing(name, array).tolist())
        data = array.buffers()[2]
        texts: list[str | None] = []
        for row in rows.tolist():
            size = int(ends[row + 1] - ends[row])
            raw = chunk.items(name, data, np.uint8, int(ends[row]), size).tobytes()
            texts.append(None if row in none else os.fsdecode(raw))
        return texts


@dataclass(frozen=True, kw_only=True)
class DictionaryReader(Reader):
    """Text by number in a dictionary, which is decoded into the index."""

    kind: Kind = "text"
    inline: bool = True

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        try:
            array.validate(full=True)
            chunk.refuse_nulls(name, array)
            if array.dictionary.null_count:
                raise chunk.refused(
                    name,
                    "its dictionary holds null",
                    "cast the column to a string, or leave it out with columns=(...)",
                )
            texts = array.dictionary.to_pylist()
            codes = array.indices.to_numpy(zero_copy_only=False)
        except HeadraceError:
            raise  # Some are ValueErrors, too.
        except (ValueError, IndexError) as error:
            raise chunk.damaged(name, str(error).partition("\n")[0]) from error
        encoded = [text.encode() for text in texts]
        whole = Ragged(
            np.frombuffer(b"".join(encoded), np.uint8),
            np.array([len(text) for text in encoded], np.int64),
        )
        codes = codes.astype(np.int64)
        return whole.take(codes if picks is None else codes[picks])
