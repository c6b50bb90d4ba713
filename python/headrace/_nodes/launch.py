"""What the launcher of a job says of this process: its rank, its node, and how many of both.

torchrun, Slurm, MPI and Kubernetes say it in environment variables, each in its own. This is the
one place that reads them; tiers, node processes and orders take their nodes from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.errors import InvalidArgumentError

NODES = "HEADRACE_NODES"
"""Environment variable: the nodes' addresses, "host:port" or "host", with commas between them."""
_PORT = 4100  # of an address without one

# Of launchers that number ranks on each node, but not the nodes: who it is, then the names of the
# rank, the world size, the local rank and the number of local ranks.
_MPI = (
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
)  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """A process of a job, as its launcher counts. None: the launcher does not say."""

    by: str
    rank: int
    world_size: int
    local_rank: int | None = None
    local_world_size: int | None = None
    node: int | None = None
    nodes: int | None = None

    def __str__(self) -> str:
        on = "" if self.local_world_size is None else f", {self.local_world_size} on this node"
        return f"rank {self.rank} of {self.world_size}{on}, by {self.by}"


def find_launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """What the environment says; None if no launcher is recognised.

    If several launchers say something (torchrun under Slurm), the first of torchrun, Slurm, MPI and
    Kubernetes is right, and the others add what it leaves out if they mean the same rank.

    Raises:
        InvalidArgumentError: a launcher's variables contradict each other, or are no numbers.
    """
    launch: Launch | None = None
    for other in _launches(environment):
        if launch is None:
            launch = other
        elif (other.rank, other.world_size) == (launch.rank, launch.world_size):
            launch = _with_what_is_missing(launch, other)
    if launch is None and environment.get("PMIX_RANK", "0") != "0":  # PMIx alone tells no size.
        raise InvalidArgumentError(
            f"environment PMIX_RANK={environment['PMIX_RANK']}: this is one of several processes, "
            "and the launcher does not say of how many; give job=hr.Job(rank=..., "
            "world_size=...)"
        )
    return None if launch is None else _checked(launch)


def find_addresses(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """The nodes' addresses of HEADRACE_NODES, each with a port; None if it is not set."""
    text = environment.get(NODES, "").strip()
    if not text:
        return None
    addresses = [address.strip() for address in text.split(",")]
    if not all(addresses):
        raise InvalidArgumentError(
            f"environment {NODES}={text!r}: must be names of hosts with commas between them, as "
            f"'train-0.train,train-1.train', each with a port if it is not {_PORT}"
        )
    return [address if has_port(address) else f"{address}:{_PORT}" for address in addresses]


def has_port(address: str) -> bool:
    """Of a host, with or without a port; IPv6 in brackets if there is one."""
    return ":" in address.rpartition("]")[2]


def _launches(environment: Mapping[str, str]) -> Iterator[Launch]:
    for read in (_torchrun, _slurm, _mpi, _kubernetes):
        launch = read(environment)
        if launch is not None:
            yield launch


def _torchrun(environment: Mapping[str, str]) -> Launch | None:
    names = ("RANK", "WORLD_SIZE")
    if not any(environment.get(name) for name in names):
        return None
    rank, world_size = _numbers(environment, names)
    local = ("LOCAL_RANK", "LOCAL_WORLD_SIZE")
    group = ("GROUP_RANK", "GROUP_WORLD_SIZE")
    return Launch(
        "the environment (RANK, WORLD_SIZE)",
        rank,
        world_size,
        *_both(environment, local),
        *_both(environment, group),
    )


def _slurm(environment: Mapping[str, str]) -> Launch | None:
    """Of a step: a batch script that srun did not start has the job's numbers, and is one process.

    A step of one task is none of several processes: what it starts may be a launcher.
    """
    names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    if not all(environment.get(name) for name in names):
        return None
    rank, world_size = _numbers(environment, names)
    if world_size == 1:
        return None
    node, nodes = _both(environment, ("SLURM_NODEID", "SLURM_STEP_NUM_NODES"))
    local_rank = _number(environment, "SLURM_LOCALID")
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    local = _tasks_of_node(tasks, node) if node is not None else None
    if local is None:
        local_rank = None
    return Launch("Slurm", rank, world_size, local_rank, local, node, nodes)


def _tasks_of_node(text: str, node: int) -> int | None:
    """Of Slurm's "2(x3),1": two tasks on each of the nodes 0 to 2, one on node 3."""
    first = 0
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            return None
        first += int(match[2] or 1)
        if node < first:
            return int(match[1])
    return None


def _mpi(environment: Mapping[str, str]) -> Launch | None:
    for by, *names in _MPI:
        if not all(environment.get(name) for name in names[:2]):
            continue
        rank, world_size = _numbers(environment, (names[0], names[1]))
        if world_size == 1:
            return None
        return Launch(by, rank, world_size, *_both(environment, (names[2], names[3])))
    return None


def _kubernetes(environment: Mapping[str, str]) -> Launch | None:
    """An indexed job's pods are nodes of one rank, if HEADRACE_NODES says how many there are."""
    addresses = find_addresses(environment)
    node = _number(environment, "JOB_COMPLETION_INDEX")
    if addresses is None or node is None:
        return None
    count = len(addresses)
    by = f"Kubernetes (JOB_COMPLETION_INDEX, {NODES})"
    return Launch(by, node, count, 0, 1, node, count)


def _numbers(environment: Mapping[str, str], names: tuple[str, ...]) -> list[int]:
    try:
        return [int(environment.get(name, "")) for name in names]
    except ValueError:
        said = ", ".join(f"{name}={environment.get(name)!r}" for name in names)
        must = "must both be integers" if len(names) > 1 else "must be an integer"
        raise InvalidArgumentError(
            f"environment {said}: {must}; or give job=hr.Job(rank=..., world_size=...)"
        ) from None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    return _numbers(environment, (name,))[0] if environment.get(name) else None


def _both(
    environment: Mapping[str, str], names: tuple[str, str]
) -> tuple[int, int] | tuple[None, None]:
    """Two numbers that mean something together: a position, and of how many."""
    first, second = (_number(environment, name) for name in names)
    return (None, None) if first is None or second is None else (first, second)


def _with_what_is_missing(launch: Launch, other: Launch) -> Launch:
    if launch.local_world_size is None:
        launch = replace(
            launch, local_rank=other.local_rank, local_world_size=other.local_world_size
        )
    if launch.nodes is None:
        launch = replace(launch, node=other.node, nodes=other.nodes)
    return launch


def _checked(launch: Launch) -> Launch:
    """With the nodes that follow from equal numbers of ranks; refuses numbers out of range."""
    places = (
        ("rank", launch.rank, launch.world_size),
        ("local rank", launch.local_rank, launch.local_world_size),
        ("node", launch.node, launch.nodes),
    )
    for what, number, count in places:
        if count is not None and count < 1:
            raise InvalidArgumentError(
                f"{count} {what}s, by {launch.by}: must be at least one {what}"
            )
        if number is not None and count is not None and not 0 <= number < count:
            raise InvalidArgumentError(
                f"{what} {number} of {count}, by {launch.by}: must be from 0 to {count - 1}"
            )
    local = launch.local_world_size
    if launch.nodes is None and local is not None and launch.world_size % local == 0:
        launch = replace(launch, node=launch.rank // local, nodes=launch.world_size // local)
    return launch
