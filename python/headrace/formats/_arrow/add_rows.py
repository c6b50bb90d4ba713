"""Describes tables to the builder: all rows in order, or those that a mapping chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.errors import DataLossError, HeadraceError, InvalidArgumentError
from headrace.formats._arrow.arrow_file import pyarrow
from headrace.formats._arrow.leaves import Leaf, zero_of
from headrace.formats._arrow.mapped_files import MappedFile
from headrace.formats._arrow.readers import DictionaryReader, MediaReader, Reader
from headrace.formats._arrow.record_batch import Chunk, NullRowsError
from headrace.formats._arrow.row_data import (
    Extents,
    NestedRows,
    RowData,
    RowNumbers,
    Values,
    joined,
)
from headrace.formats._base.absent import NOT_GIVEN, valid_field
from headrace.formats._base.builder import Builder
from headrace.formats._base.sounds import sound_sizes
from headrace.formats._files.npy import Read as ReadBytes
from headrace.formats._files.reading import file_reader

_BLOCK_BYTES = 2**20  # record batches are joined to blocks up to this size
_BLOCK_BYTES_MAX = 16 * 2**20  # of a record batch that is a block
_ROWS_AT_ONCE = 2**21  # of a mapping


def has_files(leaves: Sequence[Leaf], chunks: Iterable[Chunk]) -> bool:
    """Whether images or sounds are files of their own, which may lie anywhere: by the first rows.

    Either all rows have the bytes of theirs, or none has, wherever one program wrote the dataset.
    """
    media = [(leaf, leaf.reader) for leaf in leaves if isinstance(leaf.reader, MediaReader)]
    first = next((chunk for chunk in chunks if chunk.batch.num_rows), None) if media else None
    return first is not None and any(
        first.missing(leaf.name, reader.content_of(leaf.array(first.batch))).size
        for leaf, reader in media
    )


def add_in_order(leaves: Sequence[Leaf], chunks: Iterable[Chunk], builder: Builder) -> int:
    """Adds all rows, in runs that are read together. Returns their number."""
    blocks = _Blocks()
    count = 0
    for chunk in chunks:
        rows = chunk.batch.num_rows
        if rows == 0:
            continue
        parts = [named_part for leaf in leaves for named_part in _read(leaf, leaves, chunk, None)]
        for name, part in parts:
            part.add(name, builder)
        blocks.add(rows, [part for _, part in parts])
        count += rows
        builder.tell(count)
    blocks.pass_on(builder)
    return count


def add_mapped(
    leaves: Sequence[Leaf],
    chunks: Callable[[], Iterable[Chunk]],
    mapping: Iterable[RowNumbers],
    builder: Builder,
) -> int:
    """Adds the rows that `mapping` names, in its order. Returns their number.

    All chunks are gone through once for each 2,097,152 rows, so memory is bounded.
    """
    count = 0
    for rows in _pieces(mapping):
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        by_name: dict[str, list[RowData]] = {}
        for chunk in chunks():
            ends = chunk.first_row, chunk.first_row + chunk.batch.num_rows
            first, last = np.searchsorted(ascending, ends)
            if first == last:
                continue
            picks = ascending[first:last] - chunk.first_row
            for leaf in leaves:
                for name, part in _read(leaf, leaves, chunk, picks):
                    by_name.setdefault(name, []).append(part)
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        for name, parts in by_name.items():
            joined(parts).take(back).add(name, builder)
        count += rows.size
        builder.tell(count)
    return count


def _pieces(mapping: Iterable[RowNumbers]) -> Iterator[RowNumbers]:
    waiting: list[RowNumbers] = []
    for rows in mapping:
        for first in range(0, rows.size, _ROWS_AT_ONCE):
            piece = rows[first : first + _ROWS_AT_ONCE]
            if sum(part.size for part in waiting) + piece.size > _ROWS_AT_ONCE:
                yield np.concatenate(waiting)
                waiting = []
            waiting.append(piece)
    if waiting:
        yield np.concatenate(waiting)


def _read(
    leaf: Leaf, leaves: Sequence[Leaf], chunk: Chunk, picks: RowNumbers | None
) -> list[tuple[str, RowData]]:
    """The field's rows, and those of the field that says which have a value."""
    array = leaf.array(chunk.batch)
    try:
        if not leaf.has_stand_in:
            for around in leaf.structs(chunk.batch):
                chunk.refuse_nulls(leaf.name, around)
            return [(leaf.name, _rows(leaf, array, chunk, picks))]
        valid = np.ones(len(array), np.bool_)
        for level in (*leaf.structs(chunk.batch), array):
            valid[chunk.missing(leaf.name, level)] = False
        part = _filled(leaf, array, valid, chunk, picks)
    except NullRowsError as error:
        also = () if error.inside else (x for x in leaves if x is not leaf and _lacks(x, chunk))
        others = [other.name for other in also]
        too = f", as are rows of {', '.join(map(repr, others))}" if others else ""
        advice = leaf.advice(others, error.inside)
        raise InvalidArgumentError(f"{error}{too}; {advice}") from None
    parts = [(leaf.name, part)]
    if leaf.is_optional:
        values = valid if picks is None else valid[picks]
        parts.append((valid_field(leaf.name), Values(values)))
    return parts


def _lacks(leaf: Leaf, chunk: Chunk) -> bool:
    """Whether rows are null for which nothing stands, and something could."""
    if leaf.has_stand_in or zero_of(leaf.reader) is NOT_GIVEN:
        return False
    with suppress(HeadraceError):  # Of a damaged column: its own turn comes.
        arrays = (*leaf.structs(chunk.batch), leaf.array(chunk.batch))
        return any(chunk.missing(leaf.name, array).size for array in arrays)
    return False


def _filled(leaf: Leaf, array: Any, valid: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
    """The rows, where `stand_in` stands for those that are null."""
    if valid.all():
        return _rows(leaf, array, chunk, picks)
    pa = pyarrow()
    absent = ~valid if picks is None else ~valid[picks]
    if isinstance(leaf.reader, DictionaryReader):
        texts = array.cast(array.type.value_type)
        one = pa.array([leaf.stand_in], texts.type)
        rows = np.where(valid, np.arange(len(array)), len(array))
        filled = pa.concat_arrays([texts, one]).take(pa.array(rows)).dictionary_encode()
        return _rows(leaf, filled, chunk, picks)
    bare = pa.Array.from_buffers(
        array.type,
        len(array),
        [None, *array.buffers()[1 : 1 + _own_buffers(array)]],
        null_count=0,
        offset=array.offset,
        children=[array.values] if pa.types.is_nested(array.type) else None,
    )
    part = _rows(leaf, bare, chunk, picks)
    if isinstance(part, Values):
        values = part.values.copy()
        values[absent] = leaf.stand_in
        return Values(values)
    if isinstance(part, Extents):
        return replace(part, sizes=np.where(absent, np.uint64(0), part.sizes))
    lengths = part.lengths.lengths if isinstance(part, NestedRows) else part.lengths
    if lengths[absent].any():
        error = NullRowsError(
            f"indexing {chunk.what}: column {leaf.name!r}: null rows have entries"
        )
        error.inside = True
        raise error
    return part


def _own_buffers(array: Any) -> int:
    """The number of buffers of the array itself, without validity and those of its children."""
    types = pyarrow().types
    if types.is_string_view(array.type) or types.is_binary_view(array.type):
        return len(array.buffers()) - 1
    is_of_bytes = any(
        check(array.type)
        for check in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
        )
    )
    return 2 if is_of_bytes else 1


def _rows(leaf: Leaf, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
    reader = leaf.reader
    assert isinstance(reader, Reader)
    if len(array) != chunk.batch.num_rows:
        raise DataLossError(
            f"indexing {chunk.what}: column {leaf.name!r} has {len(array)} rows, the record batch "
            f"{chunk.batch.num_rows}; copy or write the file again"
        )
    part = reader.read(leaf.name, array, chunk, picks)
    if not leaf.is_sound or not isinstance(part, Extents):
        return part
    files = chunk.places.files()
    rows = zip(part.files.tolist(), part.offsets.tolist(), part.sizes.tolist(), strict=True)
    sounds = (_sound(chunk, files.get(file), file, at, size) for file, at, size in rows)
    return replace(part, decoded=sound_sizes(sounds, chunk.undecoded))


def _sound(
    chunk: Chunk, mapped: MappedFile | None, file: int, offset: int, size: int
) -> tuple[ReadBytes, int, str]:
    """Reads a sound: in the table's file, or in one of its own."""
    if mapped is not None:
        return lambda at, n: mapped.range(offset + at, n).tobytes(), size, chunk.what
    path = chunk.own_files[file]

    def read(at: int, count: int) -> bytes:
        with file_reader(path) as (own, _):
            return own(at, count)

    return read, size, path


class _Blocks:
    """Record batches as blocks: neighbours join until they have a useful size.

    There are none if a row has fields in several files, or if a record batch is so large that runs
    of rows, which the orders make themselves, serve better.
    """

    def __init__(self) -> None:
        self._blocks: list[list[int]] = []  # samples, file, first byte, end
        self._fit = True

    def add(self, rows: int, parts: Sequence[RowData]) -> None:
        """The next rows."""
        stored = [part.rows if isinstance(part, NestedRows) else part for part in parts]
        extents = [part for part in stored if isinstance(part, Extents)]
        if not extents or not self._fit:
            self._fit = False
            return
        files = {int(part.files[0]) for part in extents}
        if len(files) > 1 or any((part.files != part.files[0]).any() for part in extents):
            self._fit = False
            return
        (file,) = files
        start = min(int(part.offsets.min()) for part in extents)
        end = max(int((part.offsets + part.sizes).max()) for part in extents)
        if end - start > _BLOCK_BYTES_MAX:
            self._fit = False
            return
        last = self._blocks[-1] if self._blocks else None
        follows = last is not None and last[1] == file and last[3] <= start
        if last is not None and follows and end - last[2] <= _BLOCK_BYTES:
            last[0] += rows
            last[3] = end
            return
        self._blocks.append([rows, file, start, end])

    def pass_on(self, builder: Builder) -> None:
        """Describes them."""
        if self._fit and self._blocks:
            counts, files, starts, ends = np.array(self._blocks, np.int64).T
            builder.add_blocks(counts.tolist(), files, starts, ends - starts)
