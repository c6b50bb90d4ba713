"""Samples of objects that are decoded as a whole, gathered for a shuffled pack: each decoded once.

A pass in the order of the objects copies every sample to an unnamed file, to the place that the
plan gives it: those of a shard lie together. Then shards are written from there.

Memory: two pieces of 32 MiB, and 50 bytes for each sample and field. The file is as large as the
samples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from tempfile import mkstemp
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.errors import DataLossError
from headrace.pack._plan import U64

PIECE_BYTES = 32 * 2**20  # read at once; all of them are kept decoded meanwhile

_SUSPECT = "the disk or its memory is at fault: check it, then run the command again"

Extents = tuple[U64, U64, U64]
Entries = npt.NDArray[np.intp]


class Samples(Protocol):
    """Where a shard's samples are read: their own files, or what was gathered from them."""

    def extents(self, position: int, samples: U64) -> Extents:
        """Where the values of a field are: objects, offsets and sizes, for `read_into`."""

    def read_into(self, extents: Extents, into: memoryview) -> None:
        """Reads these ranges, one after the other."""

    def check(self, position: int, samples: U64, checksums: U64) -> None:
        """Raises if values that were read are not those of the samples."""


class Stored:
    """Samples in their own files. Thread safety: every method may be called from any thread."""

    def __init__(self, index: _core.Index, reader: _core.StoredReader) -> None:
        self._index = index
        self._reader = reader

    def extents(self, position: int, samples: U64) -> Extents:
        extents = [self._index.extents(position, int(s), 1) for s in samples]
        objects, offsets, sizes = (np.concatenate(parts) for parts in zip(*extents, strict=True))
        return objects, offsets, sizes

    def read_into(self, extents: Extents, into: memoryview) -> None:
        self._reader.read_into(*extents, into)
        for object_id in np.unique(extents[0]).tolist():
            self._reader.check(object_id)  # A file that changed meanwhile may have given a mixture.

    def check(self, position: int, samples: U64, checksums: U64) -> None:
        """Their files were compared with the index."""


class Gathered:
    """Samples of some shards in an unnamed file in `folder`.

    Thread safety: once filled, every method may be called from any thread.
    """

    def __init__(self, index: _core.Index, shards: Sequence[U64], folder: Path) -> None:
        """`shards`: the samples of each."""
        samples = np.concatenate(shards)
        self._fields = [n for n, field in enumerate(index.fields) if not field.is_inline]
        self._count = len(samples)
        self._rank = np.zeros(index.sample_count, np.int64)  # of a sample, among these
        self._rank[samples.astype(np.int64)] = np.arange(self._count)
        columns = [
            [column[samples] for column in index.extents(position)] for position in self._fields
        ]
        # An entry is the value of a field of a sample; those of one field lie together.
        objects, offsets, sizes = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        self._objects: U64 = objects
        self._offsets: U64 = offsets
        self._sizes: U64 = sizes
        shard = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
        order = np.lexsort((offsets, objects, np.tile(shard, len(self._fields))))
        self._places = np.empty_like(sizes)
        self._places[order] = np.cumsum(sizes[order]) - sizes[order]
        self._checksums = np.empty_like(sizes)
        self._fd, name = mkstemp(suffix=".tmp", prefix="gathered-", dir=folder)
        os.unlink(name)

    def fill(self, reader: _core.StoredReader, progress: Callable[[int], None]) -> None:
        """Reads all of them, in the order of the objects; one piece while another is written."""
        pieces = self._pieces()
        with ThreadPoolExecutor(1, "headrace-gather") as pool:
            ahead = pool.submit(self._read, reader, next(pieces))
            while True:
                entries, data = ahead.result()
                following = next(pieces, None)
                if following is not None:
                    ahead = pool.submit(self._read, reader, following)
                self._write(entries, data)
                progress(len(data))
                if following is None:
                    return

    def extents(self, position: int, samples: U64) -> Extents:
        entries = self._entries(position, samples)
        return self._objects[entries], self._places[entries], self._sizes[entries]

    def read_into(self, extents: Extents, into: memoryview) -> None:
        at = 0
        for place, size in zip(extents[1].tolist(), extents[2].tolist(), strict=True):
            end = at + size
            while at < end:
                count = os.preadv(self._fd, [into[at:end]], place)
                if count == 0:
                    raise DataLossError(
                        f"reading samples that were gathered: the file ends at byte {place}; "
                        f"{_SUSPECT}"
                    )
                at, place = at + count, place + count

    def check(self, position: int, samples: U64, checksums: U64) -> None:
        wrong = np.flatnonzero(self._checksums[self._entries(position, samples)] != checksums)
        if wrong.size:
            raise DataLossError(
                f"packing sample {int(samples[wrong[0]])}: it reads back other bytes than were "
                f"gathered; {_SUSPECT}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def _entries(self, position: int, samples: U64) -> Entries:
        first = self._fields.index(position) * self._count
        return first + self._rank[samples.astype(np.int64)]

    def _pieces(self) -> Iterator[Entries]:
        """All entries: those of some objects, or a part of a large one's, by their places."""
        by_object = np.lexsort((self._places, self._objects))
        objects = self._objects[by_object]
        starts = np.flatnonzero(np.append(True, objects[1:] != objects[:-1]))
        ends = np.append(0, np.cumsum(self._sizes[by_object], dtype=np.int64))
        for first, last in _runs(np.append(starts, len(objects)), ends):
            entries = by_object[first:last]
            if ends[last] - ends[first] <= PIECE_BYTES:
                yield entries[np.argsort(self._places[entries])]
                continue
            for begin, end in _runs(np.arange(first, last + 1), ends):  # of one object
                yield by_object[begin:end]

    def _read(self, reader: _core.StoredReader, entries: Entries) -> tuple[Entries, bytearray]:
        sizes = self._sizes[entries]
        data = bytearray(int(sizes.sum()))
        objects = self._objects[entries]
        reader.read_into(objects, self._offsets[entries], sizes, data)
        for object_id in np.unique(objects).tolist():
            reader.check(object_id)  # A file that changed meanwhile may have given a mixture.
        return entries, data

    def _write(self, entries: Entries, data: bytearray) -> None:
        """Writes entries, in the order of their places, in runs that are contiguous there."""
        sizes, places = self._sizes[entries], self._places[entries]
        ends = np.append(0, np.cumsum(sizes, dtype=np.int64))
        self._checksums[entries] = _core.hash64_ranges(data, ends[:-1].astype(np.uint64), sizes)
        gaps = np.flatnonzero(places[1:] != places[:-1] + sizes[:-1]) + 1
        view = memoryview(data)
        for first, last in pairwise([0, *gaps.tolist(), len(entries)]):
            at, place = int(ends[first]), int(places[first])
            while at < ends[last]:
                count = os.pwrite(self._fd, view[at : int(ends[last])], place)
                at, place = at + count, place + count


def _runs(bounds: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of parts [bounds[i], bounds[i + 1]) of up to a piece, at least one part each."""
    first = 0
    while first < len(bounds) - 1:
        limit = ends[bounds[first]] + PIECE_BYTES
        last = int(np.searchsorted(ends[bounds], limit, "right")) - 1
        last = max(last, first + 1)
        yield int(bounds[first]), int(bounds[last])
        first = last
