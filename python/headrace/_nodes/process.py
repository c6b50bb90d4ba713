"""Finds or starts the process in which a loader's engine runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import subprocess
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headrace import _core
from headrace._arguments import integer
from headrace._dataset import Dataset
from headrace._descriptors import taking_descriptors
from headrace._nodes.launch import Launch
from headrace._nodes.positions import Seats, seats
from headrace._nodes.ranks import Ranks
from headrace._options.groups import Node, group
from headrace._process.helpers import node_arguments
from headrace.errors import InvalidArgumentError, NotFoundError, UnavailableError
from headrace.formats._base.findings import callers_level

EXECUTABLE = "headrace-node"
# Seconds that a node process may take to start: one that local rank 0 starts on a busy machine; a
# service that somebody may be starting now.
_START_S = 30.0
_SERVICE_S = 2.0
_TRY_EVERY_S = 0.01
_END_S = 5.0  # seconds that a node process may take to end
_STARTS_MAX = 3  # of a node process that ends at once
# Environment variables that distinguish the launches of a job on a node.
_LAUNCH = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "GROUP_RANK",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
)
_TELLING = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_JOB_ID", "PMIX_NAMESPACE")


@dataclass(frozen=True)
class NodePlace:
    """A rank's place at its node process."""

    socket: str
    group: str  # equal on all ranks, different in other jobs
    local_rank: int
    local_world_size: int
    service: str | None  # its name, if it is a service
    start_timeout: int  # seconds that this rank waits for ranks that made no loader
    seats: Seats  # the positions of this node's ranks
    lane: int  # this rank's position among them
    process: int  # its number in the job

    @property
    def wait_s(self) -> float:
        """Seconds to wait until the node process serves."""
        if self.service is not None:
            return min(_SERVICE_S, self.start_timeout)
        return min(_START_S, self.start_timeout) if self.local_rank == 0 else self.start_timeout


def service_socket(name: str) -> str:
    """The socket of the node service `name` of this user."""
    value: Any = name
    if not isinstance(value, str) or not 1 <= len(name) <= 64 or not name.isprintable():
        raise InvalidArgumentError(
            f"name of a node process: got {name!r}, must have 1 to 64 printable characters"
        )
    if "/" in name:
        raise InvalidArgumentError(
            f"name of a node process: got {name!r}, must have no '/': it is a name that loaders "
            "give, not a path"
        )
    return f"headrace-{os.geteuid()}-service-{name}"


def executable() -> str:
    """The path of the node process's program, which lies beside the extension."""
    folders = [Path(__file__).parent.parent, Path(str(_core.__file__)).parent]
    for folder in folders:
        if os.access(folder / EXECUTABLE, os.X_OK):
            return str(folder / EXECUTABLE)
    looked = ", ".join(dict.fromkeys(map(str, folders)))
    raise NotFoundError(f"starting a node process: no {EXECUTABLE} in {looked}; install headrace")


def node_place(node: Node | None, ranks: Ranks) -> NodePlace | None:
    """The place at the node process that `node` describes; None without it.

    Raises:
        InvalidArgumentError: `node` cannot be followed, or the ranks of a node are not known.
    """
    if node is None:
        return None
    start_timeout = integer("Node.start_timeout", node.start_timeout, 1, 10**6)
    rank, local = _local_ranks(node.local_rank, node.local_world_size, ranks.here)
    here = _seats(rank, local, ranks)
    job = _group(local, ranks.here)
    name = node.name
    socket = service_socket(name) if name is not None else f"headrace-{os.geteuid()}-{job}"
    lane = ranks.rank - here.first
    return NodePlace(socket, job, rank, local, name, start_timeout, here, lane, ranks.process)


class Shared(NamedTuple):
    """What the nodes of a job give each other."""

    what: str
    """For messages."""
    is_required: bool
    """Whether a node has no other way to what it lacks."""


def chosen_node(
    node: Node | Literal[False] | None, ranks: Ranks, shared: Shared | None, sampled: bool
) -> Node | None:
    """The job's `node`, or its default: on several nodes there is one if these share something.

    `shared`: None: nothing. `sampled`: a sampler decides what this rank reads, so it can share no
    engine. With False on several nodes a warning says, once, what is lost.
    """
    if node is not None and node is not False:
        return group("Job.node", node, Node)
    launch = ranks.launch
    if shared is None or launch is None or (launch.nodes or 1) == 1:
        return None
    if node is False:
        tell_once(
            f"{shared.what} on {launch.nodes} nodes with Job(node=False): other nodes are not "
            "asked for samples, each rank reads storage itself; leave node=False out"
        )
        return None
    if launch.local_world_size is None or (sampled and launch.local_world_size > 1):
        return None
    if (launch.nodes or 1) * launch.local_world_size != launch.world_size:
        tell_once(
            f"{shared.what} on {launch.nodes} nodes without a node process on each: this node has "
            f"{launch.local_world_size} of {launch.world_size} ranks, so another has more or fewer"
        )
        return None
    default = Node()
    try:
        place = node_place(default, ranks)
    except InvalidArgumentError as error:  # Nobody asked for it.
        tell_once(f"{shared.what} on {launch.nodes} nodes without a node process on each: {error}")
        return None
    return default if place is not None and len(place.seats.group) > 1 else None


_warned: set[str] = set()


def tell_once(warning: str) -> None:
    """Warns, once in a process."""
    if warning not in _warned:
        _warned.add(warning)
        warnings.warn(f"headrace: {warning}", RuntimeWarning, stacklevel=callers_level())


def _local_ranks(rank: int | None, ranks: int | None, here: Launch | None) -> tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise InvalidArgumentError(
            f"Node(local_rank={rank}, local_world_size={ranks}): give both, or neither to "
            "use torchrun's"
        )
    if rank is None or ranks is None:
        if here is not None and here.local_rank is not None and here.local_world_size is not None:
            return here.local_rank, here.local_world_size
        texts = os.environ.get("LOCAL_RANK"), os.environ.get("LOCAL_WORLD_SIZE")
        try:
            rank, ranks = int(texts[0] or "0"), int(texts[1] or "1")
        except ValueError:
            raise InvalidArgumentError(
                f"environment LOCAL_RANK={texts[0]!r}, LOCAL_WORLD_SIZE={texts[1]!r}: must both be "
                "integers; or give hr.Node(local_rank=..., local_world_size=...)"
            ) from None
    ranks = integer("Node.local_world_size", ranks, 1, 1024)
    return integer("Node.local_rank", rank, 0, ranks - 1), ranks


def _seats(local_rank: int, local: int, ranks: Ranks) -> Seats:
    """The positions of this node's ranks.

    Without groups of ranks any number of neighbours may be on a node; the core refuses tiers if
    nodes have unequal numbers, and ranks that are no neighbours.
    """
    layout = ranks.layout
    even = layout.world_size % local == 0
    if even and ranks.process % local == local_rank:
        return seats(layout, ranks.process // local, local)
    at = f"rank {ranks.process} of {layout.world_size} is local rank {local_rank} of {local}"
    if even and ranks.launch is not None:
        raise InvalidArgumentError(
            f"Job.node: {at}, by {ranks.launch.by}: the ranks of a node must be neighbours, "
            "in the order of their local ranks: start them with srun --distribution=block or "
            "mpirun --map-by slot"
        )
    if layout.positions < layout.world_size:
        raise InvalidArgumentError(
            f"{layout} with a node process: {at}: all nodes must have equal numbers of ranks, each "
            "node neighbours in the order of their local ranks"
        )
    return Seats(ranks.process - local_rank, local, (), 0)


_alone: dict[int, str] = {}  # by process, as a forked child is another one


def _group(local: int, here: Launch | None) -> str:
    if local == 1:
        return _alone.setdefault(os.getpid(), f"alone-{os.getpid()}-{os.urandom(4).hex()}")
    launch = [f"{name}={os.environ.get(name, '')}" for name in _LAUNCH]
    launch.append(f"node={here.node if here is not None else None}")  # Of several on a machine.
    if not any(os.environ.get(name) for name in _TELLING):
        raise InvalidArgumentError(
            f"{local} ranks on this node share a node process: cannot determine which "
            f"processes belong together: none of {', '.join(_TELLING)} is set, and "
            "Node.local_rank does not identify a job; start them with torchrun or srun, or "
            "set MASTER_PORT to the same number on all of them, one that no other job here uses"
        )
    import hashlib  # It takes long to import: OpenSSL.

    return hashlib.sha256("\n".join(launch).encode()).hexdigest()[:16]


class _Process(subprocess.Popen[bytes]):
    """A node process. It ends when its last client is gone."""

    def __del__(self, *_: object) -> None:
        """Gives no warning: the process may outlive this one."""


_started: dict[tuple[int, str], _Process] = {}  # by process and socket
_NOBODY = "nobody serves it"  # in the core's error if no process has the socket
_open: defaultdict[tuple[int, str], set[int]] = defaultdict(set)  # loaders' ids, likewise
_ordinals: defaultdict[tuple[int, str], Iterator[int]] = defaultdict(itertools.count)


def open_core(
    dataset: Dataset, options: _core.LoaderOptions, place: NodePlace | None, loader: object
) -> _core.Loader:
    """Opens a core loader in this process or in the node process, which is started if needed."""
    if place is None:
        return _core.Loader(dataset.index, options)
    # All ranks make their loaders in the same order.
    ordinal = next(_ordinals[os.getpid(), place.socket])
    address = _core.NodeAddress(
        place.socket,
        f"{place.group}/{ordinal}",
        (place.local_rank, place.local_world_size),
        (place.process, place.lane, place.seats.positions),
        place.start_timeout,
    )
    began = time.monotonic()
    starts = 0
    answer: UnavailableError | None = None  # of a node process; it may have ended since
    while True:
        try:
            core = _core.Loader(dataset.index, options, address)
        except UnavailableError as error:
            waited_s = time.monotonic() - began
            if _NOBODY not in str(error):
                answer = error
            if waited_s >= place.wait_s or starts > _STARTS_MAX:
                why = answer or error
                raise UnavailableError(f"{_waited(place, waited_s)}: {why}") from why
            if place.service is None and place.local_rank == 0 and _start(place.socket):
                starts += 1
        else:
            _open[os.getpid(), place.socket].add(id(loader))
            return core
        time.sleep(_TRY_EVERY_S)


def _waited(place: NodePlace, waited_s: float) -> str:
    who = f"local rank {place.local_rank} of {place.local_world_size} waited {waited_s:.0f} s"
    if place.service is not None:
        return (
            f"{who} for the node service {place.service!r} of user {os.geteuid()}; check the name, "
            f"or start it with 'headrace node --name {shlex.quote(place.service)}'"
        )
    if place.local_rank == 0:
        return f"{who} for the node process that it started, and could not open a loader with it"
    return (
        f"{who} for the node process, which local rank 0 starts when it makes its loader: see that "
        "it does, in the same launch and with job=hr.Job(node=...) too, or raise Node.start_timeout"
    )


def _start(socket: str) -> bool:
    """Starts a node process that serves `socket`. Returns False if there is one already."""
    process = _started.get((os.getpid(), socket))
    if process is not None and process.poll() is None:
        return False
    with taking_descriptors("starting a node process"):
        _started[os.getpid(), socket] = _Process(
            [executable(), "--name", socket, *node_arguments()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # The ranks handle Ctrl-C.
        )
    return True


def closed_core(place: NodePlace | None, loader: object) -> None:
    """Call it after a loader was closed: waits for a node process that ends with this loader."""
    if place is None:
        return
    key = (os.getpid(), place.socket)
    _open[key].discard(id(loader))
    process = _started.get(key)
    if process is None:
        return
    if not _open[key] and place.local_world_size == 1:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    process.poll()
