"""Arrow by `datasets` or pyarrow, and Parquet by pyarrow."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.formats._arrow.arrow_file import ArrowFile, pyarrow
from headrace.formats._arrow.leaves import Leaf
from headrace.formats._arrow.nested_lists import NestedListReader
from headrace.formats._arrow.readers import MediaReader, Reader
from headrace.formats._base.absent import valid_field
from headrace.formats._base.format import Sample
from headrace.formats._huggingface.saved_folders import Saved, saved_at
from headrace.formats._parquet import parquet as _parquet
from headrace.formats._parquet.parquet_column import ParquetColumn

Row = dict[str, Any]


def huggingface(row: Any, path: str) -> Iterator[Sample]:
    """By `datasets` if it is installed, else by pyarrow; with the fields that it has here."""
    saved = saved_at(path, row.split)
    schema = ArrowFile(saved.files[0]).schema
    return _rows(path, saved, row._leaves(schema, saved.features, path))


def _rows(path: str, saved: Saved, leaves: Sequence[Leaf]) -> Iterator[Row]:
    """Each row, with the fields of `leaves`."""
    for batch in _batches(path, saved):
        for number in range(batch.num_rows):
            row = batch.slice(number, 1)
            sample = {}
            for leaf in leaves:
                is_there = _is_there(leaf, row)
                sample[leaf.name] = _value(leaf, row) if is_there else _stand_in(leaf)
                if leaf.is_optional:
                    sample[valid_field(leaf.name)] = np.bool_(is_there)
            yield sample


def _batches(path: str, saved: Saved) -> Iterator[Any]:
    pa = pyarrow()
    if os.path.isdir(path) and importlib.util.find_spec("datasets") is not None:
        datasets: Any = importlib.import_module("datasets")
        loaded = datasets.concatenate_datasets(
            [datasets.Dataset.from_file(each) for each in saved.files]
        )
        yield from loaded.with_format("arrow")[:].to_batches()
        return
    for each in saved.files:
        with pa.memory_map(os.fsencode(each)) as source:
            front = source.read(6)
            source.seek(0)
            is_file = front == b"ARROW1"
            reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
            yield from reader.read_all().to_batches()


def _is_there(leaf: Leaf, row: Any) -> bool:
    arrays = [*leaf.structs(row), leaf.array(row)]
    return not leaf.has_stand_in or not any(each.null_count for each in arrays)


def _stand_in(leaf: Leaf) -> Any:
    reader = leaf.reader
    assert isinstance(reader, Reader)
    if isinstance(reader, NestedListReader):
        return []
    if reader.kind == "array":
        shape = [-1 if e is None else e for e in reader.shape]
        return np.array(leaf.stand_in, reader.dtype).reshape(shape)
    return leaf.stand_in.encode() if reader.kind == "bytes" else leaf.stand_in


def _value(leaf: Leaf, row: Any) -> Any:
    array = leaf.array(row)
    reader = leaf.reader
    assert isinstance(reader, Reader)
    if isinstance(reader, MediaReader):
        (found,) = array.to_pylist()
        if found["bytes"] is not None:
            return found["bytes"]
        with open(found["path"], "rb") as file:
            return file.read()
    if isinstance(reader, NestedListReader):
        return _inner(reader, array.to_pylist()[0])
    if reader.kind != "array":
        return array.to_pylist()[0]
    pa = pyarrow()
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if reader.dtype == "int32" else pa.int64())
    (found,) = array.to_pylist()
    return np.array(found, reader.dtype).reshape([-1 if e is None else e for e in reader.shape])


def _inner(reader: NestedListReader, lists: list[Any]) -> list[Any]:
    if reader.part is not None:
        return [each["bytes"] for each in lists]
    if reader.stored is None:
        return lists
    shape = (-1, *reader.widths)
    return [np.array(each, reader.dtype).reshape(shape) for each in lists]


def parquet(form: Any, path: str) -> Iterator[Sample]:
    """By pyarrow, a row group at a time."""
    first: list[ParquetColumn] | None = None
    files = _parquet.files_of(path)
    wanted = form._in_files(path, files)
    with _parquet.opened(files[0], "reading") as file:
        partitions = _parquet.partitions_of(path, files, file.schema_arrow.names, form.columns)
    for each in files:
        constants = {
            name: value if isinstance(value, str) else np.int32(value)
            for name, value in partitions.of(each).items()
        }
        with _parquet.opened(each, "reading") as file:
            first = first or form._columns_of(each, file, wanted)
            if not first:
                yield from ({**constants} for _ in range(file.metadata.num_rows))
                continue
            for group in range(file.metadata.num_row_groups):
                table = file.read_row_group(group, columns=[c.name for c in first])
                for row in _with_stored_times(table).to_pylist():
                    yield _sample(row, first) | constants


def _sample(row: dict[str, Any], columns: Sequence[ParquetColumn]) -> Sample:
    sample = {}
    for column in columns:
        given = row[column.name]
        if column.child is not None and isinstance(given, dict):
            given = given[column.child]
        if given is None and column.has_stand_in:
            value = column.stand_in
            value = value.encode() if column.kind == "bytes" and isinstance(value, str) else value
            if column.permutation is not None:
                value = np.asarray(value).transpose(column.permutation)
            inside = value if column.child is None else {column.child: value}
            row = row | {column.name: value if column.is_nested else inside}
        sample[column.name] = _own_value(row, column)
        if column.is_optional:
            sample[valid_field(column.name)] = np.bool_(given is not None)
    return sample


def _own_value(row: dict[str, Any], column: ParquetColumn) -> Any:
    value = row[column.name]
    if column.is_nested:
        if column.kind != "array":
            return value if column.child is None else [each[column.child] for each in value]
        inner = [1 if each is None else each for each in column.shape[2:]]
        return [np.asarray(each, column.dtype).reshape((-1, *inner)) for each in value]
    if column.child is not None:
        return value[column.child]
    if column.kind != "array":
        return value
    inner = [1 if each is None else each for each in column.shape[1:]]
    shape = (-1, *inner) if column.is_variable else column.shape
    if column.permutation is not None:  # Its own inverse.
        stored = np.asarray(value, column.dtype)
        stored = stored.reshape([column.shape[each] or 0 for each in column.permutation])
        return stored.transpose(column.permutation)
    return np.asarray(value, column.dtype).reshape(shape)


def _with_stored_times(table: pa.Table) -> pa.Table:
    """The table with the numbers that stand for dates and times."""
    for at, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            number = pa.type_for_alias(f"int{field.type.bit_width}")
            chunks = [each.view(number) for each in table.column(at).chunks]
            table = table.set_column(at, field.name, pa.chunked_array(chunks, number))
    return table
