"""What is simulated: a dataset, a job, machines, and the policies that read; from a TOML file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import given_path, integer
from headrace._dataset import open_dataset
from headrace._signature import named_arguments, named_fields
from headrace._toml import TomlTable, read_toml
from headrace._units import counted
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.simulation.checked import Check, Checked, read, taken

SCENARIOS = Path(__file__).parent / "scenarios"
"""The files that Headrace ships: those of the papers."""
PLACED: str = _core.placements()[0]
"""The placement of samples in tiers, where nobody says another."""
SHARED: str = _core.lane_policies()[0]
"""What shares a node among its ranks, where nobody says another."""
NODES_MAX = 2**16
RANKS_MAX = 1024
SAMPLES_MAX = 2**32 - 2
EPOCHS_MAX = 2**24 - 1
THREADS_MAX = 2**16
BYTES_MAX = 2**60
SEED_MAX = 2**63 - 1
_TIERS_MAX = 8
_SECONDS_MAX = 86_400  # of a read, of a step's allreduce: more are other units


def _some_bytes(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not sizes.any():
        raise InvalidArgumentError(
            f"dataset: all {counted(len(sizes), 'sample')} drawn have 0 bytes; lower "
            "deviation, or raise least; or give another index"
        )
    return sizes


@named_fields
@dataclass(frozen=True)
class Sizes(Checked):
    """Sizes of samples in bytes, drawn from a normal distribution."""

    samples: int
    mean: float
    deviation: float = 0
    """Standard deviation."""
    least: float = 0
    """Smaller ones are set to it."""

    files: ClassVar[bool] = False
    """Whether each sample is a file of its own."""
    _checks: ClassVar[Mapping[str, Check]] = {
        "samples": lambda table, key: table.integer(key, 1, SAMPLES_MAX),
        "mean": lambda table, key: table.amount(key, BYTES_MAX),
        "deviation": lambda table, key: table.amount(key, BYTES_MAX, zero=True),
        "least": lambda table, key: table.amount(key, BYTES_MAX, zero=True),
    }

    def draw(self, seed: int) -> npt.NDArray[np.float64]:
        """The size of each sample; the same for the same seed and version of NumPy."""
        integer("Sizes.draw: seed", seed, 0, SEED_MAX)
        drawn = np.random.default_rng(seed).normal(self.mean, self.deviation, self.samples)
        return _some_bytes(np.maximum(drawn, self.least))


@named_fields
@dataclass(frozen=True)
class IndexSizes(Checked):
    """Sizes of the samples of a dataset."""

    index: str
    """A dataset, or its index file, as `headrace.open` takes them."""

    _checks: ClassVar[Mapping[str, Check]] = {"index": lambda table, key: table.text(key)}

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(open_dataset(self.index))

    @property
    def files(self) -> bool:
        """Whether each sample is a file of its own."""
        return open_dataset(self.index).format_row.file_a_sample

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


@named_fields
@dataclass(frozen=True)
class StorageRates(Checked):
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

    _checks: ClassVar[Mapping[str, Check]] = {
        "readers": lambda table, key: tuple(map(float, table.ascending(key))),
        "rates": lambda table, key: tuple(table.rates(key, len(table.ascending("readers")))),
        "link_rate": lambda table, key: table.rate(key),
        "shared_by": lambda table, key: table.choice(key, SHARED_BY),
        "reads_per_second": lambda table, key: table.positive(key),
        "reads_in_flight": lambda table, key: table.integer(key, 1, THREADS_MAX),
        "latency": lambda table, key: table.at_least(key, 0, _SECONDS_MAX),
    }


@named_fields
@dataclass(frozen=True)
class Staging(Checked):
    """The memory of a node that samples are fetched into, in the order of their use."""

    capacity: int
    """Bytes."""
    threads: int
    rate: float
    """Bytes a second that the threads together write."""

    _checks: ClassVar[Mapping[str, Check]] = {
        "capacity": lambda table, key: round(table.amount(key, BYTES_MAX)),
        "threads": lambda table, key: table.integer(key, 1, THREADS_MAX),
        "rate": lambda table, key: table.rate(key),
    }


@named_fields
@dataclass(frozen=True)
class TierRates(Checked):
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

    _checks: ClassVar[Mapping[str, Check]] = {
        "name": lambda table, key: table.text(key),
        "capacity": lambda table, key: round(table.amount(key, BYTES_MAX, zero=True)),
        "threads": lambda table, key: table.integer(key, 1, THREADS_MAX),
        "rate": lambda table, key: table.rate(key),
        "shared": lambda table, key: table.flag(key),
    }

    def of_node(self, nodes: int) -> tuple[float, int, float, bool]:
        """Capacity, threads and rate of a node's part; whether it is shared."""
        parts = nodes if self.shared else 1
        return self.capacity / parts, self.threads, self.rate / parts, self.shared


@named_fields
@dataclass(frozen=True)
class Scenario(Checked):
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

    _checks: ClassVar[Mapping[str, Check]] = {
        "title": lambda table, key: table.text(key),
        "sizes": lambda table, key: table.instance(key, Sizes, IndexSizes),
        "nodes": lambda table, key: table.integer(key, 1, NODES_MAX),
        "batch_size": lambda table, key: table.integer(key, 1, SAMPLES_MAX),
        "compute_rate": lambda table, key: table.rate(key),
        "preprocess_rate": lambda table, key: table.rate(key),
        "storage": lambda table, key: table.instance(key, StorageRates),
        "network_rate": lambda table, key: table.rate(key),
        "staging": lambda table, key: table.instance(key, Staging),
        "tiers": lambda table, key: table.instances(key, TierRates, _TIERS_MAX),
        "sample_rate": lambda table, key: table.positive(key),
        "ranks": lambda table, key: table.integer(key, 1, RANKS_MAX),
        "placement": lambda table, key: table.choice(key, _core.placements()),
        "allreduce": lambda table, key: table.at_least(key, 0, _SECONDS_MAX),
        "allreduce_noise": lambda table, key: table.at_least(key, 0),
        "schedule": lambda table, key: table.choice(key, _core.lane_policies()),
        "epochs": lambda table, key: table.integer(key, 1, EPOCHS_MAX),
        "seed": lambda table, key: table.integer(key, 0, SEED_MAX),
        "printed": lambda table, key: _printed(table.table(key)),
        "source": lambda table, key: table.text(key),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.compute_rate is None) == (self.sample_rate is None):
            raise InvalidArgumentError(
                f"Scenario.compute_rate: got {self.compute_rate} with sample_rate "
                f"{self.sample_rate}, must be one of them, and None the other"
            )
        _check_together("Scenario", vars(self))
        if isinstance(self.sizes, Sizes):  # Others are in files.
            check_step("Scenario", vars(self), self.sizes.samples)


_JOB = {name: name for name in ("nodes", "ranks", "batch_size", "placement", "schedule")}
_COMPUTE = {"compute_rate": "rate", "preprocess_rate": "preprocess_rate"}
_COMPUTE |= {name: name for name in ("sample_rate", "allreduce", "allreduce_noise")}
_NETWORK = {"network_rate": "rate"}
"""The keys of a file's tables, by the fields of a Scenario."""


@named_arguments
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
    values = taken(Scenario, root, {name: name for name in ("title", "source", "epochs", "seed")})
    values["sizes"] = _sizes(root.table("dataset"))
    job, compute, network = map(root.table, ("job", "compute", "network"))
    for table, keys in ((job, _JOB), (compute, _COMPUTE), (network, _NETWORK)):
        values |= taken(Scenario, table, keys)
    values["storage"] = read(StorageRates, root.table("storage"))
    values["staging"] = read(Staging, root.table("staging"))
    tiers = root.tables("tiers", 0, _TIERS_MAX)
    values["tiers"] = tuple(read(TierRates, tier) for tier in tiers)
    values["printed"] = _printed(root.table("printed")) if root.has("printed") else {}
    compute.finish(one_of=("rate", "sample_rate"))
    for table in (job, network, root):
        table.finish()
    _check_together(where, values)
    check_step(where, values, values["sizes"].samples)
    return Scenario(**values)


def _check_together(where: str, values: Mapping[str, Any]) -> None:
    """What single values of a scenario do not show."""
    storage = values["storage"]
    limit = storage.reads_per_second
    if limit is not None and storage.shared_by != "reads":
        raise InvalidArgumentError(
            f"{where}: storage.reads_per_second: got {limit:g} with shared_by 'nodes', which "
            "counts bytes alone; leave it out, or write shared_by = 'reads'"
        )
    check_tier_names(where, [tier.name for tier in values["tiers"]])


def check_step(where: str, values: Mapping[str, Any], samples: int) -> None:
    """That the dataset has a step of samples."""
    ranks, batch_size = values["nodes"] * values.get("ranks", 1), values["batch_size"]
    if ranks * batch_size > samples:
        raise InvalidArgumentError(
            f"{where}: job: {counted(ranks, 'rank')} with a batch_size of {batch_size} take more "
            f"than the {counted(samples, 'sample')} of the dataset in a step; lower one of them"
        )


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """The values of a scenario's file. Without what a paper prints."""
    tables = {"job": _JOB, "compute": _COMPUTE, "network": _NETWORK}
    return {
        "title": scenario.title,
        **({"source": scenario.source} if scenario.source else {}),
        "epochs": scenario.epochs,
        "seed": scenario.seed,
        "dataset": _given(scenario.sizes),
        **{
            table: _given(scenario, {key: name for name, key in keys.items()})
            for table, keys in tables.items()
        },
        "storage": _given(scenario.storage),
        "staging": _given(scenario.staging),
        "tiers": [_given(tier) for tier in scenario.tiers],
    }


def _given(part: Checked, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Its values that are not None, or those of these names, by keys."""
    values = {
        key: getattr(part, name)
        for key, name in (names or {name: name for name in vars(part)}).items()
    }
    return {key: value for key, value in values.items() if value is not None}


def _sizes(table: TomlTable) -> Sizes | IndexSizes:
    return (
        read(IndexSizes, table, ("index", "samples")) if table.has("index") else read(Sizes, table)
    )


def check_tier_names(where: str, names: Sequence[str]) -> None:
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
