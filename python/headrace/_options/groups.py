"""The options of `headrace.Loader` that most programs leave alone, in groups."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from headrace._arguments import shown
from headrace._names import Io, Placement
from headrace._signature import WorkerStart, named_fields
from headrace.errors import InvalidArgumentError
from headrace.profile import MachineProfile
from headrace.tiers import Part


class Group:
    """Base of the groups: shows the options that are not left to their defaults."""

    def __repr__(self) -> str:
        kind: Any = self
        given = (
            f"{each.name}={getattr(self, each.name)!r}"
            for each in dataclasses.fields(kind)
            if getattr(self, each.name) != each.default
        )
        return f"{type(self).__name__}({', '.join(given)})"


@named_fields
@dataclass(frozen=True, repr=False)
class Workers(Group):
    """Processes that run a Python transform or a `collate_fn`; `headrace docs workers`.

    >>> hr.Loader(path, 256, transform=prepare, workers=hr.Workers(4, start="forkserver"))

    Args:
        count: of the processes, 1 by default; 0: the functions run in the loader's process.
        start: how processes begin, as in multiprocessing: "spawn", "fork" or "forkserver".
        collate_fn: makes a batch of the list of its samples' results, in a worker.
        init_fn: called in each worker with its number, before anything else.
    """

    count: int | None = None
    _: KW_ONLY
    start: WorkerStart = "spawn"
    collate_fn: Callable[[list[Any]], Any] | None = None
    init_fn: Callable[[int], object] | None = None


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class Cache(Group):
    """What the loader's `tiers` keep between epochs; `headrace docs tiers`.

    >>> hr.Loader(path, 256, tiers=[hr.tiers.Ram("8GiB")], cache=hr.Cache(placement="pinned"))

    Args:
        placement: by which plan tiers are filled and emptied: "coordinated", "frequency", "pinned",
            "first_touch", "reuse", "belady", "lru" or "none"; `headrace docs placements`.
        horizon: epochs that the plan looks ahead; by default those of the run, 16 if not known.
        budget: a part of a `headrace.tiers.Budget`, which loaders share, instead of the loader's
            `memory` and `tiers`.
    """

    placement: Placement = "coordinated"
    horizon: int | None = None
    budget: Part | None = None


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class Sharding(Group):
    """Which rank's share of the samples a loader gives; `headrace docs trainers`.

    By default they are those of torch.distributed, if it runs; else of torchrun's environment, when
    the loader is made; else rank 0 of 1. Give both or none.

    Args:
        rank: of this process, from 0.
        world_size: how many ranks there are.
    """

    rank: int | None = None
    world_size: int | None = None


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class NodeProcess(Group):
    """One engine, in a process of its own, for all ranks on this machine; `headrace docs node`.

    >>> hr.Loader(path, 256, node_process=hr.NodeProcess())  # on each rank

    Args:
        name: of a running ``headrace node``; without one, local rank 0 starts the process.
        local_rank: of this process among those on this machine; by default torchrun's.
        local_world_size: how many ranks this machine has. Give both or none. With several ranks the
            environment has to have MASTER_PORT, too.
        start_timeout: seconds to wait for the process, and for ranks that make no loader.
    """

    name: str | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    start_timeout: int = 600


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class Engine(Group):
    """How the engine of a loader reads, checks and shares, and whether it can be watched.

    Args:
        io: "auto", "io_uring" or "threads"; or "synthetic": no reads, each sample is one of a few
            that are read at the start, which leaves decoding and handing over to measure.
        verify: samples against their checksums, where the dataset has them.
        prefetch: batches to work ahead; by default as many as the memory allows.
        profile: what `headrace profile` measured, or its file: where storage is faster than a tier
            that has a sample, the sample is read from storage.
        schedule: how the ranks of a node process share reads and decode threads:
            "shared_deadline", "lobster", "lobster_search", "fixed", or the file of a plan;
            `headrace docs schedule`.
        monitor: answers ``headrace top``; by default if the environment has HEADRACE_MONITOR=1;
            `headrace docs observe`.
    """

    io: Io = "auto"
    verify: bool = True
    prefetch: int | None = None
    profile: MachineProfile | str | os.PathLike[str] | None = None
    schedule: str | os.PathLike[str] = "shared_deadline"
    monitor: bool | None = None


Kind = TypeVar("Kind", bound=Group)


def group(name: str, given: Any, kind: type[Kind]) -> Kind:
    """The group that was `given` as the argument `name` of a loader; its defaults for None."""
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    raise InvalidArgumentError(
        f"{name}: got {shown(given)}, must be a headrace.{kind.__name__}, as "
        f"{name}=headrace.{kind.__name__}(...)"
    )
