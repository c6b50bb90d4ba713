"""Orders: how much of who-gets-which-sample-when the loader may choose (docs/orders.md).

>>> hr.Loader(ds, order="epoch")                          # with its defaults
>>> hr.Loader(ds, order=hr.orders.Epoch(pool="2GiB"))     # or spelled out
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import choice, integer
from headrace._dataset import Dataset
from headrace._units import parse_bytes
from headrace.errors import InvalidArgumentError

__all__ = ["Batch", "Epoch", "Exact", "Order", "Redox"]

_BYTES_MAX = 2**62


class Order(ABC):
    """What `Loader(order=...)` takes besides a name."""

    name: ClassVar[str]

    @abstractmethod
    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        """The core's form of it, for `dataset`: what was given, checked; not the defaults."""


@dataclass(frozen=True, kw_only=True)
class Exact(Order):
    """Every sample where the seed, or the sampler, puts it."""

    name: ClassVar[str] = "exact"

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        return _core.OrderSpec(self.name, {})


@dataclass(frozen=True, kw_only=True)
class Batch(Order):
    """The global batches of `exact`; who gets which sample of them is chosen.

    A sample goes to the node that is its home, if there is room; costs are levelled over ranks.

    Args:
        homes: number of the node that each sample is nearest to; by default none has a home.
        costs: of each sample, in any unit, as integers below 2**32; "bytes" (the default) takes its
            stored bytes, None makes all equal.
        ranks_per_node: rank r is on node r // ranks_per_node.
    """

    name: ClassVar[str] = "batch"
    homes: Sequence[int] | NDArray[Any] | None = None
    costs: Sequence[int] | NDArray[Any] | str | None = "bytes"
    ranks_per_node: int = 1

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        costs = self.costs
        if isinstance(costs, str):
            choice("costs", costs, ("bytes",), ", or numbers, one a sample")
            costs = _core.stored_bytes(dataset.index)
        return _core.OrderSpec(
            self.name,
            {"ranks_per_node": integer("ranks_per_node", self.ranks_per_node, 1, 2**20)},
            homes=_table("homes", self.homes),
            costs=_table("costs", costs),
        )


@dataclass(frozen=True, kw_only=True)
class Epoch(Order):
    """Each sample once an epoch, in an order that lets storage be read in blocks, each once.

    Blocks are read into pools of bounded memory; each row is drawn from what a pool holds, at
    random. ``headrace quality`` tells how good a shuffle that is.

    Args:
        pool: bytes of all pools of the whole job, as 2 * 2**30, "2GiB", or "10%" of the dataset; by
            default what the memory allows and is useful.
        pools: how many. Ranks share the work well when their number divides it.
        join_share: of a pool, by which a block waits between being asked for and being drawn from,
            so that slow storage never changes the order.
        first_fill: share of the pool that the first batch of a run waits for.
        block_samples: neighbours that are read together; by default the dataset's own blocks, or
            runs of about 1 MiB.
    """

    name: ClassVar[str] = "epoch"
    pool: int | str | None = None
    pools: int | None = None
    join_share: float = 0.25
    first_fill: float = 1.0
    block_samples: int | None = None

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        parameters = _block_samples(self.block_samples)
        if self.pool is not None:
            parameters["pool_bytes"] = _pool_bytes(self.pool, dataset, self.block_samples or 0)
        if self.pools is not None:
            parameters["pools"] = integer("pools", self.pools, 0, 2**31 - 1)
        if self.join_share != 0.25:
            parameters["join_permille"] = _permille("join_share", self.join_share, 0.9)
        if self.first_fill != 1.0:
            parameters["first_fill_permille"] = _permille("first_fill", self.first_fill, 1)
        return _core.OrderSpec(self.name, parameters)


@dataclass(frozen=True, kw_only=True)
class Redox(Order):
    """The slot protocol of the papers Redox and Brand, to compare with: blocks are read often.

    Args:
        chunks_per_virtual: physical chunks (blocks) that share the slots of one virtual chunk.
        mapping: "consecutive" or "interleaved" chunks in a virtual one.
        refill: the chunk that fills an empty slot: "max_fill", or any at "random".
        ties: between chunks that fill equally many: "random" or "first".
        slot_classes: positions of a chunk fall into this many classes that may answer for each
            other; by default each position is its own, as in the papers.
        nodes: homes of virtual chunks.
        prefetch: requests in the window of a remote read; 0 for none.
        remote_limit: bytes of remote slots that a node may hold; 0 for no limit.
        memory: bytes that may be resident; slots stay empty when it is full. 0 for no limit.
        block_samples: samples in a chunk; by default the dataset's own blocks, or runs of about
            1 MiB.
    """

    name: ClassVar[str] = "redox"
    chunks_per_virtual: int = 10
    mapping: str = "consecutive"
    refill: str = "max_fill"
    ties: str = "random"
    slot_classes: int = 0
    nodes: int = 1
    prefetch: int = 0
    remote_limit: int | str = 0
    memory: int | str = 0
    block_samples: int | None = None

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        choice("mapping", self.mapping, ("consecutive", "interleaved"))
        choice("refill", self.refill, ("max_fill", "random"))
        choice("ties", self.ties, ("random", "first"))
        parameters: dict[str, int | str] = {
            "chunks_per_virtual": integer(
                "chunks_per_virtual", self.chunks_per_virtual, 1, 2**31 - 1
            ),
            "mapping": self.mapping,
            "refill": self.refill,
            "ties": self.ties,
            "slot_classes": integer("slot_classes", self.slot_classes, 0, 2**31 - 1),
            "nodes": integer("nodes", self.nodes, 1, 2**20),
            "prefetch": integer("prefetch", self.prefetch, 0, 2**31 - 1),
            "remote_bytes": _bytes("remote_limit", self.remote_limit),
            "memory_bytes": _bytes("memory", self.memory),
        }
        return _core.OrderSpec(self.name, parameters | _block_samples(self.block_samples))


_NAMED: dict[str, type[Order]] = {each.name: each for each in (Exact, Batch, Epoch, Redox)}


def as_order(order: Order | str) -> Order:
    """An order, or the one of a name with its defaults; else an error that names the argument."""
    if isinstance(order, Order):
        return order
    if isinstance(order, str):
        return _NAMED[choice("order", order, tuple(_NAMED))]()
    raise InvalidArgumentError(
        f"order: got {order!r}, must be one of {', '.join(map(repr, _NAMED))} or of headrace.orders"
    )


def _table(name: str, values: Sequence[int] | NDArray[Any] | None) -> NDArray[np.uint32] | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(
            f"{name}: got an array of {array.dtype} of shape {array.shape}, must be integers, "
            "one a sample"
        )
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < 2**32:
        raise InvalidArgumentError(
            f"{name}: from {array.min()} to {array.max()}, must be in [0, 2**32)"
        )
    return np.ascontiguousarray(array, dtype=np.uint32)


def _block_samples(value: int | None) -> dict[str, int | str]:
    return {} if value is None else {"block_samples": integer("block_samples", value, 1, 2**32 - 1)}


def _bytes(name: str, value: int | str) -> int:
    return integer(name, parse_bytes(value, name), 0, _BYTES_MAX)


def _pool_bytes(pool: int | str, dataset: Dataset, block_samples: int) -> int:
    share = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", str(pool))
    if share is None:
        return integer("pool", parse_bytes(pool, "pool"), 1, _BYTES_MAX)
    if not 0 < float(share[1]) <= 1000:
        raise InvalidArgumentError(f"pool: got {pool!r}, must be above 0 % and at most 1000 %")
    whole = _core.resident_bytes(dataset.index, block_samples)
    return max(1, int(whole * float(share[1]) / 100))


def _permille(name: str, value: float, most: float) -> int:
    if isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidArgumentError(f"{name}: got {value!r}, must be a share in [0, {most}]")
    return round(value * 1000)
