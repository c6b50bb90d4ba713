"""Orders: they decide which rank gets which sample when (`headrace docs orders`).

>>> hr.Loader(ds, order="epoch")                          # with its defaults
>>> hr.Loader(ds, order=hr.orders.Epoch(pool="2GiB"))     # or spelled out
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import choice, flag, integer, shown
from headrace._dataset import Dataset, Mixture, left_out_of
from headrace._signature import named_fields
from headrace._units import parse_bytes
from headrace.errors import InvalidArgumentError

__all__ = ["Batch", "Epoch", "Exact", "Order", "Redox", "dealt_homes"]

_BYTES_MAX = 2**62
_HOMES_MAX = 16  # of one sample
_CHUNKS_MAX = 2**31 - 1
_NODES_MAX = 4096  # that are homes
_PLACEMENT_STREAM = 7  # of random numbers: `headrace docs orders`
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


class Order(ABC):
    """The base of the classes that `Loader(order=...)` takes besides a name."""

    name: ClassVar[str]
    """The name in the core's table; by default the class's name in lower case."""

    added: ClassVar[Mapping[str, int | str]] = {"bijection_from": 2**27 + 1}
    """Parameters that were added later, with their values for older states."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Names that parameters have in older states, with those that they have now."""

    words: ClassVar[Mapping[str, str]] = {}
    """A paper's words for parameters, as `headrace order --set` takes them."""

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = cls.__name__.lower()

    @abstractmethod
    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        """The core's form of the order: the given parameters, checked for `dataset`."""


@named_fields
@dataclass(frozen=True, kw_only=True)
class Exact(Order):
    """Every sample at the position that the seed, or the sampler, gives it."""

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        return _core.OrderSpec(self.name, {})


@named_fields
@dataclass(frozen=True, kw_only=True)
class Batch(Order):
    """The global batches of `exact`; the loader chooses which rank gets which sample of a batch.

    A sample goes to its home node, if there is room; costs are balanced over ranks.

    Args:
        homes: for each sample the number of its nearest node, or an array of shape (samples, k)
            with up to 16 nodes; -1, or any number that is not a node, means none. `dealt_homes`
            makes such a table. By default no sample has a home.
        costs: for each sample an integer below 2**32, in any unit; "bytes" (the default) uses the
            stored bytes, None makes all costs equal.
        ranks_per_node: rank r is on node r // ranks_per_node; by default one.
    """

    homes: Sequence[int] | NDArray[Any] | None = None
    costs: Sequence[int] | NDArray[Any] | Literal["bytes"] | None = "bytes"
    ranks_per_node: int | None = None

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        costs = self.costs
        if isinstance(costs, str):
            choice("costs", costs, ("bytes",), ", or numbers, one a sample")
            costs = costs_in_bytes(dataset)
        return _core.OrderSpec(
            self.name,
            _integers(ranks_per_node=(self.ranks_per_node, 1, 2**20)),
            homes=_table("homes", _homes(self.homes, len(dataset))),
            costs=_table("costs", costs),
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class Epoch(Order):
    """Each sample once an epoch, in an order that reads every block from storage only once.

    Blocks are read into pools of bounded memory; each row is drawn from a pool at random.
    ``headrace order`` measures how good that shuffle is.

    Args:
        pool: bytes of all pools of the job, such as 2 * 2**30, "2GiB", or "10%" of the dataset; by
            default a tenth to a quarter of it, less if the ranks have less memory.
        pools: number of pools; by default 48, fewer for a small dataset, or a multiple of the
            number of ranks if that does not divide 48. Ranks share the work well if their number
            divides it.
        join_share: share of a pool that is drawn between the request of a block and the first draw
            from it, so that slow storage never changes the order; by default 0.25.
        first_fill: share of the pool that the first batch of a run waits for; the rest joins as
            batches are taken. By default 64 MiB, and the rest joins sooner.
        block_samples: neighbours that are read together; by default the dataset's own blocks, or
            runs of about 1 MiB.
        homes: number of nodes on whose own disks the blocks lie: in home folders or, without these,
            block i on node i modulo this number; or an array with the node of each sample, the
            same for a whole block. On this number of nodes each reads only its own blocks. By
            default one.
    """

    added: ClassVar[Mapping[str, int | str]] = {
        **Order.added,
        "first_join_permille": 0,
        "homes": 1,
        "home_table": "none",
    }
    pool: int | str | None = None
    pools: int | None = None
    join_share: float | None = None
    first_fill: float | None = None
    block_samples: int | None = None
    homes: int | Sequence[int] | NDArray[Any] | None = None

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        parameters = _integers(
            block_samples=(self.block_samples, 1, 2**32 - 1), pools=(self.pools, 1, 2**32 - 1)
        )
        if self.pool is not None:
            block_samples = self.block_samples or 0
            parameters["pool_bytes"] = _share_bytes("pool", self.pool, dataset, block_samples)
        if self.join_share is not None:
            parameters["join_permille"] = _permille("join_share", self.join_share, 0.9)
        if self.first_fill is not None:
            parameters["first_fill_permille"] = _permille("first_fill", self.first_fill, 1)
        if self.homes is None:
            return _core.OrderSpec(self.name, parameters)
        count, table = _block_homes(self.homes, len(dataset))
        parameters["homes"] = count
        return _core.OrderSpec(self.name, parameters, homes=table)


@named_fields
@dataclass(frozen=True, kw_only=True)
class Redox(Order):
    """The slot protocol of the papers Redox and Brand, for comparison.

    Args:
        chunks_per_virtual: physical chunks (blocks) that share the slots of one virtual chunk; by
            default 10, more if the slots do not fit the memory otherwise.
        slots: memory of the slots on all nodes together, in place of `chunks_per_virtual`: bytes
            (Brand's C, which M = C / d samples of mean size fit), "2GiB", or "10%" of the dataset.
        mapping: whether a virtual chunk has "consecutive" (the default) or "interleaved" chunks.
        refill: the chunk that fills an empty slot: "max_fill" (the default), or any at "random".
        ties: between chunks that fill equally many: "random" (the default) or "first".
        slot_classes: number of classes of a chunk's positions; positions of one class are
            interchangeable. By default each position is its own class, as in the papers.
        nodes: homes of virtual chunks; by default one. In a job of several nodes it must be their
            number.
        prefetch: requests in the window of a remote read; by default none.
        remote_limit: bytes of remote slots that each node may hold; by default no limit or, where
            nodes exchange samples, a tenth of the memory.
        memory: bytes that may be resident on all nodes together; slots stay empty when it is full.
            By default no limit.
        read: whether a chunk is read whole, as in the papers ("chunk"), or only those of its
            samples that get a slot ("kept", the default).
        framing: whether an answer to another node and what is sent along with it are "one" parcel,
            as in Redox (the default), or "split" in two, as in Brand: the second is sent when no
            answer that a request waits for is ready.
        remap: whether chunks are dealt to virtual chunks anew each epoch, those of each home among
            themselves; by default they stay.
        arrival: whether the requests of the nodes in a step arrive in random order, as in the
            papers' own runs; by default in order of rank.
        fill_ahead: refused if true: an epoch would depend on all earlier ones.
        block_samples: samples in a chunk; by default the dataset's own blocks; where it has
            none, the size that `EngineOptions(profile=)` says is read fastest, or about 1 MiB.
    """

    added: ClassVar[Mapping[str, int | str]] = {
        **Order.added,
        "read": "kept",
        "framing": "one",
        "remap": 0,
        "arrival": 0,
        "fill_ahead": 0,
        "home_table": "none",
    }
    renamed: ClassVar[Mapping[str, str]] = {"homes": "home_table"}
    words: ClassVar[Mapping[str, str]] = {
        "K": "block_samples",
        "N": "nodes",
        "P": "prefetch",
        "PCS": "chunks_per_virtual",
        "M": "virtual_chunks",
        "C": "slots",
    }
    chunks_per_virtual: int | None = None
    slots: int | str | None = None
    mapping: Literal["consecutive", "interleaved"] | None = None
    refill: Literal["max_fill", "random"] | None = None
    ties: Literal["random", "first"] | None = None
    slot_classes: int | None = None
    nodes: int | None = None
    prefetch: int | None = None
    remote_limit: int | str | None = None
    memory: int | str | None = None
    read: Literal["kept", "chunk"] | None = None
    framing: Literal["one", "split"] | None = None
    remap: bool | None = None
    arrival: bool | None = None
    fill_ahead: bool | None = None
    block_samples: int | None = None

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        parameters = _integers(
            chunks_per_virtual=(self.chunks_per_virtual, 1, _CHUNKS_MAX),
            slot_classes=(self.slot_classes, 0, 2**31 - 1),
            nodes=(self.nodes, 1, _NODES_MAX),
            prefetch=(self.prefetch, 0, 2**31 - 1),
            block_samples=(self.block_samples, 1, 2**32 - 1),
        )
        if self.slots is not None:
            if self.chunks_per_virtual is not None:
                raise InvalidArgumentError(
                    f"slots: got {self.slots!r}, and chunks_per_virtual={self.chunks_per_virtual}, "
                    "which says the same in chunks; give one of the two"
                )
            slots = _share_bytes("slots", self.slots, dataset, self.block_samples or 0)
            whole = _core.resident_bytes(dataset.index, self.block_samples or 0)
            parameters["chunks_per_virtual"] = chunks_of_slots(whole, slots)
        if self.mapping is not None:
            parameters["mapping"] = choice("mapping", self.mapping, ("consecutive", "interleaved"))
        if self.refill is not None:
            parameters["refill"] = choice("refill", self.refill, ("max_fill", "random"))
        if self.ties is not None:
            parameters["ties"] = choice("ties", self.ties, ("random", "first"))
        if self.read is not None:
            parameters["read"] = choice("read", self.read, ("kept", "chunk"))
        if self.framing is not None:
            parameters["framing"] = choice("framing", self.framing, ("one", "split"))
        for name in ("remap", "arrival", "fill_ahead"):
            value = getattr(self, name)
            if value is not None:
                parameters[name] = int(flag(name, value))
        if self.remote_limit is not None:
            parameters["remote_bytes"] = _bytes("remote_limit", self.remote_limit)
        if self.memory is not None:
            parameters["memory_bytes"] = _bytes("memory", self.memory)
        return _core.OrderSpec(self.name, parameters)


def chunks_of_slots(total_bytes: int, slots: int) -> int:
    """Chunks of a virtual one whose slots take so many bytes: `total_bytes` are those of all
    samples. A share of them was rounded down to whole bytes."""
    return min(-(-total_bytes // (slots + 1)), _CHUNKS_MAX)


class _Plain(Order):
    """An order without a class here, with its defaults."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name

    def to_core(self, dataset: Dataset) -> _core.OrderSpec:
        return _core.OrderSpec(self.name, {})


_NAMED: dict[str, type[Order]] = {kind.name: kind for kind in (Exact, Batch, Epoch, Redox)}


def order_class(order: str) -> type[Order] | None:
    """The class of an order; None: it has none here."""
    return _NAMED.get(order)


def added_parameters(order: str) -> dict[str, int | str]:
    """Parameters that were added to the order later, with their values for older states."""
    return dict(_NAMED[order].added) if order in _NAMED else {}


def parameters_now(order: str, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a state of any age: with today's names, and those added since."""
    renamed = _NAMED[order].renamed if order in _NAMED else {}
    return added_parameters(order) | {renamed.get(key, key): value for key, value in saved.items()}


def dealt_homes(samples: int, nodes: int, copies: int = 1, *, seed: int = 0) -> NDArray[np.uint32]:
    """Homes for `Batch`: `copies` different nodes for each sample, drawn at random.

    The numbers of samples of any two nodes differ by at most `copies`. The same arguments give the
    same table everywhere: a job that continues on another number of nodes passes the number that it
    began with. Choose as many copies as the tiers of all nodes hold.
    """
    samples = integer("samples", samples, 1, 2**32 - 2)
    nodes = integer("nodes", nodes, 1, 2**20)
    copies = integer("copies", copies, 1, min(nodes, _HOMES_MAX))
    seed = integer("seed", seed, 0, 2**64 - 1)
    turns = _core.permutation(samples, seed, 0, _PLACEMENT_STREAM)
    homes = np.empty((samples, copies), dtype=np.uint32)
    homes[:, 0] = turns % nodes
    for copy in range(1, copies):
        homes[:, copy] = (turns + 1 + (turns // nodes + copy - 1) % (nodes - 1)) % nodes
    return homes


def costs_in_bytes(dataset: Dataset) -> NDArray[np.uint32] | None:
    """The default costs of `Batch`: the stored bytes of each sample."""
    return _table("costs", _core.stored_bytes(dataset.index))


def core_order(order: Order, dataset: Dataset) -> _core.OrderSpec:
    """The core's form of `order`, which may be a class of the user's own."""
    spec: Any = order.to_core(dataset)
    if not isinstance(spec, _core.OrderSpec):
        raise InvalidArgumentError(
            f"order: {type(order).__name__}.to_core() gave {spec!r}, must give a _core.OrderSpec"
        )
    if isinstance(dataset, Mixture):
        return spec.of_mixture(dataset.core)
    left_out = left_out_of(dataset)
    return spec if left_out is None else spec.leaving_out(left_out)


def as_order(order: Order | str) -> Order:
    """The order for an argument: an order, or a name for one with its defaults; else an error."""
    if isinstance(order, Order):
        return order
    if isinstance(order, str):
        choice("order", order, tuple(_core.order_names()))
        return _NAMED[order]() if order in _NAMED else _Plain(order)
    raise InvalidArgumentError(
        f"order: got {order!r}, must be one of {', '.join(map(repr, _core.order_names()))} or of "
        "headrace.orders"
    )


def _integers(**parameters: tuple[int | None, int, int]) -> dict[str, int | str]:
    """The given ones of parameters, as (value, least, most) by name; checked."""
    return {
        name: integer(name, value, least, most)
        for name, (value, least, most) in parameters.items()
        if value is not None
    }


def _array(name: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{name}: got rows of different lengths: {error}; make them equal"
        ) from None
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(
            f"{name}: got an array of {array.dtype}, must be whole numbers, one a sample"
        )
    return array


def _homes(values: Any, samples: int) -> NDArray[Any] | None:
    if values is None:
        return None
    array = _array("homes", values)
    if array.ndim not in (1, 2) or len(array) != samples:
        raise InvalidArgumentError(
            f"homes: got an array of shape {array.shape}, must be ({samples},) or ({samples}, k) "
            f"for {samples} samples"
        )
    if np.issubdtype(array.dtype, np.signedinteger):
        array = np.where(array == -1, 2**32 - 1, array.astype(np.int64))
    return array.reshape(-1)


def _block_homes(values: Any, samples: int) -> tuple[int, NDArray[np.uint32] | None]:
    """The number of homes, and the home of each sample; no table: blocks are dealt in turn."""
    if isinstance(values, (int, np.integer)):
        return integer("homes", values, 1, _NODES_MAX), None
    if np.ndim(values) == 0:
        raise InvalidArgumentError(
            f"homes: got {shown(values)}, must be the number of nodes, or the node of each of "
            f"{samples} samples"
        )
    table = _table("homes", values)
    assert table is not None
    if len(table) != samples:
        raise InvalidArgumentError(
            f"homes: got {len(table)} numbers, must be the node of each of {samples} samples"
        )
    return integer("homes", int(table.max(initial=0)) + 1, 1, _NODES_MAX), table


def _table(name: str, values: Any) -> NDArray[np.uint32] | None:
    if values is None:
        return None
    array = _array(name, values)
    if array.ndim != 1:
        raise InvalidArgumentError(
            f"{name}: got an array of shape {array.shape}, must be one number a sample"
        )
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < 2**32:
        raise InvalidArgumentError(
            f"{name}: from {array.min()} to {array.max()}, must be in [0, 2**32)"
        )
    return np.ascontiguousarray(array, dtype=np.uint32)


def _bytes(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, str):
        value = parse_bytes(value, name)
    return integer(name, value, least, _BYTES_MAX)


def _share_bytes(name: str, value: Any, dataset: Dataset, block_samples: int) -> int:
    share = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if share is None:
        if isinstance(value, str) and "%" in value:
            raise InvalidArgumentError(f"{name}: got {value!r}, must be bytes or a share as '10%'")
        return _bytes(name, value, 1)
    if not 0 < float(share[1]) <= 1000:
        raise InvalidArgumentError(f"{name}: got {value!r}, must be above 0 % and at most 1000 %")
    whole = _core.resident_bytes(dataset.index, block_samples)
    return max(1, int(whole * float(share[1]) / 100))


def _permille(name: str, value: Any, most: float) -> int:
    number = value if isinstance(value, (int, float, np.integer, np.floating)) else None
    if number is None or isinstance(value, bool) or not 0 <= number <= most:
        raise InvalidArgumentError(f"{name}: got {value!r}, must be a share in [0, {most}]")
    return round(float(number) * 1000)
