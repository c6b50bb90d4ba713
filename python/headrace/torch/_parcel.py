"""A batch in its own memory, which is sent to another process.

It has the numbers of the samples, then field after field: the rows one after the other; for a
ragged field first the size of each row. Every part begins at a multiple of 64 bytes.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace._workers._protocol import InputField

_ALIGNMENT = 64
_WRITTEN_AT_ONCE = 1024  # parts: IOV_MAX

Bytes = NDArray[np.uint8]


def write_parcel(fields: Sequence[InputField], batch: Any) -> int:
    """The descriptor of new memory with a batch of the core; for `close_parcel`."""
    parts: list[NDArray[Any]] = []
    for group in _groups(fields, batch):
        size = sum(part.nbytes for part in group)
        parts += [*group, np.zeros(-size % _ALIGNMENT, np.uint8)]
    with _fork_lock:
        memory = os.memfd_create("headrace-batch", os.MFD_CLOEXEC)
        _kept.add(memory)
    try:
        _write(memory, [part.reshape(-1).view(np.uint8).data for part in parts if part.size])
    except BaseException:
        close_parcel(memory)
        raise
    return memory


def close_parcel(memory: int) -> None:
    """Closes the descriptor. In a forked child it is closed already."""
    with _fork_lock:
        if memory in _kept:
            _kept.remove(memory)
            os.close(memory)


_fork_lock = threading.RLock()  # Held while no process may be forked.
_kept: set[int] = set()  # descriptors of parcels: a forked child must not keep their memory


def _close_in_child() -> None:
    for memory in _kept:
        os.close(memory)
    _kept.clear()
    _fork_lock.release()


os.register_at_fork(
    before=_fork_lock.acquire,
    after_in_parent=_fork_lock.release,
    after_in_child=_close_in_child,
)


def _groups(fields: Sequence[InputField], batch: Any) -> Iterator[list[NDArray[Any]]]:
    """A part that begins at a multiple of the alignment, and the bytes that follow it."""
    yield [batch.samples()]
    for position, field in enumerate(fields):
        view = batch.field(position)
        if field.ragged:
            rows = [_bytes_of(row) for row in view]
            yield [np.array([row.nbytes for row in rows], np.uint64)]
            yield rows
        else:
            yield [np.asarray(view)]


def _bytes_of(row: Any) -> Bytes:
    if isinstance(row, str):
        return np.frombuffer(row.encode(), np.uint8)
    return np.ascontiguousarray(np.asarray(row)).reshape(-1).view(np.uint8)


def _write(memory: int, parts: list[memoryview]) -> None:
    first = 0
    while first < len(parts):
        written = os.writev(memory, parts[first : first + _WRITTEN_AT_ONCE])
        while first < len(parts) and written >= len(parts[first]):
            written -= len(parts[first])
            first += 1
        if written:
            parts[first] = parts[first][written:]


def read_parcel(
    fields: Sequence[InputField], memory: int, rows: int
) -> tuple[list[int], list[Sequence[Any]]]:
    """(numbers of the samples, each field's rows): views that keep the memory."""
    size = os.fstat(memory).st_size
    mapped = mmap.mmap(memory, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    left: Bytes = np.frombuffer(mapped, np.uint8)

    def take(size: int) -> Bytes:
        nonlocal left
        taken, left = left[:size], left[size + -size % _ALIGNMENT :]
        return taken

    ids = take(8 * rows).view(np.uint64).tolist()
    columns: list[Sequence[Any]] = []
    for field in fields:
        if field.ragged:
            ends = np.cumsum(take(8 * rows).view(np.uint64)).tolist()
            packed = take(ends[-1])
            columns.append([field.ragged_row(packed[i:j]) for i, j in pairwise([0, *ends])])
        else:
            columns.append(field.rows_in(take(rows * field.row_bytes), rows))  # type: ignore[arg-type]
    return ids, columns
