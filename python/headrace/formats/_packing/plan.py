"""Assigns samples to blocks and shards, before a byte is copied.

The plan is a function of the source index and the parameters alone. So a pack is the same with any
number of workers, and after any number of interruptions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import integer
from headrace.errors import InvalidArgumentError

ALIGNMENT = 4096  # bytes: required by direct reads
BLOCK_BYTES = 2**20
SHARD_BYTES = 256 * 2**20
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
        if self.block_samples is None and self.shard_bytes < self.block_bytes:
            raise InvalidArgumentError(
                f"pack shard_bytes: got {self.shard_bytes}, less than one block "
                f"({self.block_bytes} bytes)"
            )

    def to_dict(self) -> dict[str, Any]:
        """For the journal and the index."""
        return asdict(self)


@dataclass(frozen=True)
class PackPlan:
    """The samples of the pack in order, and the limits of blocks and shards."""

    order: U64  # source sample of each pack sample
    block_starts: U64  # first pack sample of each block, and the sample count at the end
    shard_starts: U64  # first block of each shard, and the block count at the end
    shard_data_bytes: U64

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
        cuts = self.block_starts[first : last + 1].tolist()
        return [self.order[a:b] for a, b in pairwise(cuts)]


def make_plan(index: _core.Index, parameters: PackParameters) -> PackPlan:
    """The plan of a pack of the dataset that `index` describes."""
    count = index.sample_count
    sizes = np.zeros(count, np.uint64)
    for position, field in enumerate(index.fields):
        if not field.is_inline:
            sizes += index.extents(position)[2]
    if parameters.order == "shuffled":
        order = _permutation(count, parameters.seed)
        sizes = sizes[order]
    else:
        order = np.arange(count, dtype=np.uint64)
    if parameters.block_samples is None:
        block_starts = _cut(sizes, parameters.block_bytes)
    else:
        block_starts = np.append(
            np.arange(0, count, parameters.block_samples, dtype=np.uint64), np.uint64(count)
        )
    block_bytes = np.add.reduceat(sizes, block_starts[:-1].astype(np.intp))
    shard_starts = _cut(block_bytes, parameters.shard_bytes)
    shard_data_bytes = np.add.reduceat(block_bytes, shard_starts[:-1].astype(np.intp))
    return PackPlan(order, block_starts, shard_starts, shard_data_bytes)


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
