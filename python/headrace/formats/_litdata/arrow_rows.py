"""Rows that LitData stores as a table of Arrow behind a chunk's empty table of offsets.

The table is a file of Arrow's IPC format. Its columns lie in the chunk as they lie in memory, so
values of text and bytes, and lists of numbers, are ranges of the chunk.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace import _places
from headrace.errors import DataLossError, HeadraceError, InvalidArgumentError
from headrace.formats._arrow.mapped_files import MappedFile
from headrace.formats._arrow.messages import file_messages
from headrace.formats._arrow_types.fields import (
    LITDATA,
    ArrowField,
    NoField,
    Offsets,
    field_of,
    offsets_of,
)
from headrace.formats._base.builder import Builder
from headrace.formats._shards.filling import add_shards, check_some
from headrace.formats._shards.source import AGAIN, I64, ShardFile

TAIL_BYTES = 12  # the length of the file of Arrow, and a mark


def add_rows(
    shards: Sequence[ShardFile], columns: tuple[str, ...] | None, builder: Builder
) -> None:
    """Adds the fields and the rows of all chunks; `columns`: those to take; None: all."""
    check_some(shards[0].path, columns)
    with _opened(shards[0]) as table:
        types = _types(shards[0].path, table.reader, columns)
    fields = _fields(shards[0].path, types)
    for name, field in fields.items():
        builder.add_field(name, field.kind, field.dtype, field.shape, inline=_is_inline(field))

    def describe(shard: ShardFile, part: Builder) -> None:
        number = part.add_file(shard.path)
        rows = 0
        with _opened(shard) as table:
            own = _types(shard.path, table.reader, columns)
            if own != types:
                raise _other_columns(shard.path, own, types)
            for batch in _batches(shard, table, fields):
                for name, field in fields.items():
                    _add(shard.path, number, table.base, batch.column(name), (name, field), part)
                rows += batch.num_rows
                part.tell(rows)

    add_shards(shards, describe, builder)


def _types(path: str, reader: Any, columns: tuple[str, ...] | None) -> dict[str, Any]:
    """The columns that become fields, each with its type."""
    schema = {column.name: column.type for column in reader.schema}
    missing = [name for name in columns or () if name not in schema]
    if missing:
        raise _other_columns(path, schema, missing)
    return {name: own for name, own in schema.items() if name in (columns or schema)}


def _other_columns(path: str, own: Iterable[str], needed: Iterable[str]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"indexing {path}: its columns are {', '.join(map(str, own))}, {', '.join(needed)} are "
        "needed; name those that all chunks have, with columns="
    )


@contextmanager
def _opened(shard: ShardFile) -> Iterator[_Table]:
    """The table of the chunk."""
    try:
        pa: Any = importlib.import_module("pyarrow")
        ipc: Any = importlib.import_module("pyarrow.ipc")
    except ImportError as error:
        raise ImportError(
            f"indexing {shard.path}: its rows are a table of Arrow: pip install pyarrow"
        ) from error
    try:
        file = MappedFile(shard.path)
        base = pa.py_buffer(file.map)
        begin = shard.decoded_bytes
        length = max(len(base) - begin - TAIL_BYTES, 0)
        _fill_headers(file, begin, length)
        reader = ipc.open_file(pa.BufferReader(base.slice(begin, length)))
        yield _Table(file, base, reader)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, HeadraceError):
            raise
        raise DataLossError(
            f"indexing {shard.path}: byte {shard.decoded_bytes}: its table of Arrow cannot be read "
            f"({error!s:.200}); {AGAIN}"
        ) from error


@dataclass(frozen=True)
class _Table:
    """A table at the end of a chunk."""

    file: MappedFile
    base: Any
    """All bytes of the chunk, mapped."""
    reader: Any

    def fill(self, column: Any, *, all_values: bool) -> None:
        """Has the memory of a column of a batch, of which values are read where `all_values`."""
        buffers = column.buffers()
        for buffer in buffers if all_values else buffers[:-1]:
            begin = 0 if buffer is None else buffer.address - self.base.address
            if buffer is not None and 0 <= begin < self.base.size:  # Else pyarrow made it.
                self.file.fill(begin, buffer.size)


def _fill_headers(file: MappedFile, begin: int, length: int) -> None:
    """Has what says where the columns of a table lie; all of one that is compressed inside."""
    if _places.is_local(file.path):
        return
    table = memoryview(file.map)[begin : begin + length]
    try:
        file_messages(table, file.path, lambda at, size: file.fill(begin + at, size))
    except InvalidArgumentError:
        file.fill(begin, length)


def _batches(shard: ShardFile, table: _Table, fields: Mapping[str, ArrowField]) -> Iterator[Any]:
    rows = 0
    for position in range(table.reader.num_record_batches):
        batch = table.reader.get_batch(position)
        for name, field in fields.items():
            table.fill(batch.column(name), all_values=_is_inline(field))
        batch.validate()
        rows += batch.num_rows
        if batch.num_rows:  # Others may have no offsets.
            yield batch
    if rows != shard.samples:
        raise DataLossError(
            f"indexing {shard.path}: its table has {rows} rows, index.json says {shard.samples}; "
            f"{AGAIN}"
        )


def _fields(path: str, types: Mapping[str, Any]) -> dict[str, ArrowField]:
    fields = {}
    for name, arrow_type in types.items():
        field = field_of(arrow_type, LITDATA)
        if isinstance(field, NoField):
            others = tuple(other for other in types if other != name)
            raise InvalidArgumentError(
                f"indexing {path}: column {name!r} holds {arrow_type!s:.100}; a field holds "
                f"text, bytes, a number or a list of numbers; leave it out with columns={others!r}"
            )
        fields[name] = field
    return fields


def _is_inline(field: ArrowField) -> bool:
    """Whether the index holds the values."""
    return field.kind == "array" and not field.lists


def _add(
    path: str,
    number: int,
    base: Any,
    column: Any,
    named: tuple[str, ArrowField],
    builder: Builder,
) -> None:
    """Adds the values of a column of a batch."""
    name, field = named
    if column.null_count or (field.kind == "array" and _has_null_inside(column)):
        raise InvalidArgumentError(
            f"indexing {path}: column {name!r} has values that are None; leave it out with columns="
        )
    if _is_inline(field):
        builder.add_values(name, column.to_numpy(zero_copy_only=False))
        return
    values = column.buffers()[-1]
    width = 1 if field.dtype is None else np.dtype(field.dtype).itemsize
    ends = _ends(column, offsets_of(column.type))
    begin = 0 if values is None else values.address - base.address
    total = 0 if values is None else values.size
    if not len(ends) or ends[-1] == ends[0]:
        begin, total = 0, 0
        ends = np.zeros_like(ends)
    elif begin < 0 or begin + total > base.size:
        raise InvalidArgumentError(
            f"indexing {path}: the values of column {name!r} are compressed inside the table, so "
            "that no row can be read alone; write the dataset without compression="
        )
    if (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] * width > total:
        raise DataLossError(
            f"indexing {path}: byte {begin}: the {total} bytes of column {name!r} do not hold its "
            f"values; {AGAIN}"
        )
    builder.add_extents(name, number, begin + ends[:-1] * width, np.diff(ends) * width)


def _has_null_inside(column: Any) -> bool:
    return bool(getattr(column, "values", None) is not None and column.values.null_count)


def _ends(column: Any, dtype: Offsets) -> I64:
    """Where the values of each row end, and where the first begins."""
    offsets = np.frombuffer(column.buffers()[1], dtype)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
