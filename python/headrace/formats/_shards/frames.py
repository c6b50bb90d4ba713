"""Chunks of LitData whose pieces are compressed by themselves.

With compression_level="batch" a chunk begins with a table of zstd frames of several samples; with
"sample" it is laid out as without compression, but each sample is a zstd frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from headrace.formats._files.reading import file_reader
from headrace.formats._shards.sample_table import sample_bounds
from headrace.formats._shards.source import (
    I64,
    ZSTD_FRONT_BYTES,
    ShardFile,
    Source,
    check_size,
    zstd_content_bytes,
)

_MAGIC = b"LDFZ01\0\0"
_VERSION = 1
_ZSTD_RATIO_MAX = 65_536  # decoded bytes of one byte
_HEAD = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u2"),
        ("flags", "<u2"),
        ("samples", "<u4"),
        ("samples_a_frame", "<u4"),
        ("frames", "<u4"),
    ]
)
_FRAME = np.dtype(
    [("first", "<u4"), ("samples", "<u4"), ("offset", "<u8"), ("size", "<u4"), ("content", "<u4")]
)


def frames(shards: Iterable[ShardFile]) -> Iterator[ShardFile]:
    """The shards, but of those with pieces the pieces, which are decoded each alone."""
    for shard in shards:
        pieces_of = _PIECES.get(shard.pieces)
        if pieces_of is None:
            yield shard
            continue
        with file_reader(shard.path) as (read, size):
            check_size(shard, size)
            yield from pieces_of(Source(shard.path, size, read), shard)


def _batches(source: Source, shard: ShardFile) -> Iterator[ShardFile]:
    head = source.part(0, _HEAD.itemsize).view(_HEAD)[0]
    if source.part(0, len(_MAGIC)).tobytes() != _MAGIC or head["version"] != _VERSION:
        raise source.damaged(0, "no table of compressed frames, of version 1, begins here")
    samples, count = int(head["samples"]), int(head["frames"])
    if samples != shard.samples:
        raise source.damaged(12, f"{samples} samples, index.json says {shard.samples}")
    bounds = source.part(_HEAD.itemsize, 4 * (samples + 1)).view("<u4").astype(np.int64)
    at = _HEAD.itemsize + 4 * (samples + 1)
    table = source.part(at, count * _FRAME.itemsize).view(_FRAME)
    end = at + count * _FRAME.itemsize
    done = 0
    for number, frame in enumerate(table):
        first, items, offset, size, decoded = (int(value) for value in frame)
        here = bounds[first : first + items + 1] if first == done else bounds[:0]
        if (
            not items
            or here.size != items + 1
            or (np.diff(here) < 0).any()
            or here[-1] - here[0] != decoded
            or decoded > size * _ZSTD_RATIO_MAX
            or offset < end
            or offset + size > source.size
        ):
            raise source.damaged(
                at + number * _FRAME.itemsize,
                f"frame {number} has samples [{first}, {first + items}) of {samples} in bytes "
                f"[{offset}, {offset + size}) of {source.size}, which decode to {decoded}",
            )
        done += items
        yield _piece(shard, (offset, size), decoded, first, here - here[0])
    if done != samples:
        raise source.damaged(at, f"its frames have {done} samples of {samples}")


def _samples(source: Source, shard: ShardFile) -> Iterator[ShardFile]:
    for first, bounds in sample_bounds(source, shard.samples):
        fronts = source.gather(bounds[:-1], ZSTD_FRONT_BYTES)
        sizes = np.diff(bounds)
        for number, (offset, size) in enumerate(
            zip(bounds[:-1].tolist(), sizes.tolist(), strict=True)
        ):
            front = fronts[number, : min(size, ZSTD_FRONT_BYTES)].tobytes()
            decoded = zstd_content_bytes(source.path, offset, front)
            if decoded is None or decoded > size * _ZSTD_RATIO_MAX:
                raise source.damaged(
                    offset, f"a zstd frame of {size} bytes that decodes to {decoded} bytes"
                )
            yield _piece(shard, (offset, size), decoded, first + number, np.array([0, decoded]))


def _piece(
    shard: ShardFile, part: tuple[int, int], decoded: int, first: int, bounds: I64
) -> ShardFile:
    return replace(
        shard,
        pieces="chunk",
        part=part,
        decoded_bytes=decoded,
        samples=len(bounds) - 1,
        first=first,
        bounds=bounds,
    )


_PIECES = {"batch": _batches, "sample": _samples}
