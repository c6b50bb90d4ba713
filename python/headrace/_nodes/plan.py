"""The other nodes of a job: whether they are asked for samples, and how they find each other."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import os
import socket
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

from headrace import _core
from headrace._arguments import choice, flag, given_path, integer, shown
from headrace._nodes.launch import NODES, find_addresses, has_port
from headrace._nodes.meeting import Meeting, Met, Store
from headrace._nodes.process import NodePlace, Shared, tell_once
from headrace._nodes.ranks import Ranks
from headrace._options.groups import Ask, Node
from headrace._units import counted, parse_rate
from headrace.errors import InvalidArgumentError

_log = logging.getLogger("headrace.loader")

TOKEN = "HEADRACE_TOKEN"
"""Environment variable: the job's secret, where addresses are given."""
_LOOPBACK = "127.0.0.1"
_PORT_MAX = 65_535
_RATE_MIN = 1_000_000
"""Bytes a second. With fewer, a sample of some megabytes would come too late for its batch."""


@dataclass(frozen=True)
class NodePlan:
    """How this node takes part in the job."""

    node: int
    nodes: int
    wanted: Node
    store: Store | None  # None: addresses are given
    listen: str
    prefix: str  # of the keys of this loader
    rate: int  # bytes a second that may be asked for, and given; 0: no limit
    addresses: Sequence[str] = ()  # of all nodes of the group, if given


_OF_OTHERS = (
    *("addresses", "listen", "open_network", "certificate", "key", "authority"),
    *("certificate_name", "answer_timeout", "ask", "rate"),
)
"""The options of `Node` that say how other nodes are asked for samples."""

_ordinals: defaultdict[int, Iterator[int]] = defaultdict(itertools.count)  # by process


def what_nodes_share(options: _core.LoaderOptions) -> Shared | None:
    """What several nodes of a job give each other; None: nothing."""
    if options.tier_count > 0:
        return Shared("tiers", is_required=False)
    if options.order.exchanging_nodes > 1:
        return Shared(f"order {options.order.name}", is_required=True)
    return None


def node_plan(
    wanted: Node | None, ranks: Ranks, place: NodePlace | None, shared: Shared | None
) -> NodePlan | None:
    """How the job's nodes ask each other; None: they do not. What `wanted` has is checked, also
    where it has no effect.

    They do with a node process, several nodes, and something that these share. If no option of
    `wanted` says how, then only if torch's store can be reached and all nodes are on this machine;
    otherwise a warning says, once, what is missing.

    Raises:
        InvalidArgumentError: an option says how, and cannot be followed; or the order has each node
            read its own blocks only, and they cannot meet.
    """
    if wanted is None or place is None:
        return None
    rate = _check_values(wanted)
    default = Node()
    chosen = [name for name in _OF_OTHERS if getattr(wanted, name) != getattr(default, name)]
    if shared is None or len(place.seats.group) < 2:
        if chosen:
            _check_shared(chosen[0], ranks, place, shared)
        return None  # Nodes of unequal numbers of ranks: the core refuses tiers there.
    seats = place.seats
    node, count = seats.first // seats.positions, len(seats.group)
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    prefix = f"headrace/{run}/{seats.number}/{next(_ordinals[os.getpid()])}"
    way = way_to_meet(
        wanted,
        ranks.layout.world_size // place.local_world_size,
        seats.group,
        node,
        place.start_timeout,
    )
    if way.missing is None:
        return NodePlan(node, count, wanted, way.store, way.listen, prefix, rate, way.addresses)
    if chosen:
        raise InvalidArgumentError(
            f"Node.{chosen[0]}: other nodes cannot be asked for samples: {way.missing}"
        )
    if shared.is_required:
        raise InvalidArgumentError(
            f"{shared.what} on {count} nodes: they must send each other samples, but {way.missing}"
        )
    tell_once(
        f"tiers on {count} nodes: other nodes are not asked for samples, each reads storage: "
        f"{way.missing}"
    )
    return None


def _check_values(wanted: Node) -> int:
    """Checks the options of a node that concern others, whatever the job. Returns the rate."""
    choice("Node.ask", wanted.ask, get_args(Ask))
    integer("Node.answer_timeout", wanted.answer_timeout, 1, 3600)
    flag("Node.open_network", wanted.open_network)
    _secured(wanted)
    for name in ("listen", "certificate_name"):
        value = getattr(wanted, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise InvalidArgumentError(f"Node.{name}: got {shown(value)}, must be a text")
    if wanted.addresses is not None:
        _check_addresses("Node.addresses", wanted.addresses, None)
    return rate_bytes(wanted.rate)


def _secured(wanted: Node) -> dict[str, str]:
    """The paths of the three files that nodes authenticate each other by, all or none."""
    files = ("authority", "certificate", "key")
    paths = [getattr(wanted, name) for name in files]
    if any(paths) and not all(paths):
        raise InvalidArgumentError(
            "Node.certificate, key and authority: give all three files, or none"
        )
    return {
        name: given_path(f"Node.{name}", file) if file else ""
        for name, file in zip(files, paths, strict=True)
    }


@dataclass(frozen=True)
class Way:
    """How nodes meet, as far as it is known."""

    store: Store | None
    """None: addresses are given."""
    addresses: Sequence[str]
    """Of all nodes of the group, if they are given."""
    listen: str
    missing: str | None
    """Why they cannot meet, and what to do; None: they can."""


def way_to_meet(wanted: Node, nodes: int, members: Sequence[int], node: int, timeout_s: int) -> Way:
    """How a group of nodes meets.

    `members`: of the job's `nodes` nodes those of the group, `node` this one's place among them.
    """
    store: Store | None = None
    addresses = _addresses(wanted, nodes)
    if addresses:
        addresses = [addresses[member] for member in members]
        listen = wanted.listen or addresses[node]
    else:
        store, listen = _store(timeout_s), wanted.listen or _own_address()
    secured = wanted.open_network or wanted.certificate is not None
    missing = None
    if store is None and not addresses:
        missing = (
            "torch's store cannot be reached: make the loader after init_process_group(), start "
            "the ranks with torchrun, or give job=hr.Job(node=hr.Node(addresses=[...])) or the "
            f"environment variable {NODES}"
        )
    elif not secured and not is_loopback(listen) and wanted.addresses is None:
        missing = (
            "they are on other machines: give certificates, job=hr.Job(node=hr.Node("
            "certificate=..., key=..., authority=...)), or say that their network is private, "
            "job=hr.Job(node=hr.Node(open_network=True))"
        )
    return Way(store, addresses, listen, missing)


def check_order_nodes(order: _core.OrderSpec, ranks: Ranks, place: NodePlace | None) -> None:
    """Refuses an order's own number of nodes if the job is known to have another one.

    Raises:
        InvalidArgumentError: names both numbers.
    """
    named = "nodes" if "nodes" in order.parameters else "homes"
    own, launch = order.parameters.get(named), ranks.launch
    nodes = launch.nodes if launch is not None else None
    if place is not None and place.seats.group:
        nodes = ranks.layout.world_size // place.local_world_size
    if not isinstance(own, int) or nodes is None or own == nodes:
        return
    if named == "homes" and (own == 1 or nodes == 1):
        return  # Each node reads all that it delivers.
    by = launch or f"{ranks.layout.world_size} ranks, as Node says how many a node has"
    raise InvalidArgumentError(
        f"order {order.name}: {named}={own}, but this job has {counted(nodes, 'node')} ({by}): "
        f"give the order {named}={nodes}, or start the job on {counted(own, 'node')}"
    )


def _check_shared(option: str, ranks: Ranks, place: NodePlace, shared: Shared | None) -> None:
    """Raises if nodes have nothing to give each other: then `option` has no effect."""
    if shared is None:
        raise InvalidArgumentError(
            f"Node.{option} without tiers: other nodes give what their tiers hold, or what lies on "
            'their own disks; give tiers, as tiers=[hr.tiers.Ram("4GiB")], or the number of home '
            "disks, as order=hr.orders.Epoch(homes=2)"
        )
    if ranks.layout.world_size <= place.local_world_size:
        _log.info("Job.node: all %d ranks are on this node", ranks.layout.world_size)


def _addresses(wanted: Node, count: int) -> list[str]:
    """Those of all nodes of the job, if they are given."""
    addresses: Any = wanted.addresses
    name = "Node.addresses"
    if addresses is None:
        addresses, name = find_addresses(), f"environment {NODES}"
        if addresses is None:
            return []
    _check_addresses(name, addresses, count)
    if not os.environ.get(TOKEN):
        raise InvalidArgumentError(
            f"{name}: the environment variable {TOKEN} must hold a secret that all ranks "
            "of the job share, and nobody else knows"
        )
    return list(addresses)


def _check_addresses(name: str, addresses: Any, count: int | None) -> None:
    """Checks addresses of `count` nodes; None: of any number."""
    texts = isinstance(addresses, (list, tuple)) and all(
        isinstance(address, str) and ":" in address for address in addresses
    )
    if not texts or len(addresses) != (count or len(addresses)):
        of_all = "" if count is None else f"{count} "
        raise InvalidArgumentError(
            f"{name}: got {shown(addresses)}, must be a list of {of_all}texts 'host:port', "
            "one for each node, in the order of their ranks"
        )
    for address in addresses:
        port = address.rpartition(":")[2]
        if not port.isdecimal() or not 1 <= int(port) <= _PORT_MAX:
            raise InvalidArgumentError(
                f"{name}: {address!r} has the port {port!r}, must be a number from 1 to "
                f"{_PORT_MAX:,}"
            )
    if len(set(addresses)) < len(addresses):
        raise InvalidArgumentError(
            f"{name}: got {shown(addresses)}, must be different: each node listens on its own"
        )


def options_for_nodes(plan: NodePlan | None) -> dict[str, Any]:
    """What the core's options say of other nodes: where this one listens, and what it asks."""
    if plan is None:
        return {}
    wanted = plan.wanted
    nodes = {
        "address": plan.listen,
        "open_network": bool(wanted.open_network),
        "name": wanted.certificate_name or "",
    }
    return {"nodes": nodes | _secured(wanted), "tiers": {"ask": wanted.ask}}


def connect_nodes(core: Any, plan: NodePlan | None, place: NodePlace | None) -> list[str]:
    """Tells this node's process where the others are. The first rank of each node does.

    Returns the addresses of all nodes, in their order; none on other ranks.

    Raises:
        UnavailableError: a node did not say its address in time.
    """
    if plan is None or place is None or place.local_rank != 0:
        return []
    if plan.store is None:
        addresses, token = list(plan.addresses), os.environ[TOKEN]
    else:
        addresses, token = meet(plan, plan.store, core.peer_address, place.start_timeout)
    timeouts = int(plan.wanted.answer_timeout), place.start_timeout
    core.connect_nodes(plan.node, addresses, token, timeouts, plan.rate)
    return addresses


def meet(plan: NodePlan, store: Store, address: str, timeout_s: int) -> tuple[list[str], str]:
    """Tells the other nodes this one's address. Returns those of all, and the secret of the job.

    Raises:
        UnavailableError: a node did not say its address in time.
        InvalidArgumentError: a node's address cannot be reached.
    """
    met = Meeting(store, plan.prefix, plan.node, plan.nodes).hold(address, _machine(), timeout_s)
    _check_reachable(plan.node, met)
    return met.addresses, met.token


def rate_bytes(value: int | str | None) -> int:
    """Bytes a second; 0: no limit."""
    if value is None:
        return 0
    if isinstance(value, str):
        value = parse_rate(value, "Node.rate")
    return integer("Node.rate", value, _RATE_MIN, 2**62)


def _machine() -> str:
    """A text that no other running machine has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _check_reachable(own: int, met: Met) -> None:
    """Refuses addresses that mean another machine on another machine."""
    for node, (address, machine) in enumerate(zip(met.addresses, met.machines, strict=True)):
        if machine != met.machines[own] and is_loopback(address):
            raise InvalidArgumentError(
                f"Job.node: node {node} listens at {address}, and node {own} is another machine, "
                "which cannot reach it there: set MASTER_ADDR to a host that all nodes reach, or "
                "give each node its own job=hr.Job(node=hr.Node(listen=...))"
            )


def _store(timeout_s: int) -> Store | None:
    """torch's store of the job: of its process group, or torchrun's."""
    started_by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    torch: Any = sys.modules.get("torch")
    if started_by_torchrun:  # A script with a loader of arrays need not import it itself.
        with contextlib.suppress(ImportError):
            torch = importlib.import_module("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available():
        return None
    if distributed.is_initialized():
        # The store has no public name; torch's own extensions use this one.
        with contextlib.suppress(ValueError, RuntimeError):  # The backend "mpi" has none.
            return distributed.distributed_c10d._get_default_store()  # type: ignore[no-any-return]
        return None
    if not started_by_torchrun:
        return None
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        return None
    return distributed.TCPStore(  # type: ignore[no-any-return]
        host, int(port), is_master=False, timeout=timedelta(seconds=timeout_s)
    )


def _own_address() -> str:
    """The address of this machine from which it reaches the one of rank 0."""
    host = os.environ.get("MASTER_ADDR") or os.environ.get("SLURM_LAUNCH_NODE_IPADDR", _LOOPBACK)
    try:
        family, kind, protocol, _, to = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(to)  # Sends nothing.
            own = str(probe.getsockname()[0])
    except OSError:
        return _LOOPBACK
    return f"[{own}]" if ":" in own else own


def is_loopback(address: str) -> bool:
    """Of 'host:port' or a host alone; IPv6 in brackets if there is a port."""
    host = address.rpartition(":")[0] if has_port(address) else address
    return host.startswith("127.") or host in ("localhost", "[::1]", "::1")
