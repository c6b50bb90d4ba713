"""One actor a node of a Ray cluster that owns the node's process `headrace-node`.

Loaders of the workers on that node attach to the process by its local socket: samples never go
through Ray. The process ends with its actor, however that ends, and Ray starts the actor again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from headrace import _core
from headrace._arguments import flag, integer
from headrace._descriptors import taking_descriptors
from headrace._nodes.process import executable, service_socket
from headrace._options.groups import Node
from headrace._process.helpers import node_arguments
from headrace._units import format_bytes, parse_share_or_bytes
from headrace.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from headrace.ray._cluster import check_version, connected, ray_module

NAME = "headrace"
_NODES_MAX = 2**16
_START_S = 30.0  # that a node process may take to start on a busy machine
_TRY_EVERY_S = 0.01
_END_S = 10.0

# Has the kernel end the process with the actor's, and becomes the program.
_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class NodeActors:
    """The node processes of a cluster: what `start_nodes` returns.

    Leaving a `with` block of it stops them.
    """

    def __init__(self, ray: Any, name: str, group: Any, actors: list[Any]) -> None:
        self._ray = ray
        self._name = name
        self._group = group
        self._actors = actors

    def __repr__(self) -> str:
        return f"<headrace.ray.NodeActors {self._name!r}: {self.count} nodes>"

    @property
    def count(self) -> int:
        """The number of nodes that have a node process."""
        return len(self._actors)

    @property
    def actors(self) -> list[Any]:
        """The actors' handles, such as for `ray.kill`."""
        return list(self._actors)

    def stop(self) -> None:
        """Ends the processes and the actors, and frees what Ray reserved for them."""
        ended = [actor.stop.remote() for actor in self._actors]
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.wait(ended, num_returns=len(ended), timeout=_END_S)
        for actor in self._actors:
            self._ray.kill(actor)
        self._ray.util.remove_placement_group(self._group)
        self._actors = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def start_nodes(
    count: int | None = None,
    *,
    name: str = NAME,
    memory: int | str | None = None,
    resources: Mapping[str, float] | None = None,
    detached: bool = False,
    timeout: int = 60,
) -> NodeActors:
    """Starts a node process on each of `count` nodes of the Ray cluster, no two on one node.

    Call it in the driver, before the workers start. Connects to the cluster if the program has not.
    Node processes of the same `name` that already run are reused.

    Args:
        count: number of nodes; default: all that the cluster has now.
        name: name of the node processes, in the program's Ray namespace.
        memory: limit of all jobs on a node, such as "64GiB" or "50%" of the node; default: none.
        resources: what Ray reserves for each, such as {"CPU": 4}; default: one CPU. It does not
            limit the process.
        detached: whether they keep running after this program ends, for the next one.
        timeout: seconds to wait for the nodes, and then for the processes.

    Raises:
        ImportError: Ray is not installed.
        UnavailableError: there is no cluster; a process did not start.
        ResourceExhaustedError: Ray has no room for them on that many nodes.
    """
    doing = "headrace.ray.start_nodes()"
    timeout = integer("start_nodes timeout", timeout, 1, 10**6)
    lifetime = "detached" if flag("start_nodes detached", detached) else None
    if memory is not None and not isinstance(memory, (int, str)):
        raise InvalidArgumentError(f"start_nodes memory: got {memory!r}, must be bytes or a text")
    bundle = dict(resources or {"CPU": 1})
    service_socket(name)  # Refuses what is no name.
    ray = connected(doing)
    there = sum(1 for node in ray.nodes() if node["Alive"])
    wanted = there if count is None else integer("start_nodes count", count, 1, _NODES_MAX)
    group = _group(ray, name)
    is_new = group is None
    if group is None:
        group = ray.util.placement_group(
            [bundle] * wanted, strategy="STRICT_SPREAD", name=_named(name), lifetime=lifetime
        )
        try:
            is_placed = group.wait(timeout)
        except BaseException:  # also on Ctrl-C
            ray.util.remove_placement_group(group)
            raise
        if not is_placed:
            ray.util.remove_placement_group(group)
            raise ResourceExhaustedError(
                f"{doing}: Ray found no place within {timeout} s: {wanted} nodes with {bundle} "
                f"free on each are needed, the cluster has {there} nodes; give a smaller count, "
                "resources= that are free, or a longer timeout"
            )
    elif group.bundle_count != wanted and count is not None:
        raise FailedPreconditionError(
            f"{doing}: {name!r} runs already on {group.bundle_count} nodes, not {wanted}: stop "
            "them, or give another name"
        )
    actor_class = ray.remote(max_restarts=-1, max_task_retries=-1)(_NodeActor)
    actors = [
        actor_class.options(
            name=_named(name, number),
            get_if_exists=True,
            lifetime=lifetime,
            num_cpus=bundle.get("CPU", 0),
            resources={key: value for key, value in bundle.items() if key not in ("CPU", "GPU")},
            scheduling_strategy=ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=number
            ),
        ).remote(_core.version, memory)
        for number in range(group.bundle_count)
    ]
    nodes = NodeActors(ray, name, group, actors)
    try:
        ray.get([actor.attach.remote() for actor in actors], timeout=timeout)
    except BaseException as error:
        if is_new:
            nodes.stop()
        if isinstance(error, ray.exceptions.RayError):
            raise _failed(ray, doing, error, timeout) from error
        raise
    return nodes


def node_process(
    name: str = NAME,
    *,
    local_rank: int | None = None,
    local_world_size: int | None = None,
    start_timeout: int = 600,
    **others: Any,
) -> Node:
    """The node process of the Ray node that this worker runs on, for `Job(node=...)`.

    Call it in a worker: an actor, a task, or the training function of Ray Train. Waits while
    the process is being restarted.

    Args:
        name: the `name` given to `start_nodes`.
        local_rank, local_world_size: of this worker among those of its node; default: those of Ray
            Train, else 0 of 1.
        start_timeout: seconds to wait, here for the process, later for other ranks.
        others: further options of `headrace.Node`, such as ``open_network=True``.

    Raises:
        NotFoundError: `start_nodes` was not called, or not with this name.
        FailedPreconditionError: this node has no node process, or Ray is not connected.
        DeadlineExceededError, UnavailableError: the process did not restart.
    """
    doing = "headrace.ray.node_process()"
    start_timeout = integer("node_process start_timeout", start_timeout, 1, 10**6)
    ray = ray_module(doing)
    if not ray.is_initialized():
        raise FailedPreconditionError(f"{doing}: this process is no worker of Ray: call it in one")
    group = _group(ray, name)
    if group is None:
        raise NotFoundError(
            f"{doing}: there are no node processes named {name!r} in this namespace of Ray: call "
            f"headrace.ray.start_nodes(name={name!r}) in the driver, and keep what it returns"
        )
    node = ray.get_runtime_context().get_node_id()
    places = ray.util.placement_group_table(group)["bundles_to_node_id"]
    numbers = [number for number, place in places.items() if place == node]
    if not numbers:
        raise FailedPreconditionError(
            f"{doing}: the {len(places)} node processes of {name!r} are on other nodes, none on "
            f"Ray's node {node}, where this worker runs: start one on each node"
        )
    try:
        actor = ray.get_actor(_named(name, int(numbers[0])))
        service = ray.get(actor.attach.remote(), timeout=start_timeout)
    except (ray.exceptions.RayError, ValueError) as error:
        raise _failed(ray, doing, error, start_timeout) from error
    return Node(
        name=service,
        local_rank=local_rank,
        local_world_size=local_world_size,
        start_timeout=start_timeout,
        **others,
    )


def _named(name: str, number: int | None = None) -> str:
    return f"headrace-node/{name}" + ("" if number is None else f"/{number}")


def _group(ray: Any, name: str) -> Any:
    """Ray's placement group of the node processes; None: there is none."""
    try:
        return ray.util.get_placement_group(_named(name))
    except ValueError:
        return None


def _failed(ray: Any, doing: str, error: Exception, timeout: int) -> Exception:
    if isinstance(error, ray.exceptions.GetTimeoutError):
        return DeadlineExceededError(
            f"{doing}: the actor of a node process did not answer within {timeout} s: its node may "
            "have been lost; add a node to the cluster, or call start_nodes() again"
        )
    cause = getattr(error, "cause", None)
    if isinstance(cause, HeadraceError):
        return cause
    return UnavailableError(f"{doing}: {error}; call start_nodes() again")


class _NodeActor:
    """Owns a node process. Ray calls it, one call at a time, on one thread."""

    def __init__(self, version: str, memory: int | str | None) -> None:
        self._version = version
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._name = ""

    def attach(self) -> str:
        """The name of the process, which runs: it is started again if it ended."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        return self._name

    def pid(self) -> int:
        """Of the process, which runs."""
        self.attach()
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _start(self) -> None:
        check_version(self._version)
        memory = [] if self._memory is None else ["--memory", str(_bytes_of(self._memory))]
        # Another name each time: the one before may take a moment to end.
        self._name = f"ray-{os.getpid()}-{os.urandom(8).hex()}"
        address = service_socket(self._name)
        program = [executable(), "--name", address, "--service", *node_arguments(), *memory]
        with taking_descriptors("starting a node process"):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid()), *program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + _START_S
        while not _serves(address):
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.stop()
                raise UnavailableError(
                    f"starting a node process on {socket.gethostname()}: "
                    + (f"it ended with {code}" if code is not None else f"not in {_START_S:.0f} s")
                    + "; see the log of its Ray actor"
                )
            time.sleep(_TRY_EVERY_S)


def _serves(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        return probe.connect_ex(f"\0{address}") == 0


def _bytes_of(memory: int | str) -> int:
    usable = _core.memory_limit_bytes()
    parsed = memory if isinstance(memory, int) else parse_share_or_bytes(memory, "memory", usable)
    if not 0 < parsed <= usable:
        raise InvalidArgumentError(
            f"start_nodes memory: got {memory!r}, but {socket.gethostname()} has "
            f"{format_bytes(usable)}; give less, or a share such as '50%'"
        )
    return parsed
