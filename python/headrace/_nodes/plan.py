"""The other nodes of a job: whether they are asked for samples, and how they find each other."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import socket
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from headrace import _core
from headrace._arguments import flag, given_path, integer, shown
from headrace._loading.node import NodePlace
from headrace._loading.ranks import Ranks
from headrace._options.groups import Nodes, group
from headrace.errors import InvalidArgumentError, UnavailableError

_log = logging.getLogger("headrace.loader")

TOKEN = "HEADRACE_TOKEN"
"""Environment variable: the job's secret, where addresses are given."""
_LOOPBACK = "127.0.0.1"


class Store(Protocol):
    """What torch's stores have, as far as it is used here."""

    def set(self, key: str, value: str) -> object:
        """Sets a value, for all processes of the job."""

    def get(self, key: str) -> bytes:
        """Waits for a value."""


@dataclass(frozen=True)
class NodePlan:
    """How this node takes part in the job."""

    node: int
    nodes: int
    given: Nodes
    store: Store | None  # None: addresses are given
    listen: str
    prefix: str  # of the keys of this loader


_ordinals: defaultdict[int, Iterator[int]] = defaultdict(itertools.count)  # by process
_told: set[str] = set()


def node_plan(
    nodes: Nodes | None, ranks: Ranks, place: NodePlace | None, has_tiers: bool
) -> NodePlan | None:
    """How the job's nodes ask each other; None: they do not.

    They do with a node process, tiers, and several nodes. Without `nodes`, if torch's store can be
    reached and all nodes are on this machine; otherwise a warning says, once, what is missing.

    Raises:
        InvalidArgumentError: `nodes` is given and cannot be followed.
    """
    wanted = group("nodes", nodes, Nodes)
    if place is None or not has_tiers or ranks.world_size <= place.local_world_size:
        if nodes is not None:
            _refuse(ranks, place, has_tiers)
        return None
    if ranks.world_size % place.local_world_size or ranks.rank % place.local_world_size != (
        place.local_rank
    ):
        return None  # The core refuses tiers on such ranks, with the numbers.
    node, count = ranks.rank // place.local_world_size, ranks.world_size // place.local_world_size
    prefix = f"headrace/{next(_ordinals[os.getpid()])}"
    if wanted.addresses is not None:
        addresses = _addresses(wanted, count)
        return NodePlan(node, count, wanted, None, wanted.listen or addresses[node], prefix)
    store = _store()
    listen = wanted.listen or _own_address()
    secured = wanted.open_network or wanted.certificate is not None
    missing = None
    if store is None:
        missing = (
            "torch's store cannot be reached: make the loader after init_process_group(), start "
            "the ranks with torchrun, or give nodes=hr.Nodes(addresses=[...])"
        )
    elif not secured and not _is_loopback(listen):
        missing = (
            "they are on other machines: give certificates, nodes=hr.Nodes(certificate=..., "
            "key=..., authority=...), or say that their network is private, "
            "nodes=hr.Nodes(open_network=True)"
        )
    if missing is None:
        return NodePlan(node, count, wanted, store, listen, prefix)
    if nodes is not None:
        raise InvalidArgumentError(f"nodes: other nodes cannot be asked for samples: {missing}")
    if missing not in _told:
        _told.add(missing)
        _log.warning(
            "tiers on %d nodes: other nodes are not asked for samples, each reads storage: %s",
            count,
            missing,
        )
    return None


def _refuse(ranks: Ranks, place: NodePlace | None, has_tiers: bool) -> None:
    if place is None:
        raise InvalidArgumentError(
            "nodes= without node_process=: samples travel between node processes; add "
            "node_process=hr.NodeProcess()"
        )
    if not has_tiers:
        raise InvalidArgumentError(
            "nodes= without tiers=: other nodes give what their tiers hold; say what may be used, "
            'as tiers=[hr.tiers.Ram("4GiB")]'
        )
    if ranks.world_size <= place.local_world_size:
        _log.info("nodes=: all %d ranks are on this node", ranks.world_size)


def _addresses(wanted: Nodes, count: int) -> list[str]:
    given: Any = wanted.addresses
    texts = isinstance(given, (list, tuple)) and all(isinstance(each, str) for each in given)
    if not texts or len(given) != count or not all(":" in each for each in given):
        raise InvalidArgumentError(
            f"Nodes.addresses: got {shown(given)}, must be a list of {count} texts 'host:port', "
            "one for each node, in the order of their ranks"
        )
    if not os.environ.get(TOKEN):
        raise InvalidArgumentError(
            f"Nodes.addresses: the environment variable {TOKEN} must hold a secret that all ranks "
            "of the job share, and nobody else knows"
        )
    return list(given)


def set_nodes(options: _core.LoaderOptions, plan: NodePlan | None) -> None:
    """Writes into the options where this node listens."""
    if plan is None:
        return
    wanted = plan.given
    files = ("authority", "certificate", "key")
    given = [getattr(wanted, name) for name in files]
    if any(given) and not all(given):
        raise InvalidArgumentError(
            "Nodes.certificate, key and authority: give all three files, or none"
        )
    authority, certificate, key = (
        given_path(f"Nodes.{name}", each) if each else ""
        for name, each in zip(files, given, strict=True)
    )
    options.set_nodes(
        plan.listen,
        flag("Nodes.open_network", wanted.open_network),
        authority,
        certificate,
        key,
        wanted.certificate_name or "",
    )


def connect_nodes(core: Any, plan: NodePlan | None, place: NodePlace | None) -> list[str]:
    """Tells this node's process where the others are. The first rank of each node does.

    Returns the addresses of all nodes, in their order; none on other ranks.

    Raises:
        UnavailableError: a node did not say its address in time.
    """
    if plan is None or place is None or place.local_rank != 0:
        return []
    answer = integer("Nodes.answer_timeout", plan.given.answer_timeout, 1, 3600)
    if plan.store is None:
        addresses, token = list(plan.given.addresses or ()), os.environ[TOKEN]
    else:
        addresses, token = _exchange(plan, plan.store, core.peer_address, place.start_timeout)
    core.connect_nodes(plan.node, addresses, token, answer, place.start_timeout)
    return addresses


def _exchange(plan: NodePlan, store: Store, address: str, timeout: int) -> tuple[list[str], str]:
    """All addresses, by node, and the token, which node 0 makes."""
    set_timeout = getattr(store, "set_timeout", None)
    if set_timeout is not None:
        set_timeout(timedelta(seconds=timeout))
    if plan.node == 0:
        store.set(f"{plan.prefix}/token", secrets.token_hex(32))
    store.set(f"{plan.prefix}/node/{plan.node}", address)
    waiting = "its token"
    try:
        token = store.get(f"{plan.prefix}/token").decode()
        addresses = []
        for node in range(plan.nodes):
            waiting = f"the address of node {node}"
            addresses.append(store.get(f"{plan.prefix}/node/{node}").decode())
    except Exception as error:  # torch has no type for a store's timeout.
        raise UnavailableError(
            f"node {plan.node} of {plan.nodes} waited {timeout} s for {waiting}: all ranks must "
            f"make their loaders, in the same order, with node_process= and tiers=: {error}"
        ) from error
    return addresses, token


def _store() -> Store | None:
    """torch's store of the job: of its process group, or torchrun's."""
    torch: Any = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available():
        return None
    if distributed.is_initialized():
        # The store has no public name; torch's own extensions use this one. It is the group's own,
        # so what an earlier launch wrote is not in it.
        found: Any = distributed.distributed_c10d._get_default_store()
        return distributed.PrefixStore("headrace", found)  # type: ignore[no-any-return]
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        return None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # As torch tells launches apart.
    return distributed.PrefixStore(  # type: ignore[no-any-return]
        f"headrace/attempt_{attempt}", distributed.TCPStore(host, int(port), is_master=False)
    )


def _own_address() -> str:
    """The address of this machine from which it reaches the one of rank 0."""
    host = os.environ.get("MASTER_ADDR", _LOOPBACK)
    try:
        family, kind, protocol, _, to = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(to)  # Sends nothing.
            own = str(probe.getsockname()[0])
    except OSError:
        return _LOOPBACK
    return f"[{own}]" if ":" in own else own


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0] if address.count(":") == 1 else address
    return host.startswith("127.") or host in ("localhost", "[::1]", "::1")
