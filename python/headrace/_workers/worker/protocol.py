"""The worker's side of what passes between it and its host: workers/worker_messages.h."""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace._core import WorkerChannel as _Channel
from headrace._text import PRINTABLE
from headrace._workers.results.rows import Columns, Shape, storage_dtype
from headrace._workers.results.tree import dump_skeleton
from headrace._workers.samples.sample import Origin

COMPUTE, WRITE = _Channel.COMPUTE, _Channel.WRITE
ROWS, PADDED, LIST, OBJECT = _Channel.ROWS, _Channel.PADDED, _Channel.LIST, _Channel.OBJECT
"""What a leaf of a batch is; OutputLeaf::Kind."""

_KIND = struct.Struct("=Q")
_COUNT = struct.Struct("=I")
_COMPUTE = struct.Struct(f"={_Channel.COMPUTE_HEAD}I")  # and the bytes of the layout
_WRITE = struct.Struct(f"={_Channel.WRITE_HEAD}")
_READY = struct.Struct(f"=Q{_Channel.READY_HEAD}")
_UNLIKE = struct.Struct(f"=Q{_Channel.UNLIKE_HEAD}")
_ERROR = struct.Struct(f"=Q{_Channel.ERROR_HEAD}")
_DONE = struct.Struct(f"=Q{_Channel.DONE_HEAD}")
_SHAPED = struct.Struct(f"=Q{_Channel.SHAPED_HEAD}")
_LEAF = struct.Struct(f"={_Channel.LEAF_HEAD}")

Memories = Mapping[int, NDArray[np.uint8]]


@dataclass(frozen=True)
class InputField:
    """A field of the batches that come in; (name, dtype, shape, ragged) of the core's schema.

    `dtype` is "str" for text; `shape` is that of a row, or of each entry of a ragged one.
    """

    name: str
    dtype: str
    shape: Shape
    ragged: bool

    def ragged_row(self, data: NDArray[np.uint8]) -> Any:
        """A row whose bytes are `data`; text that is not UTF-8 stays bytes: see `bad_text`."""
        if self.dtype == "str":
            text = data.tobytes()
            with suppress(UnicodeDecodeError):
                return text.decode()
            return text
        if self.dtype == "uint8" and not self.shape:
            return data
        return data.view(self.dtype).reshape(-1, *self.shape)

    @cached_property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)

    def rows_in(self, place: NDArray[np.uint8], rows: int) -> NDArray[Any]:
        """The rows that begin where `place` does; not of a ragged field."""
        data = place[: rows * self.row_bytes]
        return data.view(self.dtype).reshape(rows, *self.shape)


def bad_text(
    columns: Sequence[Sequence[Any]], fields: Sequence[InputField]
) -> tuple[int, str] | None:
    """The first row with text that is not UTF-8, and its field."""
    bad = [
        (row, field.name)
        for field, column in zip(fields, columns, strict=True)
        if field.dtype == "str"
        for row, text in enumerate(column)
        if isinstance(text, bytes)
    ]
    return min(bad, default=None)


@dataclass(slots=True)
class Task:
    """Samples to compute: their rows of every field, and where results go if that is known."""

    number: int
    epoch: int
    step: int
    first_slot: int
    whole: bool
    """They are a batch, and its result is one."""
    ids: list[int]
    columns: list[Sequence[Any]]
    layout: bytes
    """What `shaped()` ends with, of results that can be written at once; else empty."""
    places: list[NDArray[np.uint8]]
    """Of the first row of each leaf, then."""

    @classmethod
    def parse(cls, body: memoryview, fields: Sequence[InputField], memories: Memories) -> Task:
        """Of a message of COMPUTE, after its kind."""
        number, epoch, step, first_slot, rows, whole, layout_bytes = _COMPUTE.unpack_from(body)
        split = _COMPUTE.size + layout_bytes
        layout, words = bytes(body[_COMPUTE.size : split]), body[split:].cast("Q").tolist()
        ids, at = words[:rows], rows
        columns: list[Sequence[Any]] = []
        for field in fields:
            if field.ragged:
                rest = iter(words[at : at + 3 * rows])
                triples = zip(rest, rest, rest, strict=True)
                rows_of = [memories[m][offset : offset + n] for m, offset, n in triples]
                columns.append([field.ragged_row(row) for row in rows_of])
                at += 3 * rows
            else:
                place = memories[words[at]][words[at + 1] :]
                columns.append(field.rows_in(place, rows))  # type: ignore[arg-type]
                at += 2
        places = []
        if layout:
            memory = memories[words[at]]
            places = [memory[offset:] for offset in words[at + 1 :]]
        return cls(number, epoch, step, first_slot, whole, ids, columns, layout, places)

    def origin(self, seed: int) -> Origin:
        return Origin(seed, self.epoch)


def _string(data: bytes) -> bytes:
    return _COUNT.pack(len(data)) + data


class Busy(NamedTuple):
    """The time that a task took."""

    busy_ns: int
    ran_ns: int
    """Of it: its thread ran. Where it is measured so: or waited for a processor."""


def ready(threads: int = 1) -> bytes:
    """The worker computes so many tasks at a time from now on."""
    return _READY.pack(_Channel.READY, threads)


def unlike(task: int) -> bytes:
    return _UNLIKE.pack(_Channel.UNLIKE, task)


def failed(text: str, pickled: bytes) -> bytes:
    return _KIND.pack(_Channel.FAILED) + _string(text.encode(errors=PRINTABLE)) + _string(pickled)


def error(task: int, slot: int, text: str, pickled: bytes) -> bytes:
    head = _ERROR.pack(_Channel.ERROR, task, slot)
    return head + _string(text.encode(errors=PRINTABLE)) + _string(pickled)


def done(task: int, busy: Busy, objects: list[Sequence[Any]]) -> bytes:
    data = pickle.dumps(objects, protocol=5) if objects else b""
    return _DONE.pack(_Channel.DONE, task, *busy) + _string(data)


def layout_of(columns: Columns) -> bytes:
    """How results lie where they are written at once: equal for results that fit."""
    parts = [_string(dump_skeleton(columns.batch_skeleton)), _COUNT.pack(len(columns.columns))]
    for column in columns.columns:
        shapes = [column.shape] if column.shape is not None else column.shapes
        dims = [dim for shape in shapes for dim in shape]
        parts.append(_LEAF.pack(column.is_object, column.item_bytes))
        parts.append(_string(column.dtype.encode()))
        parts.append(struct.pack(f"=2I{len(dims)}Q", column.rank, len(dims), *dims))
    return b"".join(parts)


def shaped(task: int, busy: Busy, columns: Columns, layout: bytes) -> bytes:
    return _SHAPED.pack(_Channel.SHAPED, task, *busy, columns.rows) + layout


def write_head(body: memoryview) -> tuple[int, int, memoryview]:
    """Task, number of leaves and the rest of a message of WRITE, after its kind."""
    task, leaves = _WRITE.unpack_from(body)
    return task, leaves, body[_WRITE.size :]


def write_leaves(columns: Columns, body: memoryview, memories: Memories) -> None:
    """Writes results to where the rest of a message of WRITE says."""
    words = iter(body.cast("Q").tolist())
    for column in columns.columns:
        kind = next(words)
        if kind == OBJECT:
            continue
        memory, dtype = memories[next(words)], storage_dtype(column.dtype)
        if kind == LIST:
            for row in column.rows:
                rows_at(memory[next(words) :], dtype, row.shape)[...] = row
            continue
        place = memory[next(words) :]
        if kind == PADDED:
            dims = [next(words) for _ in range(column.rank)]
            column.write_padded(rows_at(place, dtype, (columns.rows, *dims)))
        else:
            assert column.shape is not None
            column.write(rows_at(place, dtype, (columns.rows, *column.shape)))


def rows_at(place: NDArray[np.uint8], dtype: np.dtype[Any], shape: Shape) -> NDArray[Any]:
    """The array of this shape that begins where `place` does."""
    size = math.prod(shape) * dtype.itemsize
    return place[:size].view(dtype).reshape(shape)
