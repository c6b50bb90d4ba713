"""Rows that LitData stores as a table of Arrow behind a chunk's empty table of offsets.

The table is a file of Arrow's IPC format. Its columns lie in the chunk as they lie in memory, so
values of text and bytes, and lists of numbers, are ranges of the chunk.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._files.npy import NAMES
from headrace.formats._shards.filling import add_shards, check_some
from headrace.formats._shards.source import AGAIN, I64, ShardFile

TAIL_BYTES = 12  # the length of the file of Arrow, and a mark
_STRINGS = {"string": "text", "large_string": "text", "binary": "bytes", "large_binary": "bytes"}


def add_rows(
    shards: Sequence[ShardFile], columns: tuple[str, ...] | None, builder: Builder
) -> None:
    """Adds the fields and the rows of all chunks; `columns`: those to take; None: all."""
    check_some(shards[0].path, columns)
    with _opened(shards[0]) as (_, reader):
        fields = _taken(shards[0].path, reader, columns)
    for name, kind in fields.items():
        _declare(shards[0].path, name, kind, fields, builder)

    def describe(shard: ShardFile, part: Builder) -> None:
        number = part.add_file(shard.path)
        found = 0
        with _opened(shard) as (base, reader):
            taken = _taken(shard.path, reader, columns)
            if taken != fields:
                raise _other_columns(shard.path, taken, fields)
            for batch in _batches(shard, reader):
                for name, kind in fields.items():
                    _add(shard.path, number, base, batch.column(name), (name, kind), part)
                found += batch.num_rows
                part.tell(found)

    add_shards(shards, describe, builder)


def _taken(path: str, reader: Any, columns: tuple[str, ...] | None) -> dict[str, Any]:
    """The columns that become fields, each with its type."""
    schema = {each.name: each.type for each in reader.schema}
    missing = [name for name in columns or () if name not in schema]
    if missing:
        raise _other_columns(path, schema, missing)
    return {name: kind for name, kind in schema.items() if name in (columns or schema)}


def _other_columns(path: str, found: Iterable[str], needed: Iterable[str]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"indexing {path}: its columns are {', '.join(map(str, found))}, {', '.join(needed)} are "
        "needed; name those that all chunks have, with columns="
    )


@contextmanager
def _opened(shard: ShardFile) -> Iterator[tuple[Any, Any]]:
    """The bytes of the chunk, mapped, and a reader of its table."""
    try:
        pa: Any = importlib.import_module("pyarrow")
        ipc: Any = importlib.import_module("pyarrow.ipc")
    except ImportError as error:
        raise ImportError(
            f"indexing {shard.path}: its rows are a table of Arrow: pip install pyarrow"
        ) from error
    try:
        with pa.memory_map(shard.path) as file:
            base = file.read_buffer(shard.bytes)
            begin = shard.decoded_bytes
            length = len(base) - begin - TAIL_BYTES
            yield base, ipc.open_file(pa.BufferReader(base.slice(begin, max(length, 0))))
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, (DataLossError, InvalidArgumentError)):
            raise
        raise DataLossError(
            f"indexing {shard.path}: byte {shard.decoded_bytes}: its table of Arrow cannot be read "
            f"({error!s:.200}); {AGAIN}"
        ) from error


def _batches(shard: ShardFile, reader: Any) -> Iterator[Any]:
    rows = 0
    for position in range(reader.num_record_batches):
        batch = reader.get_batch(position)
        batch.validate()
        rows += batch.num_rows
        if batch.num_rows:  # Others may have no offsets.
            yield batch
    if rows != shard.samples:
        raise DataLossError(
            f"indexing {shard.path}: its table has {rows} rows, index.json says {shard.samples}; "
            f"{AGAIN}"
        )


def _numbers_of(kind: Any) -> str | None:
    """The dtype of a column of numbers."""
    name = {"double": "float64", "float": "float32", "halffloat": "float16"}.get(
        str(kind), str(kind)
    )
    return name if name in NAMES else None


def _declare(path: str, name: str, kind: Any, fields: Mapping[str, Any], builder: Builder) -> None:
    text = str(kind)
    dtype = _numbers_of(kind)
    if text in _STRINGS:
        builder.add_field(name, "text" if _STRINGS[text] == "text" else "bytes")
    elif dtype is not None:
        builder.add_field(name, "array", dtype, inline=True)
    elif text.startswith(("list<", "large_list<")) and _inner(kind) is not None:
        builder.add_field(name, "array", _inner(kind), [None])
    else:
        others = tuple(each for each in fields if each != name)
        raise InvalidArgumentError(
            f"indexing {path}: column {name!r} holds {text:.100}; a field holds text, bytes, a "
            f"number or a list of numbers; leave it out with columns={others!r}"
        )


def _inner(kind: Any) -> str | None:
    dtype = _numbers_of(kind.value_type)
    return None if dtype == "bool" else dtype  # Arrow stores eight of these in a byte.


def _add(
    path: str, number: int, base: Any, column: Any, field: tuple[str, Any], builder: Builder
) -> None:
    """Adds the values of a column of a batch."""
    name, kind = field
    if column.null_count or (str(kind) not in _STRINGS and _has_null_inside(column)):
        raise InvalidArgumentError(
            f"indexing {path}: column {name!r} has values that are None; leave it out with columns="
        )
    if _numbers_of(kind) is not None:
        builder.add_values(name, column.to_numpy(zero_copy_only=False))
        return
    width, values = 1, column.buffers()[-1]
    if str(kind) not in _STRINGS:
        width = np.dtype(_inner(kind)).itemsize
    ends = _ends(column, str(kind).startswith("large_"))
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


def _ends(column: Any, is_large: bool) -> I64:
    """Where the values of each row end, and where the first begins."""
    offsets = np.frombuffer(column.buffers()[1], np.int64 if is_large else np.int32)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
