"""Assigns samples to blocks and shards, before a byte is copied.

The plan is a function of the source index and the parameters alone. So a pack is the same with any
number of workers, and after any number of interruptions. Order and blocks do not depend on the
number of homes: only the files where blocks lie do.
"""

from __future__ import annotations

import heapq
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import integer
from headrace._units import counted
from headrace.errors import InvalidArgumentError

ALIGNMENT = 4096  # bytes: required by direct reads
BLOCK_BYTES = 2**20
SHARD_BYTES = 256 * 2**20
HOMES_MAX = 2**16
_PACK_STREAM = 4  # RandomStream::kPack

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class PackParameters:
    """The parameters that, with the source, determine the bytes of a pack."""

    order: Literal["shuffled", "source"] = "shuffled"
    seed: int = 0
    block_bytes: int = BLOCK_BYTES  # a block ends before it would exceed this
    block_samples: int | None = None  # or: exactly so many samples, whatever their bytes
    shard_bytes: int = SHARD_BYTES
    shards_over: int = 1  # number of homes: folders home-0, home-1, ... of about equal bytes

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        if self.order not in ("shuffled", "source"):
            raise InvalidArgumentError(
                f'pack order: got "{self.order}", must be "shuffled" or "source"'
            )
        integer("pack seed", self.seed, 0, 2**64 - 1)
        for name in ("block_bytes", "block_samples", "shard_bytes"):
            value = getattr(self, name)
            if value is not None:
                integer(f"pack {name}", value, 1, 2**62)
        integer("pack shards_over", self.shards_over, 1, HOMES_MAX)
        if self.block_samples is None and self.shard_bytes < self.block_bytes:
            raise InvalidArgumentError(
                f"pack shard_bytes: got {self.shard_bytes}, less than one block, of "
                f"{self.block_bytes} bytes; raise it, or lower block_bytes"
            )

    def to_dict(self) -> dict[str, Any]:
        """For the journal and the index. A pack without homes is the same as before there were."""
        values = asdict(self)
        if self.shards_over == 1:
            del values["shards_over"]
        return values


@dataclass(frozen=True)
class PackPlan:
    """The samples of the pack in order, the limits of blocks, and the blocks of each shard."""

    order: U64  # source sample of each pack sample
    block_starts: U64  # first pack sample of each block, and the sample count at the end
    blocks: U64  # those of shard 0, then those of shard 1, ...
    shard_starts: U64  # position in `blocks` where each shard starts, and the block count
    shard_data_bytes: U64
    shard_homes: list[int | None]
    """The home of each shard; None: the pack has no home folders."""

    @property
    def shard_count(self) -> int:
        """Number of shards."""
        return len(self.shard_starts) - 1

    def data_bytes(self, shard: int) -> int:
        """Of the samples of `shard`."""
        return int(self.shard_data_bytes[shard])

    def blocks_of(self, shard: int) -> list[U64]:
        """The source samples of each block of `shard`."""
        first, last = int(self.shard_starts[shard]), int(self.shard_starts[shard + 1])
        return [
            self.order[int(self.block_starts[block]) : int(self.block_starts[block + 1])]
            for block in self.blocks[first:last].tolist()
        ]

    @property
    def stored_samples(self) -> U64:
        """The pack's samples as they lie in the shards, one shard after the other."""
        starts = self.block_starts.astype(np.int64)
        counts = np.diff(starts)[self.blocks]
        ends = np.cumsum(counts)
        shifts = np.repeat(starts[:-1][self.blocks] - (ends - counts), counts)
        numbers: U64 = (np.arange(len(self.order)) + shifts).astype(np.uint64)
        return numbers


def make_plan(
    index: _core.Index, parameters: PackParameters, left_out: npt.NDArray[np.uint32] | None = None
) -> PackPlan:
    """The plan of a pack of the dataset that `index` describes, without the samples `left_out`."""
    sizes = np.zeros(index.sample_count, np.uint64)
    for position, field in enumerate(index.fields):
        if not field.is_inline:
            sizes += index.extents(position)[2]
    order = np.arange(index.sample_count, dtype=np.uint64)
    if left_out is not None:
        order = np.setdiff1d(order, left_out.astype(np.uint64))
    count = len(order)
    if parameters.order == "shuffled":
        order = order[_permutation(count, parameters.seed)]
    sizes = sizes[order]
    if parameters.block_samples is None:
        block_starts = _cut(sizes, parameters.block_bytes)
    else:
        block_starts = np.append(
            np.arange(0, count, parameters.block_samples, dtype=np.uint64), np.uint64(count)
        )
    block_bytes = np.add.reduceat(sizes, block_starts[:-1].astype(np.intp))
    blocks: list[U64] = []  # of each shard
    shard_homes: list[int | None] = []
    for home, own in enumerate(_dealt(block_bytes, parameters.shards_over)):
        starts = _cut(block_bytes[own], parameters.shard_bytes).tolist()
        blocks += [own[a:b] for a, b in pairwise(starts)]
        has_homes = parameters.shards_over > 1
        shard_homes += [home if has_homes else None] * (len(starts) - 1)
    return PackPlan(
        order,
        block_starts,
        blocks=np.concatenate(blocks),
        shard_starts=np.cumsum([0, *map(len, blocks)], dtype=np.uint64),
        shard_data_bytes=np.array([block_bytes[own].sum() for own in blocks], np.uint64),
        shard_homes=shard_homes,
    )


def _dealt(block_bytes: U64, homes: int) -> list[U64]:
    """The blocks of each home: each goes where the fewest bytes are, then the fewest blocks."""
    if homes == 1:
        return [np.arange(len(block_bytes), dtype=np.uint64)]
    if len(block_bytes) < homes:
        raise InvalidArgumentError(
            f"pack shards_over: got {homes}, but the pack has only "
            f"{counted(len(block_bytes), 'block')}, and each home needs one; take smaller blocks "
            "(--block-size, --block-samples), or fewer homes"
        )
    heap = [(0, 0, home) for home in range(homes)]
    dealt: list[list[int]] = [[] for _ in range(homes)]
    for block, size in enumerate(block_bytes.tolist()):
        held, count, home = heap[0]
        heapq.heapreplace(heap, (held + size, count + 1, home))
        dealt[home].append(block)
    return [np.array(numbers, np.uint64) for numbers in dealt]


def _cut(sizes: U64, limit: int) -> U64:
    """Starts of runs whose sum stays within `limit`; a larger value is a run of its own."""
    ends = np.cumsum(sizes, dtype=np.uint64)
    starts = [0]
    base = 0
    while True:
        first = starts[-1]
        end = int(np.searchsorted(ends, np.uint64(base + limit), side="right"))
        end = max(end, first + 1)
        if end >= len(sizes):
            starts.append(len(sizes))
            return np.array(starts, np.uint64)
        starts.append(end)
        base = int(ends[end - 1])


def _permutation(count: int, seed: int) -> U64:
    """The seeded order of a shuffled pack."""
    return np.asarray(_core.permutation(count, seed, 0, _PACK_STREAM)).astype(np.uint64)
