"""What is simulated: a dataset, a job, machines, and the policies that read; from a TOML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace._toml import TomlTable, read_toml
from headrace.errors import NotFoundError

SCENARIOS = Path(__file__).parent / "scenarios"
"""The files that Headrace ships: those of the papers."""
_NODES_MAX = 2**16
_SAMPLES_MAX = 2**32 - 2


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
        """The size of each sample; the same for the same seed."""
        drawn = np.random.default_rng(seed).normal(self.mean, self.deviation, self.samples)
        return np.maximum(drawn, self.least)


@dataclass(frozen=True)
class StorageRates:
    """Storage that all nodes share. Rates are bytes a second."""

    nodes: tuple[float, ...]
    """That read it at the same time, ascending."""
    rates: tuple[float, ...]
    """Of all these nodes together; linear in between, constant beyond."""
    link_rate: float | None = None
    """Of one node's link to it; None: no limit."""


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
    """A cache of a node."""

    name: str
    capacity: int
    """Bytes."""
    threads: int
    rate: float
    """Bytes a second that the threads together read."""


@dataclass(frozen=True)
class Scenario:
    """A job on a cluster. Rates are bytes a second."""

    title: str
    sizes: Sizes
    nodes: int
    batch_size: int
    """Of a node."""
    compute_rate: float
    """Of a node."""
    preprocess_rate: float
    """Of a node."""
    storage: StorageRates
    network_rate: float
    """Of a node, from the others."""
    staging: Staging
    tiers: tuple[TierRates, ...]
    """Fastest first."""
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
    name = os.fspath(path)
    shipped = SCENARIOS / f"{name}.toml"
    file = shipped if os.sep not in name and shipped.is_file() else Path(name)
    if not file.is_file():
        names = ", ".join(shipped_scenarios())
        raise NotFoundError(
            f"scenario {name}: no such file, and none of those that Headrace ships: {names}"
        )
    return _scenario(read_toml(file, "scenario"))


def shipped_scenarios() -> list[str]:
    """The names of the scenarios that Headrace ships."""
    return sorted(path.stem for path in SCENARIOS.glob("*.toml"))


def _scenario(root: TomlTable) -> Scenario:
    job, compute = root.table("job"), root.table("compute")
    scenario = Scenario(
        title=root.text("title"),
        source=root.text("source") if root.has("source") else "",
        epochs=root.integer("epochs", 1) if root.has("epochs") else 1,
        seed=root.integer("seed", 0) if root.has("seed") else 0,
        sizes=_sizes(root.table("dataset")),
        nodes=job.integer("nodes", 1, _NODES_MAX),
        batch_size=job.integer("batch_size", 1),
        compute_rate=compute.rate("rate"),
        preprocess_rate=compute.rate("preprocess_rate"),
        storage=_storage(root.table("storage")),
        network_rate=_network(root.table("network")),
        staging=_staging(root.table("staging")),
        tiers=tuple(_tier(tier) for tier in root.tables("tiers", 0)),
        printed=_printed(root.table("printed")) if root.has("printed") else {},
    )
    for table in (job, compute, root):
        table.finish()
    return scenario


def _sizes(table: TomlTable) -> Sizes:
    sizes = Sizes(
        samples=table.integer("samples", 1, _SAMPLES_MAX),
        mean=table.amount("mean"),
        deviation=table.amount("deviation", zero=True) if table.has("deviation") else 0,
        least=table.amount("least", zero=True) if table.has("least") else 0,
    )
    table.finish()
    return sizes


def _storage(table: TomlTable) -> StorageRates:
    nodes = table.ascending("nodes")
    storage = StorageRates(
        nodes=tuple(map(float, nodes)),
        rates=tuple(table.rates("rates", len(nodes))),
        link_rate=table.rate("link_rate") if table.has("link_rate") else None,
    )
    table.finish()
    return storage


def _network(table: TomlTable) -> float:
    rate = table.rate("rate")
    table.finish()
    return rate


def _staging(table: TomlTable) -> Staging:
    staging = Staging(
        capacity=round(table.amount("capacity")),
        threads=table.integer("threads", 1),
        rate=table.rate("rate"),
    )
    table.finish()
    return staging


def _tier(table: TomlTable) -> TierRates:
    tier = TierRates(
        name=table.text("name"),
        capacity=round(table.amount("capacity", zero=True)),
        threads=table.integer("threads", 1),
        rate=table.rate("rate"),
    )
    table.finish()
    return tier


def _printed(table: TomlTable) -> dict[str, float]:
    printed = {name: table.positive(name) for name in table.names()}
    table.finish()
    return printed
