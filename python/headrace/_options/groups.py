"""Groups of the options of `headrace.Loader` that most programs do not set."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from headrace._arguments import shown
from headrace._names import Io, Placement
from headrace._signature import WorkerStart, named_fields
from headrace.errors import InvalidArgumentError
from headrace.tiers import Part

if TYPE_CHECKING:
    from headrace.profile import MachineProfile

Ask = Literal["plan", "progress"]


class Group:
    """Base of the groups. Its `repr` shows the options that differ from their defaults."""

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
        count: number of processes; default 1. 0: the functions run in the loader's process.
        start: start method, as in multiprocessing: "spawn", "fork" or "forkserver".
        collate_fn: makes a batch from the list of its samples' results, in a worker.
        init_fn: called first in each worker, with the worker's number.
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
        placement: the policy that fills tiers: "coordinated", "frequency", "pinned", "first_touch",
            "reuse", "belady", "lru" or "none"; `headrace docs placements`.
        horizon: number of epochs to plan ahead; default: `epochs=` of the loader, otherwise 16.
        budget: a part of a `headrace.tiers.Budget` that several loaders share. It replaces the
            loader's `memory` and `tiers`.
    """

    placement: Placement = "coordinated"
    horizon: int | None = None
    budget: Part | None = None


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class Sharding(Group):
    """The rank whose share of the samples a loader delivers; `headrace docs trainers`.

    Default, when the loader is made: those of torch.distributed if it is initialized; otherwise
    those of the launch, by torchrun, Slurm, MPI or Kubernetes; otherwise rank 0 of 1. Give both or
    none.

    >>> hr.Loader(path, 32, sharding=hr.Sharding(tensor=4, pipeline=2))  # 4 x 2 ranks a position
    >>> hr.Loader(path, 32, sharding=hr.Sharding(mesh=mesh["dp"]))  # the same from a DeviceMesh

    Args:
        rank: rank of this process, from 0.
        world_size: number of ranks.
        tensor: number of neighbouring ranks that get the same batches: tensor parallel times
            context parallel.
        pipeline: number of pipeline stages; each gets all batches.
        mesh: the dimensions of a torch.distributed DeviceMesh over which the samples are divided,
            instead of all others: ranks at one place of it get the same batches.
    """

    rank: int | None = None
    world_size: int | None = None
    tensor: int = 1
    pipeline: int = 1
    mesh: Any = None


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class NodeProcess(Group):
    """One engine, in a process of its own, for all ranks on this machine; `headrace docs node`.

    >>> hr.Loader(path, 256, node_process=hr.NodeProcess())  # on each rank

    With tiers on several machines it is the default; ``node_process=False`` has none.

    Args:
        name: name of a running ``headrace node``. Default: local rank 0 starts the process.
        local_rank: number of this process among the ranks of this machine; default: the launch's.
        local_world_size: number of ranks on this machine. Give both or none. With several ranks
            that torchrun, Slurm or Open MPI did not start, set MASTER_PORT in the environment, too.
        start_timeout: seconds to wait for the process, for ranks that have not made a loader, and
            for what another node sends; so long a node gives others what only it has after its loop
            has ended.
    """

    name: str | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    start_timeout: int = 600


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class Nodes(Group):
    """How the node processes of several machines give each other what their tiers hold;
    `headrace docs nodes`.

    >>> hr.Loader(path, 256, tiers=tiers, node_process=hr.NodeProcess(),
    ...           nodes=hr.Nodes(open_network=True))

    Args:
        addresses: "host:port" of every node, in the order of ranks; the environment variable
            HEADRACE_TOKEN then holds the job's secret. Default: those of the environment variable
            HEADRACE_NODES, if it is set; otherwise exchanged through torch's store.
        listen: address of this machine, where the others reach it; default: found.
        open_network: whether samples may travel without encryption beyond this machine.
        certificate, key, authority: files in PEM format: nodes then prove who they are, and
            samples travel encrypted.
        certificate_name: the name in all certificates; default: each has its node's address.
        answer_timeout: seconds after which a sample is read from storage instead.
        ask: "plan": a node asks for what the plan says that another has, which reads it from
            storage if it is not there yet. `headrace docs nodes` has another way, to compare; all
            nodes must have the same.
        rate: bytes a second, as "2GB/s", that this node takes from all others together, and as many
            that it gives them: the rest of the network is left to training. Default: no limit.
    """

    addresses: Sequence[str] | None = None
    listen: str | None = None
    open_network: bool = False
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    authority: str | os.PathLike[str] | None = None
    certificate_name: str | None = None
    answer_timeout: int = 5
    ask: Ask = "plan"
    rate: int | str | None = None


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class Engine(Group):
    """How the engine of a loader reads, verifies and shares work; whether it can be monitored.

    Args:
        io: "auto", "io_uring" or "threads"; or "synthetic": reads a few samples at the start and
            uses them for all others, to measure the loader without storage.
        verify: check each sample against its checksum, if the dataset has checksums.
        prefetch: largest number of batches to prepare ahead; default: only the memory limits it.
        profile: result of `headrace profile`, or its file. The loader then takes each sample from
            the fastest of those that have it: a tier, another node, storage.
        schedule: how the ranks of a node process share reads and decode threads:
            "shared_deadline" or "fixed"; `headrace docs schedule` has more, and schedule files.
        monitor: show this loader in ``headrace top``; default: only if HEADRACE_MONITOR=1 is set
            in the environment; `headrace docs observe`.
    """

    io: Io = "auto"
    verify: bool = True
    prefetch: int | None = None
    profile: MachineProfile | str | os.PathLike[str] | None = None
    schedule: str | os.PathLike[str] = "shared_deadline"
    monitor: bool | None = None


def described(kind: type) -> dict[str, str]:
    """What the docstring of a class says of each argument, below "Args:"."""
    _, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
    listed = re.split(r"\n\n|\n(?=\S)", listed)[0]
    found = {}
    for names, text in re.findall(r"^    ([\w, ]+): ((?:.|\n(?!    \w))+)", listed, re.MULTILINE):
        found.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
    return found


Kind = TypeVar("Kind", bound=Group)


GROUPS: dict[str, type[Group]] = {
    "workers": Workers,
    "cache": Cache,
    "sharding": Sharding,
    "node_process": NodeProcess,
    "nodes": Nodes,
    "engine": Engine,
}
"""By the loader's argument."""


_RENAMED = {
    "isolation": "node_process=False, or node_process=hr.NodeProcess()",
    "node": "node_process=hr.NodeProcess(name=...)",
    "worker_start": "workers=hr.Workers(start=...)",
    "worker_init_fn": "workers=hr.Workers(init_fn=...)",
}


def spellings() -> dict[str, str]:
    """How a loader takes each option of a group, by the option's name; and options that had other
    names."""
    return _RENAMED | {
        option.name: f"{argument}=hr.{kind.__name__}({option.name}=...)"
        for argument, kind in GROUPS.items()
        for option in dataclasses.fields(cast(Any, kind))
    }


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
