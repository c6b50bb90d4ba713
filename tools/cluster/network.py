"""The nodes' network: namespaces around a switch, or addresses of the loopback device."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

NODES_MAX = 64
PEER_PORT = 4100  # of namespaces, whose ports are all free
MASTER_PORT = 29500
_COMMAND_S = 30.0
# What tbf may send at once: ten milliseconds, and never less than a large segment has.
_BURST_PER_S = 100
_BURST_BYTES_MIN = 2**17
_QUEUE_MS = 20  # that a packet may wait for its turn; more are dropped, and TCP slows down
# Whether links can be made and limited here, tried in a namespace that ends with the program.
_TRIAL = (
    "ip link add name link0 type veth peer name link1 && ip link add name switch type bridge && "
    "tc qdisc add dev link0 root tbf rate 1mbit burst 128kb latency 20ms"
)


@dataclass(frozen=True)
class Place:
    """Where a node runs, and where the others reach it."""

    address: str
    interface: str
    listen: str  # host:port, for its node process
    reached: str  # host:port where others reach that: not the same if a relay is between
    enter: tuple[str, ...]  # comes before a command


@dataclass(frozen=True)
class Network:
    """The nodes' places, and how they meet."""

    places: Sequence[Place]
    master_port: int
    said: str  # what it is, for people
    holders: tuple[int, ...] = ()  # processes that keep it


def why_no_namespaces() -> str | None:
    """Why nodes cannot be namespaces here; None: they can."""
    if os.geteuid() != 0:
        return "not root"
    for program in ("ip", "tc", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"no program {program}"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", _TRIAL],
        capture_output=True, text=True, check=False, timeout=_COMMAND_S,
    )  # fmt: skip
    return None if tried.returncode == 0 else tried.stderr.strip() or "not permitted"


class Namespaces:
    """A namespace for each node and one for a bridge between them, as long as the `with` lasts.

    They have no names: the kernel removes a namespace, and all that is in it, with its last
    process. The first process of each ends with this one, however that ends.
    """

    def __init__(self, nodes: int, link_bits_per_s: int | None) -> None:
        self._nodes = nodes
        self._link = link_bits_per_s
        self._holders = ExitStack()

    def __enter__(self) -> Network:
        try:
            return self._made()
        except BaseException:
            self._holders.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._holders.close()

    def _made(self) -> Network:
        holders = [self._holders.enter_context(_Holder()) for _ in range(self._nodes + 1)]
        *nodes, switch = holders
        lines = ["link add name switch type bridge", "link set switch up"]
        for number, node in enumerate(nodes):
            port = f"node{number}"
            lines += [
                f"link add name {port} type veth peer name eth0 netns {node.pid}",
                f"link set {port} master switch up",
            ]
        switch.run(["ip"], lines)
        places = []
        for number, node in enumerate(nodes):
            address = f"10.77.0.{number + 1}"
            node.run(
                ["ip"],
                ["link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up"],
            )
            at = f"{address}:{PEER_PORT}"
            places.append(Place(address, "eth0", at, at, node.enter))
        said = f"{self._nodes} nodes, each a network namespace; links "
        pids = tuple(each.pid for each in holders)
        if self._link is None:
            return Network(places, MASTER_PORT, said + "not limited", pids)
        for node in nodes:
            node.run(["tc"], [_limited("eth0", self._link)])
        switch.run(["tc"], [_limited(f"node{at}", self._link) for at in range(self._nodes)])
        said += f"of {self._link / 1e6:,.0f} Mbit/s in each direction, by tc"
        return Network(places, MASTER_PORT, said, pids)


def _limited(device: str, bits_per_s: int) -> str:
    burst = max(_BURST_BYTES_MIN, bits_per_s // 8 // _BURST_PER_S)
    return (
        f"qdisc add dev {device} root tbf rate {bits_per_s}bit burst {burst}b latency {_QUEUE_MS}ms"
    )


class _Holder:
    """A process in a new namespace, which ends when its input does: with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo here && exec cat >/dev/null"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self.enter = ("nsenter", f"--net=/proc/{self.pid}/ns/net", "--")

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"here\n":
            self.__exit__()
            raise OSError("making a network namespace: unshare failed")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def run(self, command: Sequence[str], lines: Sequence[str]) -> None:
        """Runs `ip` or `tc` in the namespace."""
        done = subprocess.run(
            [*self.enter, *command, "-batch", "-"],
            input="\n".join(lines) + "\n",
            capture_output=True, text=True, check=False, timeout=_COMMAND_S,
        )  # fmt: skip
        if done.returncode != 0:
            raise OSError(f"{command[0]} {lines}: {done.stderr.strip()}")


def free_ports(hosts: Sequence[str]) -> list[int]:
    """A port of each host that nobody uses, below those that the kernel gives to connections: a
    program that starts later does not find it taken by one of them."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: list[int] = []
    with ExitStack() as held:
        for host in hosts:
            for port in random.sample(range(max(1024, first - 16_384), first), 64):
                probe = held.enter_context(socket.socket())
                with suppress(OSError):
                    probe.bind((host, port))
                    ports.append(port)
                    break
            else:
                raise OSError(f"{host}: 64 ports below {first} are all in use")
    return ports


def loopback(nodes: int, link_bits_per_s: int | None, why: str) -> Network:
    """Nodes that are addresses of the loopback device, on free ports."""
    pairs = [f"127.0.0.{number + 1}" for number in range(nodes) for _ in range(2)]
    ports = free_ports([*pairs, "127.0.0.1"])
    places = []
    for number in range(nodes):
        address = f"127.0.0.{number + 1}"
        listen = f"{address}:{ports[2 * number]}"
        reached = listen if link_bits_per_s is None else f"{address}:{ports[2 * number + 1]}"
        places.append(Place(address, "lo", listen, reached, ()))
    said = f"{nodes} nodes, each an address of the loopback device ({why}); links not limited"
    if link_bits_per_s is not None:
        said = said.removesuffix("not limited") + (
            f"of {link_bits_per_s / 1e6:,.0f} Mbit/s in each direction, by relays of what nodes "
            "give each other (HEADRACE_CLUSTER_ADDRESSES), and of nothing else"
        )
    return Network(places, ports[-1], said)


def token() -> str:
    """A secret of the job."""
    return secrets.token_hex(32)
