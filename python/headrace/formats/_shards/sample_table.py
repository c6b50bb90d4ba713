"""The table that a shard begins with: how many samples it has, and where each one lies.

Four bytes for the number of samples n, then n + 1 times four bytes: where each sample begins, and
where the last one ends. A sample begins with the sizes of its columns that differ in length, four
bytes each; the values of all columns follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace import _places
from headrace.formats._shards.source import I64, ShardFile, Source

_SAMPLES_AT_ONCE = 2**16


@dataclass(frozen=True)
class SamplePiece:
    """Some samples of a shard."""

    first: int
    """Number of the first one in the shard."""
    starts: I64
    """[columns, samples]: where each value begins."""
    sizes: I64
    """[columns, samples]: the bytes of each value."""

    def __len__(self) -> int:
        """The number of samples."""
        return int(self.starts.shape[1])


def table_end(samples: int) -> int:
    """Where the table of so many samples ends."""
    return 4 + 4 * (samples + 1)


def pieces(source: Source, shard: ShardFile, widths: list[int | None]) -> Iterator[SamplePiece]:
    """Where the values of all samples lie, some samples at a time.

    `widths`: of each column; None: it differs.
    """
    if shard.bounds is not None:
        yield _piece(source, shard.first, shard.bounds, widths)
        return
    for first, bounds in sample_bounds(source, shard.samples):
        yield _piece(source, first, bounds, widths)


def sample_bounds(source: Source, samples: int) -> Iterator[tuple[int, I64]]:
    """Where the samples begin and end, as the table says, some at a time; the first one's number.

    `samples`: as index.json has it.
    """
    if source.size < table_end(samples):
        raise source.damaged(
            0,
            f"index.json says {samples} samples, whose offsets alone take {table_end(samples)} "
            f"bytes; the shard has {source.size}",
        )
    count = int(source.part(0, 4).view("<u4")[0])
    if count != samples:
        raise source.damaged(0, f"the shard has {count} samples, index.json says {samples}")
    end = None
    for first in range(0, samples, _SAMPLES_AT_ONCE):
        number = min(_SAMPLES_AT_ONCE, samples - first)
        bounds = _bounds(source, samples, first, number, end)
        end = int(bounds[-1])
        yield first, bounds
    if end is not None and end != source.size:
        raise source.damaged(
            table_end(samples) - 4, f"the last sample ends at {end}, the shard at {source.size}"
        )


def _bounds(source: Source, samples: int, first: int, number: int, end: int | None) -> I64:
    """Where these samples begin, and where the last of them ends."""
    at = 4 + 4 * first
    bounds = source.part(at, 4 * (number + 1)).view("<u4").astype(np.int64)
    begin = table_end(samples) if end is None else end
    wrong = np.flatnonzero(np.diff(bounds) < 0)
    if bounds[0] < begin or wrong.size or bounds[-1] > source.size:
        which = int(wrong[0]) if wrong.size else 0 if bounds[0] < begin else number - 1
        raise source.damaged(
            at + 4 * which,
            f"sample {first + which} lies at [{bounds[which]}, {bounds[which + 1]}) of "
            f"{source.size} bytes, and the one before it ends at "
            f"{begin if which == 0 else bounds[which]}",
        )
    return bounds


def _piece(source: Source, first: int, bounds: I64, widths: list[int | None]) -> SamplePiece:
    number = len(bounds) - 1
    open_ended = [position for position, width in enumerate(widths) if width is None]
    head = 4 * len(open_ended)
    sizes = np.zeros((len(widths), number), np.int64)
    for position, width in enumerate(widths):
        sizes[position] = width or 0
    if len(open_ended) == 1 and not _places.is_local(source.path):
        # What the others leave is its size. To read each sample's head would be a request each.
        sizes[open_ended[0]] = np.diff(bounds) - head - sizes.sum(axis=0)
        if sizes[open_ended[0]].min(initial=0) < 0:
            sizes[open_ended[0]] = 0  # damaged: refused below
    elif head:
        sizes[open_ended] = source.gather(bounds[:-1], head).view("<u4").T
    ends = bounds[:-1] + head + np.cumsum(sizes, axis=0)
    wrong = np.flatnonzero((ends[-1] if len(widths) else bounds[:-1]) != bounds[1:])
    if wrong.size:
        which = int(wrong[0])
        needed = int(head + sizes[:, which].sum())
        raise source.damaged(
            int(bounds[which]),
            f"the columns of sample {first + which} take {needed} bytes, the sample has "
            f"{int(bounds[which + 1] - bounds[which])}",
        )
    return SamplePiece(first, ends - sizes, sizes)
