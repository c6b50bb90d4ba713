"""What is simulated: a dataset, a job, machines, and the policies that read; from a TOML file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import given_path
from headrace._dataset import open_dataset
from headrace._toml import TomlTable, read_toml
from headrace._units import counted
from headrace.errors import InvalidArgumentError, NotFoundError

SCENARIOS = Path(__file__).parent / "scenarios"
"""The files that Headrace ships: those of the papers."""
PLACED: str = _core.placements()[0]
"""The placement of samples in tiers, where nobody says another."""
SHARED: str = _core.lane_policies()[0]
"""What shares a node among its ranks, where nobody says another."""
T = TypeVar("T")
_NODES_MAX = 2**16
_RANKS_MAX = 1024
_SAMPLES_MAX = 2**32 - 2
_EPOCHS_MAX = 2**24 - 1
_THREADS_MAX = 2**16
_TIERS_MAX = 8
_BYTES_MAX = 2**60


def _some_bytes(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not sizes.any():
        raise InvalidArgumentError(
            f"dataset: all {counted(len(sizes), 'sample')} drawn have 0 bytes; lower "
            "deviation, or raise least; or give another index"
        )
    return sizes


@dataclass(frozen=True)
class Sizes:
    """Sizes of samples in bytes, drawn from a normal distribution."""

    samples: int
    mean: float
    deviation: float = 0
    """Standard deviation."""
    least: float = 0
    """Smaller ones are set to it."""

    def draw(self, seed: int) -> npt.NDArray[np.float64]:
        """The size of each sample; the same for the same seed and version of NumPy."""
        drawn = np.random.default_rng(seed).normal(self.mean, self.deviation, self.samples)
        return _some_bytes(np.maximum(drawn, self.least))


@dataclass(frozen=True)
class IndexSizes:
    """Sizes of the samples of a dataset."""

    index: str
    """A dataset, or its index file, as `headrace.open` takes them."""

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(open_dataset(self.index))

    def draw(self, seed: int) -> npt.NDArray[np.float64]:
        """The stored bytes of each sample, whatever the seed.

        Raises: what `headrace.open` does.
        """
        del seed
        sizes: npt.NDArray[np.float64] = np.asarray(
            _core.stored_bytes(open_dataset(self.index).index), np.float64
        )
        return _some_bytes(sizes)


SHARED_BY = ("reads", "nodes")


@dataclass(frozen=True)
class StorageRates:
    """Storage that all nodes share. Rates are bytes a second."""

    readers: tuple[float, ...]
    """Nodes that read it at the same time, ascending."""
    rates: tuple[float, ...]
    """Of all these nodes together; linear in between, constant beyond."""
    link_rate: float | None = None
    """Of one node's link to it; None: no limit."""
    shared_by: str = "reads"
    """"reads": of the nodes that read, each has its part, which its reads divide. "nodes": each
    read has all of its node's part, as the papers' results have it."""
    reads_per_second: float | None = None
    """Of all nodes together, where storage gives its best rate, in proportion where it gives less;
    None: no limit. Only with `shared_by` "reads"."""
    reads_in_flight: int | None = None
    """Of a node; None: 64 as a loader, or one a thread where nodes share."""
    latency: float = 0
    """Seconds of each read before its bytes come."""


@dataclass(frozen=True)
class Staging:
    """The memory of a node that samples are fetched into, in the order of their use."""

    capacity: int
    """Bytes."""
    threads: int
    rate: float
    """Bytes a second that the threads together write."""


@dataclass(frozen=True)
class TierRates:
    """A cache of a node, or one that all nodes share."""

    name: str
    capacity: int
    """Bytes."""
    threads: int
    """Of a node."""
    rate: float
    """Bytes a second that the threads together read."""
    shared: bool = False
    """A burst buffer: `capacity` and `rate` are those of all nodes together. Each has its even
    part of the capacity, and gets what is in another's part over the network."""

    def of_node(self, nodes: int) -> tuple[float, int, float, bool]:
        """Capacity, threads and rate of a node's part; whether it is shared."""
        parts = nodes if self.shared else 1
        return self.capacity / parts, self.threads, self.rate / parts, self.shared


@dataclass(frozen=True)
class Scenario:
    """A job on a cluster. Rates are bytes a second."""

    title: str
    sizes: Sizes | IndexSizes
    nodes: int
    batch_size: int
    """Of a rank."""
    compute_rate: float | None
    """Of a node; None: `sample_rate` says how fast it computes."""
    preprocess_rate: float
    """Of a node."""
    storage: StorageRates
    network_rate: float
    """Of a node, from the others."""
    staging: Staging
    tiers: tuple[TierRates, ...]
    """Fastest first."""
    sample_rate: float | None = None
    """Samples a second that a node computes on, whatever their bytes; in place of `compute_rate`.
    """
    ranks: int = 1
    """Of a node; they share its rate of computing."""
    placement: str = PLACED
    """By which Headrace's orders keep samples in tiers."""
    allreduce: float = 0
    """Seconds that follow the computing of each step, on all nodes together."""
    allreduce_noise: float = 0
    """By how much of them an allreduce is longer if samples keep the network busy during the step,
    in proportion."""
    schedule: str = SHARED
    """By which Headrace's orders share a node's reads and decode threads among its ranks."""
    epochs: int = 1
    seed: int = 0
    printed: Mapping[str, float] = field(default_factory=dict)
    """Seconds of all epochs that a paper prints, by policy."""
    source: str = ""
    """Where the parameters are from."""


def load_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Reads a scenario file, or one that Headrace ships, by its name without `.toml`.

    Raises: NotFoundError, InvalidArgumentError: names file, line, key, value and what it must be.
    """
    name = given_path("scenario", path)
    shipped = SCENARIOS / f"{name}.toml"
    file = shipped if os.sep not in name and shipped.is_file() else Path(name)
    if not file.is_file():
        names = ", ".join(shipped_scenarios())
        what = "is no file" if file.exists() else "no such file"
        raise NotFoundError(
            f"scenario {name}: {what}, and none of those that Headrace ships; give the path of a "
            f"scenario's file or one of {names}"
        )
    return to_scenario(read_toml(file, "scenario"), str(file))


def shipped_scenarios() -> list[str]:
    """The names of the scenarios that Headrace ships."""
    return sorted(path.stem for path in SCENARIOS.glob("*.toml"))


def to_scenario(root: TomlTable, where: str) -> Scenario:
    """What a file says, checked. `where` names the file in errors.

    Raises: InvalidArgumentError
    """
    job, compute = root.table("job"), root.table("compute")
    scenario = Scenario(
        title=root.text("title"),
        source=root.text("source") if root.has("source") else "",
        epochs=root.integer("epochs", 1, _EPOCHS_MAX) if root.has("epochs") else 1,
        seed=root.integer("seed", 0, 2**63 - 1) if root.has("seed") else 0,
        sizes=_sizes(root.table("dataset")),
        nodes=job.integer("nodes", 1, _NODES_MAX),
        ranks=job.integer("ranks", 1, _RANKS_MAX) if job.has("ranks") else 1,
        placement=job.choice("placement", _core.placements()) if job.has("placement") else PLACED,
        schedule=job.choice("schedule", _core.lane_policies()) if job.has("schedule") else SHARED,
        batch_size=job.integer("batch_size", 1, _SAMPLES_MAX),
        compute_rate=compute.rate("rate") if compute.has("rate") else None,
        sample_rate=compute.positive("sample_rate") if compute.has("sample_rate") else None,
        preprocess_rate=compute.rate("preprocess_rate"),
        allreduce=compute.at_least("allreduce", 0) if compute.has("allreduce") else 0,
        allreduce_noise=(
            compute.at_least("allreduce_noise", 0) if compute.has("allreduce_noise") else 0
        ),
        storage=_storage(root.table("storage")),
        network_rate=_network(root.table("network")),
        staging=_staging(root.table("staging")),
        tiers=tuple(_tier(tier) for tier in root.tables("tiers", 0, _TIERS_MAX)),
        printed=_printed(root.table("printed")) if root.has("printed") else {},
    )
    compute.finish(one_of=("rate", "sample_rate"))
    for table in (job, root):
        table.finish()
    limit = scenario.storage.reads_per_second
    if limit is not None and scenario.storage.shared_by != "reads":
        raise InvalidArgumentError(
            f"{where}: storage.reads_per_second: got {limit:g} with shared_by 'nodes', which "
            "counts bytes alone; leave it out, or write shared_by = 'reads'"
        )
    _check_tier_names([tier.name for tier in scenario.tiers], where)
    ranks = scenario.nodes * scenario.ranks
    if ranks * scenario.batch_size > scenario.sizes.samples:
        raise InvalidArgumentError(
            f"{where}: job: {counted(ranks, 'rank')} with a batch_size of "
            f"{scenario.batch_size} take more than the {counted(scenario.sizes.samples, 'sample')} "
            "of the dataset in a step; lower one of them"
        )
    return scenario


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """The values of a scenario's file. Without what a paper prints."""
    storage = scenario.storage
    compute = {
        "preprocess_rate": scenario.preprocess_rate,
        "allreduce": scenario.allreduce,
        "allreduce_noise": scenario.allreduce_noise,
    }
    rates = {"rate": scenario.compute_rate, "sample_rate": scenario.sample_rate}
    compute |= {key: rate for key, rate in rates.items() if rate is not None}
    limits = {
        "link_rate": storage.link_rate,
        "reads_per_second": storage.reads_per_second,
        "reads_in_flight": storage.reads_in_flight,
    }
    return {
        "title": scenario.title,
        **({"source": scenario.source} if scenario.source else {}),
        "epochs": scenario.epochs,
        "seed": scenario.seed,
        "dataset": asdict(scenario.sizes),
        "job": {
            "nodes": scenario.nodes,
            "ranks": scenario.ranks,
            "batch_size": scenario.batch_size,
            "placement": scenario.placement,
            "schedule": scenario.schedule,
        },
        "compute": compute,
        "storage": {
            "readers": [int(count) if count == int(count) else count for count in storage.readers],
            "rates": list(storage.rates),
            "shared_by": storage.shared_by,
            "latency": storage.latency,
            **{key: limit for key, limit in limits.items() if limit is not None},
        },
        "network": {"rate": scenario.network_rate},
        "staging": dict(vars(scenario.staging)),
        "tiers": [dict(vars(tier)) for tier in scenario.tiers],
    }


def _sizes(table: TomlTable) -> Sizes | IndexSizes:
    if table.has("index"):
        of_index = IndexSizes(table.text("index"))
        table.finish(one_of=("index", "samples"))
        return of_index
    sizes = Sizes(
        samples=table.integer("samples", 1, _SAMPLES_MAX),
        mean=table.amount("mean", _BYTES_MAX),
        deviation=table.amount("deviation", _BYTES_MAX, zero=True) if table.has("deviation") else 0,
        least=table.amount("least", _BYTES_MAX, zero=True) if table.has("least") else 0,
    )
    table.finish()
    return sizes


def _storage(table: TomlTable) -> StorageRates:
    readers = table.ascending("readers")
    storage = StorageRates(
        readers=tuple(map(float, readers)),
        rates=tuple(table.rates("rates", len(readers))),
        link_rate=table.rate("link_rate") if table.has("link_rate") else None,
        shared_by=table.choice("shared_by", SHARED_BY) if table.has("shared_by") else SHARED_BY[0],
        reads_per_second=_optional(table, "reads_per_second", table.positive),
        reads_in_flight=_optional(
            table, "reads_in_flight", lambda key: table.integer(key, 1, _THREADS_MAX)
        ),
        latency=table.at_least("latency", 0) if table.has("latency") else 0,
    )
    table.finish()
    return storage


def _optional(table: TomlTable, key: str, read: Callable[[str], T]) -> T | None:
    return read(key) if table.has(key) else None


def _network(table: TomlTable) -> float:
    rate = table.rate("rate")
    table.finish()
    return rate


def _staging(table: TomlTable) -> Staging:
    staging = Staging(
        capacity=round(table.amount("capacity", _BYTES_MAX)),
        threads=table.integer("threads", 1, _THREADS_MAX),
        rate=table.rate("rate"),
    )
    table.finish()
    return staging


def _tier(table: TomlTable) -> TierRates:
    tier = TierRates(
        name=table.text("name"),
        capacity=round(table.amount("capacity", _BYTES_MAX, zero=True)),
        threads=table.integer("threads", 1, _THREADS_MAX),
        rate=table.rate("rate"),
        shared=table.has("shared") and table.flag("shared"),
    )
    table.finish()
    return tier


def _check_tier_names(names: Sequence[str], where: str) -> None:
    """By its name, in letters of either case, a sweep finds a tier."""
    for position, name in enumerate(names):
        if name.lower() in map(str.lower, names[:position]):
            raise InvalidArgumentError(
                f"{where}: tiers[{position}].name: got {name!r}, which another tier has; give each "
                "tier a name of its own"
            )


def _printed(table: TomlTable) -> dict[str, float]:
    printed = {name: table.positive(name) for name in table.names()}
    table.finish()
    return printed
