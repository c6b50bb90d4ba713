"""Groups of the options of `headrace.Loader` that most programs do not set."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from headrace._arguments import shown
from headrace._names import Io, Placement
from headrace._process.former import ARGUMENTS
from headrace._signature import Arrays, Ragged, WorkerStart, named_fields
from headrace.errors import InvalidArgumentError
from headrace.tiers import Tier

if TYPE_CHECKING:
    from headrace.profile import MachineProfile

Ask = Literal["plan", "progress"]


class Group:
    """Base of the groups. Its `repr` shows the options that differ from their defaults.

    What can be iterated only once is read when the group is made, as several loaders may take it.
    """

    def __post_init__(self) -> None:
        for option in dataclasses.fields(cast(Any, self)):
            value = getattr(self, option.name)
            if isinstance(value, Iterator):
                object.__setattr__(self, option.name, tuple(value))

    def __repr__(self) -> str:
        kind: Any = self
        changed = (
            f"{option.name}={getattr(self, option.name)!r}"
            for option in dataclasses.fields(kind)
            if getattr(self, option.name) != option.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"


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
@dataclass(frozen=True, repr=False)
class Output(Group):
    """What batches hold, and as which arrays; `headrace docs loader`.

    >>> hr.Loader(path, 256, output=hr.Output("torch", fields=["image", "label"], ids=True))

    Args:
        arrays: "torch" tensors, "numpy" or "jax" arrays, or "dlpack" exporters; "auto": torch if
            installed, otherwise NumPy.
        fields: names of the fields, in this order; default: all. {name: field} makes batches dicts.
        decode: False: a Python callable gets encoded bytes; True: `collate_fn` gets decoded images.
        ragged: if rows differ in shape: "list" (default), "pad", "error" (a callable's default).
        ids: add the samples' numbers as a field, `sample_id`; a pack numbers its samples anew.
    """

    arrays: Arrays = "auto"
    _: KW_ONLY
    fields: Iterable[str] | Mapping[str, str] | None = None
    decode: bool | None = None
    ragged: Ragged | None = None
    ids: bool = False


@named_fields
@dataclass(frozen=True, repr=False)
class Cache(Group):
    """Which samples tiers keep between epochs; `headrace docs placements`.

    >>> hr.Loader(path, 256, tiers=hr.Cache(hr.tiers.Ram("8GiB"), placement="pinned"))

    Args:
        tiers: one of `headrace.tiers`, or a list, fastest first. Default: none or, if `memory` is
            a part of a budget, the tiers of that part.
        placement: the policy that fills tiers: "coordinated", "frequency", "pinned", "first_touch",
            "reuse", "belady", "lru" or "none"; `headrace docs placements`.
        horizon: number of epochs to plan ahead; default: `epochs=` of the loader, otherwise 16.
    """

    _hints: ClassVar[Mapping[str, str]] = {
        "budget": "it is the loader's memory; write memory=budget.part(name, share)"
    }

    tiers: Tier | Iterable[Tier] | None = None
    _: KW_ONLY
    placement: Placement = "coordinated"
    horizon: int | None = None


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class Node(Group):
    """A machine of the job: its node process, which is one engine for all its ranks, and how it
    exchanges samples with the other machines; `headrace docs node`, `headrace docs nodes`.

    >>> hr.Loader(path, 256, job=hr.Job(node=hr.Node()))  # on each rank
    >>> hr.Loader(path, 256, tiers=tiers, job=hr.Job(node=hr.Node(open_network=True)))

    Args:
        name: name of a running ``headrace node``. Default: local rank 0 starts the process.
        local_rank: number of this process among the ranks of this machine; default: the launcher's.
        local_world_size: number of ranks on this machine. Give both or neither. For several ranks
            not started by torchrun, Slurm or Open MPI, set MASTER_PORT in the environment, too.
        start_timeout: seconds to wait for the process, for ranks that have not made a loader, and
            for samples from another node. After its own loop has ended, a node keeps sending for
            this long the samples that no other node has.
        addresses: "host:port" of every node, in the order of ranks; the environment variable
            HEADRACE_TOKEN then holds the job's secret. Default: those of the environment variable
            HEADRACE_NODES, if it is set; otherwise exchanged through torch's store.
        listen: address at which the other machines reach this one; default: detected.
        open_network: whether samples may leave this machine unencrypted.
        certificate, key, authority: files in PEM format: nodes then authenticate each other,
            and samples travel encrypted.
        certificate_name: the name in all certificates; default: each names its node's address.
        answer_timeout: seconds to wait for another node before storage is read instead.
        ask: "plan": a node requests the samples that the plan assigns to another node, which reads
            them from storage if it does not have them yet. `headrace docs nodes` describes another
            policy, for comparison; all nodes must use the same.
        rate: limit of the bytes a second, such as "2GB/s", that this node receives from all others
            together, and of those that it sends: training has the rest of the network. Default: no
            limit.
    """

    name: str | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    start_timeout: int = 600
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
class Job(Group):
    """The ranks that share the samples, the rank of this process, and the job's machines;
    `headrace docs trainers`.

    Default rank and world size, read when the loader is made: those of torch.distributed if it
    is initialized; otherwise those of the launcher (torchrun, Slurm, MPI, Kubernetes); otherwise
    rank 0 of 1. Give both or neither.

    >>> hr.Loader(path, 32, job=hr.Job(tensor=4, pipeline=2))  # 4 x 2 ranks a position
    >>> hr.Loader(path, 32, job=hr.Job(mesh=mesh["dp"]))  # the same from a DeviceMesh

    Args:
        rank: rank of this process, from 0.
        world_size: number of ranks.
        tensor: number of neighbouring ranks that get the same batches: tensor parallel times
            context parallel.
        pipeline: number of pipeline stages; each gets all batches.
        mesh: the dimensions of a torch.distributed DeviceMesh over which the samples are divided,
            instead of rank, world_size, tensor and pipeline: ranks with the same coordinates in
            them get the same batches.
        node: `headrace.Node`: one engine, in a process of its own, for all ranks of this machine.
            Default: only with tiers on several machines. False: none.
    """

    rank: int | None = None
    world_size: int | None = None
    tensor: int = 1
    pipeline: int = 1
    mesh: Any = None
    node: Node | Literal[False] | None = field(default=None, metadata={"group": Node})


@named_fields
@dataclass(frozen=True, repr=False, kw_only=True)
class EngineOptions(Group):
    """How the engine of a loader reads, verifies and shares work; whether it can be monitored.

    Args:
        io: "auto", "io_uring" or "threads"; or "synthetic": reads a few samples at the start and
            uses them for all others, to measure the loader without storage.
        verify: check each sample against its checksum, if the dataset has checksums.
        prefetch: largest number of batches to prepare ahead; default: at most 64, as memory allows.
        profile: result of `headrace profile`, or its file. The loader then reads each sample from
            the fastest source that has it: a tier, another node, storage.
        schedule: how the ranks of a node process share reads and decode threads:
            "shared_deadline" or "fixed"; `headrace docs schedule` describes schedule files, too.
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
    texts = {}
    for names, text in re.findall(r"^    ([\w, ]+): ((?:.|\n(?!    \w))+)", listed, re.MULTILINE):
        texts.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
    return texts


GROUPS: dict[str, type[Group]] = {
    "tiers": Cache,
    "workers": Workers,
    "output": Output,
    "job": Job,
    "engine": EngineOptions,
}
"""By the loader's argument."""


def group_forms() -> Iterator[tuple[str, type[Group]]]:
    """Each group, after how a loader is given one, as ``job=hr.Job(node=hr.Node({}))``."""
    for argument, kind in GROUPS.items():
        yield from _forms(f"{argument}=hr.{kind.__name__}({{}})", kind)


def _forms(form: str, kind: type[Group]) -> Iterator[tuple[str, type[Group]]]:
    yield form, kind
    for option in dataclasses.fields(cast(Any, kind)):
        inner = option.metadata.get("group")
        if inner is not None:
            yield from _forms(form.format(f"{option.name}=hr.{inner.__name__}({{}})"), inner)


def spellings() -> dict[str, str]:
    """How a loader takes each option of a group, by the option's name; and options that had other
    names."""
    return ARGUMENTS | {
        option.name: form.format(f"{option.name}=...")
        for form, kind in group_forms()
        for option in dataclasses.fields(cast(Any, kind))
        if option.name not in GROUPS
    }


Kind = TypeVar("Kind", bound=Group)


def group(name: str, value: Any, kind: type[Kind]) -> Kind:
    """The group given as `name`, an argument or an option of a group; None: its defaults."""
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    argument = name.rpartition(".")[2]
    raise InvalidArgumentError(
        f"{name}: got {shown(value)}, must be a headrace.{kind.__name__}, as "
        f"{argument}=headrace.{kind.__name__}(...)"
    )


def group_or_first(value: Any, kind: Callable[[Any], Kind]) -> Kind:
    """The group `value`, or that of this first option: 4 means `Workers(4)`."""
    return value if isinstance(value, cast(Any, kind)) else kind(value)
