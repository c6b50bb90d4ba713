"""The rows of a dataset as `datasets` or pyarrow read them, for comparison."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace.formats._arrow.inner import InnerLists
from headrace.formats._arrow.layout import Leaf
from headrace.formats._arrow.readers import Media, Reader
from headrace.formats._arrow.saved import Saved
from headrace.formats._arrow.tables import pyarrow
from headrace.formats._tables.absent import valid_field

Row = dict[str, Any]


def own_rows(path: str, saved: Saved, leaves: Sequence[Leaf]) -> Iterator[Row]:
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
    if isinstance(reader, InnerLists):
        return []
    if reader.kind == "array":
        shape = [-1 if e is None else e for e in reader.shape]
        return np.array(leaf.stand_in, reader.dtype).reshape(shape)
    return leaf.stand_in.encode() if reader.kind == "bytes" else leaf.stand_in


def _value(leaf: Leaf, row: Any) -> Any:
    array = leaf.array(row)
    reader = leaf.reader
    assert isinstance(reader, Reader)
    if isinstance(reader, Media):
        (found,) = array.to_pylist()
        if found["bytes"] is not None:
            return found["bytes"]
        with open(found["path"], "rb") as file:
            return file.read()
    if isinstance(reader, InnerLists):
        return _inner(reader, array.to_pylist()[0])
    if reader.kind != "array":
        return array.to_pylist()[0]
    pa = pyarrow()
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if reader.dtype == "int32" else pa.int64())
    (found,) = array.to_pylist()
    return np.array(found, reader.dtype).reshape([-1 if e is None else e for e in reader.shape])


def _inner(reader: InnerLists, lists: list[Any]) -> list[Any]:
    if reader.part is not None:
        return [each["bytes"] for each in lists]
    if reader.stored is None:
        return lists
    shape = (-1, *reader.widths)
    return [np.array(each, reader.dtype).reshape(shape) for each in lists]
