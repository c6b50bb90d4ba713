"""A machine that loads a dataset for training, as a scenario: by its profile, or by a scenario that
describes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from headrace import _core, tiers
from headrace._arguments import instance, shown
from headrace._dataset import Dataset
from headrace._signature import named_arguments, named_fields
from headrace._toml import TomlTable
from headrace._units import counted, format_bytes
from headrace.errors import InvalidArgumentError
from headrace.profile import EpochWork, MachineProfile, TierWork, predict_epoch
from headrace.profile._machine import measuring
from headrace.profile._predict import BLOCK_READS_IN_FLIGHT, sample_reads_in_flight
from headrace.simulation.bounds import BOUNDED
from headrace.simulation.checked import Check, Checked
from headrace.simulation.scenario import (
    BYTES_MAX,
    EPOCHS_MAX,
    NODES_MAX,
    RANKS_MAX,
    SAMPLES_MAX,
    SEED_MAX,
    THREADS_MAX,
    IndexSizes,
    Scenario,
    Staging,
    StorageRates,
    TierRates,
)

PREFETCH = 64
"""Batches that a loader has ahead if nobody says how many, as memory allows."""
_PREFETCH_MAX = 2**16
_NO_LIMIT = 1e15  # a rate that nothing reaches


def _sizes(table: TomlTable, key: str) -> npt.NDArray[np.float64]:
    sizes: npt.NDArray[Any] = table.instance(key, np.ndarray)
    is_right = sizes.ndim == 1 and sizes.size and sizes.dtype.kind in "iuf"
    if not (is_right and np.isfinite(sizes).all() and sizes.min() >= 0 and sizes.any()):
        raise InvalidArgumentError(
            f"Workload.{key}: got {shown(sizes)}, must be an array of one dimension with the bytes "
            "of each sample, finite and at least 0, and not all 0"
        )
    return np.asarray(sizes, np.float64)


@named_fields
@dataclass(frozen=True, kw_only=True, eq=False)
class Workload(Checked):
    """A job that a machine is to load a dataset for. `Workload.of` makes one."""

    dataset: str
    """Its path."""
    fingerprint: str
    sizes: npt.NDArray[np.float64]
    """Stored bytes of each sample."""
    block_bytes: float | None
    """Mean bytes of the dataset's own blocks; None: it has none."""
    batch_size: int
    """Of a rank."""
    memory: int
    """Bytes of a node, with its tiers in memory."""
    nodes: int = 1
    ranks: int = 1
    """Of a node."""
    epochs: int = 3
    seed: int = 0
    sample_rate: float | None = None
    """Samples a second that a node trains on, or"""
    compute_rate: float | None = None
    """bytes of samples; None: training takes no time."""
    files: bool = False
    """Whether each sample is a file of its own."""

    _checks: ClassVar[Mapping[str, Check]] = {
        "dataset": lambda table, key: table.text(key),
        "fingerprint": lambda table, key: table.text(key),
        "sizes": _sizes,
        "block_bytes": lambda table, key: table.amount(key, BYTES_MAX),
        "batch_size": lambda table, key: table.integer(key, 1, SAMPLES_MAX),
        "memory": lambda table, key: round(table.amount(key, BYTES_MAX)),
        "nodes": lambda table, key: table.integer(key, 1, NODES_MAX),
        "ranks": lambda table, key: table.integer(key, 1, RANKS_MAX),
        "epochs": lambda table, key: table.integer(key, 1, EPOCHS_MAX),
        "seed": lambda table, key: table.integer(key, 0, SEED_MAX),
        "sample_rate": lambda table, key: table.positive(key),
        "compute_rate": lambda table, key: table.rate(key),
        "files": lambda table, key: table.flag(key),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_rate is not None and self.compute_rate is not None:
            raise InvalidArgumentError(
                f"Workload: got sample_rate {self.sample_rate:g} and compute_rate "
                f"{self.compute_rate:g}, must be one of them at most"
            )
        step = self.batch_size * self.ranks * self.nodes
        if step > len(self.sizes):
            raise InvalidArgumentError(
                f"advising for {self.dataset}: a step of {counted(self.nodes * self.ranks, 'rank')}"
                f" with a batch_size of {self.batch_size} takes more than its "
                f"{counted(len(self.sizes), 'sample')}; lower one of them"
            )

    @classmethod
    def of(cls, dataset: Dataset, **job: Any) -> Workload:
        """Of a dataset that was opened. `job`: from `batch_size` on.

        Raises: InvalidArgumentError: a value is wrong, or the dataset has fewer samples than a step
            takes.
        """
        instance("Workload.of: dataset", dataset, Dataset, ", as headrace.open(path) gives")
        blocks = dataset.index.blocks()[4] if dataset.index.block_count else None
        return cls(
            dataset=dataset.path,
            fingerprint=dataset.fingerprint,
            sizes=np.asarray(_core.stored_bytes(dataset.index), np.float64),
            block_bytes=None if blocks is None else max(float(blocks.mean()), 1.0),
            files=dataset.format_row.file_a_sample,
            **job,
        )

    @property
    def sample_bytes(self) -> float:
        """Mean stored bytes of a sample."""
        return max(1.0, float(self.sizes.mean()))

    @property
    def step_bytes(self) -> float:
        """Stored bytes of the batches of a step, of a node."""
        return self.sample_bytes * self.batch_size * self.ranks


@named_fields
@dataclass(frozen=True, kw_only=True)
class TierChoice(Checked):
    """A tier that a node may have."""

    name: str
    """"ram", a folder, or a tier's name in a scenario."""
    capacity: int
    """Bytes of a node."""

    _checks: ClassVar[Mapping[str, Check]] = {
        "name": lambda table, key: table.text(key),
        "capacity": lambda table, key: round(table.amount(key, BYTES_MAX, zero=True)),
    }

    @property
    def in_memory(self) -> bool:
        """Whether it takes of the job's memory."""
        return tiers.tier_key(self.name) == tiers.RAM


@named_fields
@dataclass(frozen=True, kw_only=True)
class Setup(Checked):
    """How the loaders of a node are set up."""

    order: str
    block_bytes: int | None = None
    """Neighbours that the order reads together; None: it reads single samples."""
    tiers: tuple[TierChoice, ...] = ()
    """Fastest first."""
    threads: int = 1
    """Of a node, that decode."""
    prefetch: int = PREFETCH

    _checks: ClassVar[Mapping[str, Check]] = {
        "order": lambda table, key: table.choice(key, BOUNDED),
        "block_bytes": lambda table, key: table.integer(key, 1, BYTES_MAX),
        "tiers": lambda table, key: table.instances(key, TierChoice),
        "threads": lambda table, key: table.integer(key, 1, THREADS_MAX),
        "prefetch": lambda table, key: table.integer(key, 1, _PREFETCH_MAX),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, count in Counter(tiers.tier_key(tier.name) for tier in self.tiers).items():
            if count > 1:
                raise InvalidArgumentError(
                    f"Setup.tiers: got {name!r} {count} times, must be tiers of different names"
                )

    def block_samples(self, work: Workload) -> int | None:
        """Of a block; None: single samples."""
        if self.block_bytes is None:
            return None
        return max(1, round(self.block_bytes / work.sample_bytes))

    @property
    def ram_bytes(self) -> int:
        """Of tiers in memory."""
        return sum(tier.capacity for tier in self.tiers if tier.in_memory)


class Machine(Protocol):
    """What a job runs on."""

    @property
    def threads(self) -> int:
        """That decode, at most."""

    @property
    def block_bytes(self) -> Sequence[int] | None:
        """Sizes of reads to try; None: each sample is a file, so that no read holds several."""

    def tier_key(self, name: str) -> str:
        """By which it finds a tier."""

    def scenario(self, work: Workload, setup: Setup) -> Scenario:
        """The job on it.

        Raises: InvalidArgumentError: it does not know a rate that the setup needs.
        """


def memory_of(machine: MachineProfile | Scenario, nodes: int) -> int:
    """Bytes of a node's memory, of a scenario with its tiers there."""
    if isinstance(machine, MachineProfile):
        return machine.host.memory_bytes
    in_memory = [tier for tier in machine.tiers if tiers.tier_key(tier.name) == tiers.RAM]
    return machine.staging.capacity + sum(int(tier.of_node(nodes)[0]) for tier in in_memory)


class ProfiledMachine:
    """By rates that `headrace profile` measured."""

    def __init__(self, profile: MachineProfile) -> None:
        self.profile = profile
        self.threads = profile.host.cpus

    @property
    def block_bytes(self) -> Sequence[int] | None:
        """The measured sizes."""
        storage = self.profile.storage
        return [rate.read_bytes for rate in storage.rates] if storage.reads == "ranges" else None

    def tier_key(self, name: str) -> str:
        return tiers.tier_key(name)

    def scenario(self, work: Workload, setup: Setup) -> Scenario:
        return machine_scenario(self.profile, work, setup)


class DescribedMachine:
    """By a scenario's storage, network, compute, staging and tiers."""

    def __init__(self, described: Scenario, *, files: bool) -> None:
        self.described = described
        self.threads = described.staging.threads
        self.block_bytes: Sequence[int] | None = None if files else [2**18, 2**20, 2**22]

    def tier_key(self, name: str) -> str:
        return name.lower()

    def scenario(self, work: Workload, setup: Setup) -> Scenario:
        given = self.described
        by_name = {self.tier_key(tier.name): tier for tier in given.tiers}
        for tier in setup.tiers:
            if self.tier_key(tier.name) not in by_name:
                there = ", ".join(tier.name for tier in given.tiers) or "none"
                raise InvalidArgumentError(
                    f"tier {tier.name}: the scenario has no rate of it; its tiers are: {there}"
                )
        # Threads that are left out do not write into staging.
        rate = given.staging.rate * setup.threads / given.staging.threads
        return replace(
            given,
            **_job(work),
            staging=Staging(work.memory - setup.ram_bytes, setup.threads, rate),
            tiers=tuple(
                _of_job(by_name[self.tier_key(tier.name)], tier, work.nodes) for tier in setup.tiers
            ),
            printed={},
        )


def _of_job(given: TierRates, tier: TierChoice, nodes: int) -> TierRates:
    """With the choice's capacity, which is of a node."""
    return replace(given, capacity=tier.capacity * (nodes if given.shared else 1))


@named_arguments
def machine_scenario(profile: MachineProfile, work: Workload, setup: Setup) -> Scenario:
    """The job on nodes that are as the profile says.

    Storage gives its rate for the order's reads; where single samples come slower than that, it
    serves so many reads a second.

    Raises: InvalidArgumentError: the profile has no tier on the disk of a folder, or no rate
        between nodes; tiers take all memory.
    """
    instance("machine_scenario: profile", profile, MachineProfile)
    instance("machine_scenario: work", work, Workload)
    instance("machine_scenario: setup", setup, Setup)
    if setup.ram_bytes >= work.memory:
        raise InvalidArgumentError(
            f"machine_scenario: setup.tiers: take {format_bytes(setup.ram_bytes)} of memory, must "
            f"be less than work.memory, {format_bytes(work.memory)}"
        )
    rates = _Rates(profile, work)
    threads = setup.threads
    seconds = threads / rates.decode(threads)
    if setup.block_bytes is not None:  # Blocks are copied once more.
        seconds += threads / rates.copy(threads)
    return Scenario(
        title=f"{work.dataset} on the machine of its profile",
        **_job(work),
        preprocess_rate=1 / seconds,
        storage=rates.storage(setup.block_bytes),
        network_rate=rates.network() if work.nodes > 1 and setup.tiers else _NO_LIMIT,
        staging=Staging(work.memory - setup.ram_bytes, threads, _NO_LIMIT),
        tiers=tuple(rates.tier(tier) for tier in setup.tiers),
    )


def _job(work: Workload) -> dict[str, Any]:
    """What a scenario has of it."""
    same = ("nodes", "ranks", "batch_size", "epochs", "seed", "sample_rate")
    no_limit = _NO_LIMIT if work.sample_rate is None else None
    return {name: getattr(work, name) for name in same} | {
        "sizes": IndexSizes(work.dataset),
        "compute_rate": work.compute_rate or no_limit,
    }


class _Rates:
    """Bytes a second, by the model of `headrace.profile`."""

    def __init__(self, profile: MachineProfile, work: Workload) -> None:
        self._profile = profile
        self._size = work.sample_bytes
        self._nodes = work.nodes

    def _need(self, name: str, work: EpochWork, profile: MachineProfile | None = None) -> float:
        return predict_epoch(profile or self._profile, work).needs[name]

    def decode(self, threads: int) -> float:
        """Of so many threads together."""
        amount = self._size * 1e6
        work = EpochWork(samples=1, decode_bytes=amount, threads=threads)
        return amount / self._need("decode", work)

    def copy(self, threads: int) -> float:
        amount = self._size * 1e6
        work = EpochWork(samples=1, copy_bytes=amount, threads=threads)
        return amount / self._need("copy", work)

    def _read(self, read_bytes: float, in_flight: int, nodes: int) -> float:
        """Of storage, all nodes together."""
        shared = self._profile.storage_is_shared
        work = EpochWork(
            samples=1,
            storage_reads=[(read_bytes, 1)],
            reads_in_flight=in_flight,
            storage_sharers=nodes if shared else 1,
        )
        return nodes * read_bytes / self._need("storage", work)

    def storage(self, block_bytes: int | None) -> StorageRates:
        readers = sorted({*(2**k for k in range(17) if 2**k < self._nodes), self._nodes})
        in_flight = sample_reads_in_flight(self._size)
        single = [self._read(self._size, in_flight, nodes) for nodes in readers]
        if block_bytes is None:
            large = max(self._size, _core.joined_read_bytes)  # neighbours
            rates = [self._read(large, in_flight, nodes) for nodes in readers]
        else:
            large = min(block_bytes, _core.block_read_bytes)  # larger ones come in pieces
            rates = [self._read(large, BLOCK_READS_IN_FLIGHT, nodes) for nodes in readers]
        if self._profile.storage.reads == "files":  # A sample is a read, whatever its neighbours.
            rates = single
        of_reads = max(single) < max(rates)
        return StorageRates(
            readers=tuple(map(float, readers)),
            rates=tuple(rates),
            reads_per_second=max(single) / self._size if of_reads else None,
            reads_in_flight=in_flight if block_bytes is None else None,
        )

    def tier(self, tier: TierChoice) -> TierRates:
        path = "" if tier.in_memory else tier.name
        core = tiers.CoreTier(path, tier.capacity, threads=1)
        with_tier = tiers.profile_with_tiers(self._profile, [core])
        work = EpochWork(samples=1, tiers=[TierWork(reads=[(self._size, 1)])])
        rate = self._size / self._need("tier 0", work, with_tier)
        return TierRates(tier.name, tier.capacity, threads=1, rate=rate)

    def network(self) -> float:
        if self._profile.link is None and self._profile.peer_bytes_per_second is None:
            raise InvalidArgumentError(
                f"tiers of {self._nodes} nodes: the profile has no rate between nodes; measure it "
                f"on all of them: {measuring(self._profile, '--links')}, or give [peers] to its "
                "file"
            )
        return self._size / self._need("peers", EpochWork(samples=1, peer_reads=[(self._size, 1)]))
