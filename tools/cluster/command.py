"""The command line: `python tools/cluster run -n 3 --link 1Gbit --storage 200MB/s -- COMMAND`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TypeVar

from cluster import amounts
from cluster.groups import Groups, Limits
from cluster.network import (
    NODES_MAX,
    Namespaces,
    Network,
    loopback,
    token,
    why_no_namespaces,
)
from cluster.ranks import Job, Ranks, adopt_orphans, say
from cluster.relay import Relays

_T = TypeVar("_T")
_RANKS_MAX = 64

_HELP = """Runs a command on several nodes, all on this machine.

As root each node is a network namespace: links between them are veth pairs and a bridge, limited by
tc. Otherwise nodes are addresses 127.0.0.1, 127.0.0.2, ... of the loopback device. Storage and
memory of each node are limited by control groups. First it prints what cannot be limited here.

The command runs once on each node, or --ranks times, with what torchrun sets (RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT), HEADRACE_TOKEN, and

  HEADRACE_CLUSTER_ADDRESSES  where the nodes reach each other, by commas
  HEADRACE_CLUSTER_LISTEN     where this one listens

for hr.Node(addresses=..., listen=..., open_network=True). If a rank fails, the others are ended.
Nothing is left at the end: processes, namespaces, control groups.

  python tools/cluster run -n 3 --link 1Gbit --storage 200MB/s -- python train.py
  python tools/cluster run -n 2 -- sh -c 'torchrun --nnodes 2 --node-rank $GROUP_RANK \\
      --master-addr $MASTER_ADDR --master-port $MASTER_PORT --local-addr $MASTER_ADDR train.py'
"""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, the first failing rank's, or 128 and the signal."""
    given = _parser().parse_args(arguments)
    if not given.command:
        raise SystemExit("cluster: no command: write it after --")
    adopt_orphans()
    return asyncio.run(_run(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser(
        "run", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter,
        help="run a command on several nodes",
    )  # fmt: skip
    run.add_argument("-n", "--nodes", type=_count(NODES_MAX), required=True, metavar="N")
    run.add_argument(
        "--ranks", type=_count(_RANKS_MAX), default=1, metavar="N", help="of each node (default 1)"
    )
    run.add_argument(
        "--link", type=_amount(amounts.bits_per_s), metavar="RATE",
        help="of each node's link, in each direction: 1Gbit, 125MB/s",
    )  # fmt: skip
    run.add_argument(
        "--storage", type=_amount(amounts.bytes_per_s), metavar="RATE",
        help="at which each node reads: 200MB/s",
    )  # fmt: skip
    run.add_argument(
        "--reads", type=_count(10**9), metavar="N", help="that each node may make a second"
    )
    run.add_argument(
        "--storage-path", type=Path, default=Path(), metavar="PATH",
        help="on the disk whose reads are limited (default: the current folder)",
    )  # fmt: skip
    run.add_argument(
        "--memory", type=_amount(amounts.size), metavar="SIZE", help="of each node: 2GiB"
    )
    run.add_argument("--loopback", action="store_true", help="make no namespaces, also as root")
    run.add_argument(
        "--keep-going", action="store_true", help="do not end the others if a rank fails"
    )
    run.add_argument(
        "--grace", type=float, default=10.0, metavar="SECONDS",
        help="that ranks have to end, before they are killed (default 10)",
    )  # fmt: skip
    run.add_argument("command", nargs=argparse.REMAINDER, help="of each node, after --")
    return parser


def _amount(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    def parsed(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _count(most: int) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"got {text!r}, must be 1 to {most}")
        return int(text)

    return parsed


async def _run(given: argparse.Namespace) -> int:
    command = given.command[1:] if given.command[0] == "--" else given.command
    job = Job(
        command, given.ranks, {**os.environ, "HEADRACE_TOKEN": token()}, given.grace,
        given.keep_going,
    )  # fmt: skip
    limits = Limits(given.storage, given.reads, given.memory)
    # Signals end the job from here on; while something is made, when it is made.
    ranks: list[Ranks] = []
    stops: list[int] = []

    def stop(signum: int) -> None:
        stops.append(signum)
        for each in ranks:
            each.stop(signum)

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, stop, signum)
    with ExitStack() as made:
        groups = made.enter_context(Groups(given.nodes, limits, given.storage_path))
        network, relayed = _network(given, made)
        say("; ".join([network.said, *groups.said]))
        async with AsyncExitStack() as relays:
            if relayed:
                await relays.enter_async_context(Relays(list(network.places), given.link))
            ranks.append(Ranks(job, network, groups.joins))
            if stops:
                return 128 + stops[0]
            return await ranks[0].run()


def _network(given: argparse.Namespace, made: ExitStack) -> tuple[Network, bool]:
    """The network, and whether relays limit its links."""
    why = "as asked for" if given.loopback else why_no_namespaces()
    if why is None:
        return made.enter_context(Namespaces(given.nodes, given.link)), False
    return loopback(given.nodes, given.link, why), given.link is not None
