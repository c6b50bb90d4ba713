"""Ranks of a node, each in a process of its own that does what the test tells it."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forks import shared_server

import headrace as hr
from headrace._nodes import process as node

PATIENCE_S = 100.0  # Only against a hang: a busy machine takes seconds for what takes a moment.

PROGRAM = """
import hashlib, json, os, select, sys, warnings
import numpy as np
import headrace as hr
from headrace._nodes import process as node
from loader_data import FLAT, batch_digests, payload_ids

loader, batches, held = None, None, []

def open_(root, ssd=None, ram=None, node=None, engine=None, placement=None, job=None, order=None,
          raw=False, **arguments):
    global loader
    if order is not None:  # A name; or that of a class, and its arguments.
        named = isinstance(order, str)
        arguments["order"] = order if named else getattr(hr.orders, order[0])(**order[1])
    tiers = [] if ram is None else [hr.tiers.Ram(ram)]
    if ssd is not None:
        tiers.append(hr.tiers.Ssd(ssd, "16MiB"))
    if tiers or placement is not None:
        arguments["tiers"] = hr.Cache(tiers, placement=placement or hr.Cache.placement)
    loader = hr.Loader(root, transform=None if raw else FLAT, output=hr.Output("numpy", ids=True),
                       job=hr.Job(node=hr.Node(**node or {}), **job or {}),
                       engine=hr.EngineOptions(**engine or {}), **arguments)
    return len(loader)

def environment(**values):
    os.environ.update(values)

def labels(root, epochs, **arguments):
    # Of tests of little memory, where it is right or not as time has it.
    warnings.filterwarnings("ignore", ".* of memory for batches are not enough")
    with hr.Loader(root, output=hr.Output("numpy", fields=["label"], ids=True),
                   job=hr.Job(node=hr.Node()), **arguments) as loader:
        return [[[int(number) for number in batch.sample_id] for batch in loader]
                for _ in range(epochs)]

def steps(count):
    global batches
    ids = []
    for _ in range(count):
        if batches is None:
            batches = iter(loader)
        try:
            ids.append(payload_ids(next(batches)))
        except StopIteration:
            batches = None
            break
    return ids

def epoch():
    global batches
    batches = None
    return [payload_ids(batch) for batch in loader]

def account():
    return loader.explain().sentences

def planned():
    from headrace.papers.redox import RedoxSampler
    return [list(batch) for batch in RedoxSampler(loader)]

def contents(count=None):
    # Of so many steps, or the rest of the epoch: the samples of each batch, and their bytes.
    global batches
    if batches is None:
        batches = iter(loader)
    found = []
    while count is None or len(found) < count:
        batch = next(batches, None)
        if batch is None:
            batches = None
            break
        found.append(batch_digests(batch))
    return found

def rows():
    return [
        [[int(number), hashlib.sha256(row.tobytes()).hexdigest()]
         for number, row in zip(batch.sample_id, batch.image)]
        for batch in loader
    ]

def forever():
    while True:
        for batch in batches or loader:
            pass
        leave()

def hold():
    global batches
    if batches is None:
        batches = iter(loader)
    held.append(next(batches))
    return payload_ids(held[-1])

def look():
    return [payload_ids(batch) for batch in held]

def drop():
    held.clear()

def leave():
    global batches
    batches = None

def state():
    return loader.state_dict()

def load(state):
    leave()
    loader.load_state_dict(state)

def stats():
    return loader.stats()["batches"]

def counted():
    # What an audit needs of stats().
    found = loader.stats()
    return {name: found[name] for name in ("epochs", "substituted", "substitutions")}

def audit(reports):
    return loader.audit(reports)

def figures(*names):
    found = loader.stats()
    return [found[name] for name in names]

def prometheus():
    return loader.prometheus()

def explain(step):
    return [row["sample"] for row in loader.explain(step).rows if row["field"] == "image"]

def sources(step):
    # Of each row of a step: its sample, and where the plan takes it from.
    return [[row["sample"], row["source"]] for row in loader.explain(step).rows
            if row["field"] == "image"]

def close():
    leave()
    loader.close()

def node_pid():
    return node._started[os.getpid(), loader._feed._session.place.socket].pid

def fork():
    child = os.fork()
    if child == 0:
        ends = select.poll()
        ends.register(0, 0)  # No message to the child: its pipe ends with the test.
        ends.poll()
        os._exit(0)
    return child

def files():
    return len(os.listdir("/proc/self/fd"))

for line in sys.stdin:
    name, arguments, named = json.loads(line)
    try:
        answer = [globals()[name](*arguments, **named), None, None]
    except Exception as error:
        answer = [None, type(error).__name__, str(error)]
    print(json.dumps(answer), flush=True)
"""


class RankError(Exception):
    """What a rank raised: the name of its exception and the text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Rank:
    """One rank's process."""

    def __init__(
        self, rank: int, ranks: int, port: int, seat: tuple[int, int, int], server: str
    ) -> None:
        """`seat`: its node, its number there, and how many there are."""
        environment = dict(os.environ)
        node, local_rank, local_ranks = seat
        paths = [*sys.path, str(Path(__file__).parent)]
        environment.update(
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_RANK=str(local_rank),
            LOCAL_WORLD_SIZE=str(local_ranks),
            GROUP_RANK=str(node),
            HEADRACE_TOKEN="the secret of a test",
            MASTER_ADDR="test",
            MASTER_PORT=str(port),
            PYTHONPATH=os.pathsep.join(filter(None, paths)),
        )
        self.process = shared_server(server).start(["-c", PROGRAM], environment, pipes=True)
        self._read = b""

    def say(self, name: str, *arguments: Any, **named: Any) -> None:
        """Has the rank begin with it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, arguments, named]).encode() + b"\n")

    def has_answered(self, within_s: float) -> bool:
        assert self.process.stdout is not None
        until = time.monotonic() + within_s
        while b"\n" not in self._read:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return False
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            assert got, "the rank's process ended"
            self._read += got
        return True

    def answer(self, within_s: float = PATIENCE_S) -> Any:
        """What the rank says to that; RankError if it raised."""
        assert self.has_answered(within_s), f"no answer within {within_s} s"
        line, self._read = self._read.split(b"\n", 1)
        value, kind, text = json.loads(line)
        if kind is not None:
            raise RankError(kind, text)
        return value

    def ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        self.say(name, *arguments, **named)
        return self.answer()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Ranks:
    """All ranks of a node; or of several, `local_ranks` on each, or by node."""

    _ports = iter(range(os.getpid() * 1000, 2**62))  # No port: a name that nobody else has.

    def __init__(
        self,
        count: int,
        *,
        numbers: Sequence[int] | None = None,
        port: int | None = None,
        local_ranks: int | Sequence[int] | None = None,
        server: str = "ranks",
    ) -> None:
        """`server`: with what they import (forks)."""
        self.port = next(Ranks._ports) if port is None else port
        if local_ranks is None or isinstance(local_ranks, int):
            here = local_ranks or count
            local_ranks = [here] * -(-count // here)
        seats = [
            (node, seat, here) for node, here in enumerate(local_ranks) for seat in range(here)
        ]
        numbers = range(count) if numbers is None else numbers
        self.ranks = [Rank(rank, count, self.port, seats[rank], server) for rank in numbers]

    def __getitem__(self, rank: int) -> Rank:
        return self.ranks[rank]

    def __iter__(self) -> Iterator[Rank]:
        return iter(self.ranks)

    def ask(self, name: str, *arguments: Any, **named: Any) -> list[Any]:
        """All at a time: what one does may wait for the others."""
        for rank in self.ranks:
            rank.say(name, *arguments, **named)
        return [rank.answer() for rank in self.ranks]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for rank in self.ranks:
            rank.end()


def addresses(count: int) -> list[str]:
    """Free ones of this machine, each node at an address of its own."""
    tools = str(Path(__file__).parents[2] / "tools")
    if tools not in sys.path:  # pytest adds it, programs of tests do not.
        sys.path.append(tools)
    from cluster.network import free_ports

    hosts = [f"127.0.0.{number + 1}" for number in range(count)]
    return [f"{host}:{port}" for host, port in zip(hosts, free_ports(hosts), strict=True)]


def node_pid(loader: hr.Loader) -> int:
    """The node process of this process's loader."""
    assert loader._feed._session.place is not None
    return node._started[os.getpid(), loader._feed._session.place.socket].pid


def is_running(pid: int) -> bool:
    """Not so a zombie, which waits for a parent that may never look."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for_end(pid: int, within_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + within_s
    while is_running(pid):
        assert time.monotonic() < until, f"process {pid} still runs after {within_s} s"
        select.select([], [], [], 0.01)


@contextmanager
def stopped(rank: Rank) -> Iterator[None]:
    rank.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        rank.signal(signal.SIGCONT)
