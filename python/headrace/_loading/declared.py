"""The arguments of `headrace.Loader` as one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace import _signature as signature
from headrace._names import OrderName
from headrace._options.groups import Cache, Engine, NodeProcess, Nodes, Sharding, Workers
from headrace._workers import Transform
from headrace.orders import Order
from headrace.tiers import Tier


@dataclass(frozen=True, kw_only=True)
class LoaderArguments:
    """What the user gave, unchecked, but for the dataset; `Loader` says what each means."""

    batch_size: int = 1
    shuffle: bool = True
    order: Order | OrderName = "exact"
    seed: int = 0
    drop_last: bool = False
    transform: Transform = None
    decode: bool | None = None
    fields: Iterable[str] | Mapping[str, str] | None = None
    sampler: Iterable[Any] | None = None
    batch_sampler: Iterable[Iterable[Any]] | None = None
    epochs: int | None = None
    memory: int | str | None = None
    threads: int | None = None
    tiers: Tier | Iterable[Tier] | None = None
    workers: int | Workers | None = None
    ragged: signature.Ragged | None = None
    on_error: signature.OnError = "raise"
    output: signature.Output = "auto"
    ids: bool = False
    cache: Cache | None = None
    sharding: Sharding | None = None
    node_process: NodeProcess | Literal[False] | None = None
    nodes: Nodes | None = None
    engine: Engine | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether a sampler decides which samples come when."""
        return self.sampler is not None or self.batch_sampler is not None
