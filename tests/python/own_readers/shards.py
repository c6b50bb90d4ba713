"""TFRecord, MDS and LitData, sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from headrace.formats._base.format import Sample
from headrace.formats._litdata import arrow_rows as _arrow_rows
from headrace.formats._litdata import litdata as _litdata
from headrace.formats._mds import mds as _mds
from headrace.formats._shards.frames import frames
from headrace.formats._shards.source import open_shard
from headrace.formats._tfrecord import tfrecord as _tfrecord
from headrace.formats._tfrecord.feature_columns import kind_of


def tfrecord(row: Any, path: str) -> Iterator[Sample]:
    """Record by record, as the specification has them."""
    fields: dict[str, str] = {}
    for each in _tfrecord._files(path):
        with open(each, "rb") as file:
            while head := file.read(_tfrecord.HEAD_BYTES):
                record = file.read(int.from_bytes(head[:8], "little"))
                file.read(4)
                if not row.examples and row.features is None:
                    yield {"record": record}
                    continue
                found = _tfrecord.features_of(record)
                fields = fields or _kinds(row, record, found)
                yield {name: _value(record, found[name], kind) for name, kind in fields.items()}


def _kinds(row: Any, record: bytes, found: dict[str, Any]) -> dict[str, str]:
    return dict(row.features or {name: kind_of(record, found[name]) for name in sorted(found)})


def _value(record: bytes, feature: Any, kind: str) -> Any:
    """A value, as headrace delivers it."""
    if kind in ("bytes", "image", "text"):
        ((at, size),) = feature.extents
        value = record[at : at + size]
        return value.decode() if kind == "text" else value
    numbers = feature.numbers.astype(kind.removesuffix("[]"))
    return numbers if kind.endswith("[]") or len(numbers) != 1 else numbers[0]


def mds(row: Any, path: str) -> Iterator[Sample]:
    """Sample by sample, as Streaming's MDSReader does."""
    found = _mds._Dataset(path)
    for shard in found.shards:
        with open_shard(shard) as source:
            data = source.part(0, source.size).tobytes()
        bounds = np.frombuffer(data, np.uint32, shard.samples + 1, 4).tolist()
        for begin, end in pairwise(bounds):
            yield _mds_sample(row, data[begin:end], found)


def _mds_sample(row: Any, data: bytes, found: Any) -> Sample:
    open_ended = found.widths.count(None)
    sizes = iter(np.frombuffer(data, np.uint32, open_ended).tolist())
    at, sample = 4 * open_ended, {}
    for (name, how), width in zip(found.stored.items(), found.widths, strict=True):
        size = next(sizes) if width is None else width
        if row.columns is None or name in row.columns:
            value = data[at : at + size]
            sample[name] = value if name in row.raw else _mds._decoded(how, value)
        at += size
    return sample


def litdata(form: Any, path: str) -> Iterator[Sample]:
    """Item by item, as LitData's PyTreeLoader and TokensLoader do."""
    found = _litdata.ChunkIndex(path)
    for position, shard in enumerate(frames(found.shards)):
        if found.are_rows:
            for row in _chunk_rows(shard):
                taken = {name: row[name] for name in row if name in (form.columns or row)}
                yield {name: _row_value(value) for name, value in taken.items()}
            continue
        with _litdata.open_shard(shard) as source:
            data = source.part(0, source.size).tobytes()
        if found.are_tokens:
            yield from _windows(form, found, data, shard, found.tokens[position])
            continue
        bounds = shard.bounds
        if bounds is None:
            bounds = np.frombuffer(data, np.uint32, shard.samples + 1, 4)
        for begin, end in pairwise(bounds.tolist()):
            yield _item(form, data[begin:end], found)


def _windows(row: Any, found: Any, data: bytes, shard: Any, count: int) -> Iterator[Sample]:
    assert row.block_size is not None
    dtype = _litdata._token_dtype(found)
    tokens = np.frombuffer(data, dtype, count, _litdata.table_end(shard.samples))
    for first in range(0, count - row.block_size + 1, row.block_size):
        window = tokens[first : first + row.block_size]
        yield {"tokens": window.astype(row.batch_dtype or dtype)}


def _item(row: Any, data: bytes, found: Any) -> Sample:
    sizes = np.frombuffer(data, np.uint32, len(found.stored)).tolist()
    at, sample = 4 * len(sizes), {}
    for (name, how), size in zip(found.stored.items(), sizes, strict=True):
        if row.columns is None or name in row.columns:
            value = data[at : at + size]
            sample[name] = value if name in row.raw else _litdata._decoded(how, value)
        at += size
    return sample


def _chunk_rows(shard: Any) -> Iterator[dict[str, Any]]:
    """The rows of a chunk, as Arrow gives them."""
    with _arrow_rows._opened(shard) as table:
        for batch in _arrow_rows._batches(shard, table, {}):
            yield from batch.to_pylist()


def _row_value(value: Any) -> Any:
    """A value of a chunk's rows, as headrace delivers it."""
    if isinstance(value, list):
        return np.array(value, np.float64 if value and isinstance(value[0], float) else np.int64)
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value)
    return np.float64(value) if isinstance(value, float) else value
