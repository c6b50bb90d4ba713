"""The bytes of a shard: of a file that is read in parts, or what a compressed one decodes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from headrace import _core, _places
from headrace.errors import DataLossError
from headrace.formats._files.reading import file_reader

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

AGAIN = "copy or write the dataset again"

_AHEAD_BYTES = 2**20  # read at once where samples are small
_STORE_AHEAD_BYTES = 8 * 2**20  # the same of an object store
_PART_BYTES = 2**30  # of one read: Linux reads at most 2 GiB at once
_SPARSE_BYTES = 16 * 1024  # between two places: further apart, each is read alone
_STORE_SPARSE_BYTES = 2**20  # the same of an object store: they arrive in the time of a request


def begins_with(index: str, begin: re.Pattern[bytes]) -> bool:
    """Whether there is such a file of JSON, and what it begins with."""
    if not _places.is_file(index):
        return False
    with _places.open(index) as file:
        return begin.match(file.read(4096)) is not None


Level = Literal["chunk", "batch", "sample"]
"""What LitData compresses by itself."""

LEVELS: tuple[Level, ...] = ("chunk", "batch", "sample")


@dataclass(frozen=True)
class ShardFile:
    """A shard, as the dataset's index.json describes it."""

    path: str
    coding: Literal["stored", "zstd", "gzip"]
    bytes: int | None
    """Of the file itself, if known."""
    decoded_bytes: int
    """Where the samples end, in what it decodes to."""
    samples: int
    pieces: Level = "chunk"
    """What is compressed by itself: the file, or several samples or one, see frames()."""
    part: tuple[int, int] | None = None
    """Where in the file a piece lies: offset and size."""
    first: int = 0
    """The number of its first sample in the file."""
    bounds: I64 | None = None
    """Where the samples of a piece begin and end; None: a table says it."""


class Source:
    """Reads parts of a shard.

    Thread safety: one thread at a time.
    """

    def __init__(self, path: str, size: int, read: Callable[[int, int], Any]) -> None:
        """`read(offset, size)` of the shard's `size` bytes; fewer at its end."""
        self.path = path
        self.size = size
        self._read = read

    def part(self, offset: int, size: int) -> U8:
        """These bytes, which must be there."""
        # Not a read of a size that damage made up.
        there = max(0, min(size, self.size - offset))
        data = np.frombuffer(self._read(offset, there), np.uint8)
        if data.size != size:
            raise self.damaged(offset, f"{size} bytes are needed, there are {data.size}")
        return data

    def gather(self, starts: I64, width: int) -> U8:
        """[places, width]: `width` bytes from each place, in ascending order; zeros behind the end.

        Reads what lies between places that are close together, too.
        """
        rows = np.zeros((len(starts), width), np.uint8)
        is_local = _places.is_local(self.path)
        ahead, sparse = (
            (_AHEAD_BYTES, _SPARSE_BYTES) if is_local else (_STORE_AHEAD_BYTES, _STORE_SPARSE_BYTES)
        )
        first = 0
        while first < len(starts) and width:
            at = int(starts[first])
            last = int(np.searchsorted(starts, at + max(ahead - width, 0), "right"))
            last = max(last, first + 1)
            span = int(starts[last - 1]) + width - at
            if span > (last - first) * sparse:
                last, span = first + 1, width
            piece = np.frombuffer(self._read(at, span), np.uint8)
            if piece.size < span:
                piece = np.concatenate([piece, np.zeros(span - piece.size, np.uint8)])
            rows[first:last] = sliding_window_view(piece, width)[starts[first:last] - at]
            first = last
        return rows

    def damaged(self, offset: int, why: str) -> DataLossError:
        """An error about the byte at `offset`."""
        return DataLossError(f"indexing {self.path}: byte {offset}: {why}; {AGAIN}")


@contextmanager
def open_shard(shard: ShardFile) -> Iterator[Source]:
    """The shard's bytes. A compressed one is decoded, and in memory as a whole meanwhile."""
    with file_reader(shard.path) as (read, size):
        check_size(shard, size)
        if shard.coding == "stored":
            yield Source(shard.path, min(size, shard.decoded_bytes), read)
            return
        begin, count = shard.part or (0, size)
        try:
            parts = [
                read(at, min(_PART_BYTES, begin + count - at))
                for at in range(begin, begin + count, _PART_BYTES)
            ]
            data = _core.decode_bytes(shard.coding, b"".join(parts), shard.decoded_bytes)
        except DataLossError as error:
            at = f"bytes [{begin}, {begin + count}): " if shard.part else ""
            raise DataLossError(f"indexing {shard.path}: {at}{error}; {AGAIN}") from error
        yield Source(shard.path, data.size, lambda offset, count: data[offset : offset + count])


def check_size(shard: ShardFile, size: int) -> None:
    """Raises if the file has not the size that is known."""
    if shard.bytes is not None and size != shard.bytes:
        raise DataLossError(
            f"indexing {shard.path}: the file has {size} bytes, index.json says "
            f"{shard.bytes}; {AGAIN}"
        )


ZSTD_FRONT_BYTES = 18


def zstd_content_bytes(path: str, at: int, front: bytes) -> int | None:
    """What a zstd frame says it decodes to: RFC 8878, 3.1.1.1; None: it does not say it.

    `front`: its first bytes, ZSTD_FRONT_BYTES at most, which lie at byte `at` of the file.
    """
    if len(front) < 6 or front[:4] != b"\x28\xb5\x2f\xfd":
        raise DataLossError(f"indexing {path}: byte {at}: no zstd frame begins here; {AGAIN}")
    is_single = bool(front[4] & 0x20)
    width = (1 if is_single else 0, 2, 4, 8)[front[4] >> 6]
    begin = 5 + (0 if is_single else 1) + (0, 1, 2, 4)[front[4] & 3]
    if not width:
        return None
    return int.from_bytes(front[begin : begin + width], "little") + (256 if width == 2 else 0)


def inside(folder: str, name: str) -> str:
    """The path of a file that an index.json names; it must lie in the folder."""
    below = _places.absolute(folder).rstrip("/") + "/"
    path = _places.absolute(below + name)
    if not path.startswith(below) or "\0" in name:
        raise DataLossError(
            f"indexing {folder}: its index.json names a file outside of it, {name!r:.200}; {AGAIN}"
        )
    return path
