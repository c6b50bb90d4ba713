"""The processes of all nodes: starts them, passes on their output, ends all they started."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.network import Network

_PR_SET_CHILD_SUBREAPER = 36
_CHUNK_BYTES = 2**16
_LINE_BYTES_MAX = 2**20
_ENDING_S = 10.0  # that a killed process may take to be gone
# Joins control groups, and becomes the command.
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'


@dataclass(frozen=True)
class Job:
    """What each node runs."""

    command: Sequence[str]
    ranks: int  # a node
    environment: dict[str, str]
    grace_s: float  # from asking the rest to end to killing it
    keep_going: bool  # if a rank fails


def adopt_orphans() -> None:
    """Processes whose parents ended become children of this one, so they can be found and ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "becoming the parent of orphans")


def environment_of(job: Job, network: Network, node: int, local_rank: int) -> dict[str, str]:
    """As torchrun sets it, and where the nodes reach each other."""
    place = network.places[node]
    return job.environment | {
        "RANK": str(node * job.ranks + local_rank),
        "WORLD_SIZE": str(len(network.places) * job.ranks),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(job.ranks),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(network.places)),
        "MASTER_ADDR": network.places[0].address,
        "MASTER_PORT": str(network.master_port),
        "GLOO_SOCKET_IFNAME": place.interface,
        "HEADRACE_CLUSTER_ADDRESSES": ",".join(each.reached for each in network.places),
        "HEADRACE_CLUSTER_LISTEN": place.listen,
    }


class Ranks:
    """The processes of a job. `stop()` may be called at any time, `run()` once."""

    def __init__(self, job: Job, network: Network, joins: Sequence[Sequence[Path]]) -> None:
        self._job = job
        self._network = network
        self._joins = joins
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped = asyncio.Event()
        self.signal: int | None = None  # that ended the job

    def stop(self, signum: int) -> None:
        """Ends the job; a second time at once."""
        if self._stopped.is_set():
            self._tell(signal.SIGKILL)
        self.signal = signum
        self._stopped.set()

    async def run(self) -> int:
        """Runs the job; returns 0, or the status of the first rank that failed."""
        first = 0
        readers: list[asyncio.Task[None]] = []
        waits: dict[asyncio.Task[int], str] = {}
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            for node in range(len(self._network.places)):
                for local_rank in range(self._job.ranks):
                    name = f"node {node}" + (f" rank {local_rank}" if self._job.ranks > 1 else "")
                    process = self._processes[name] = self._started(node, local_rank)
                    readers.append(asyncio.ensure_future(_pass_on(name, process)))
                    waits[asyncio.ensure_future(_end_of(process))] = name
            pending = set(waits)
            while pending:
                done, _ = await asyncio.wait(
                    {stopped, *pending}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in [each for each in waits if each in done and each in pending]:
                    pending.discard(task)
                    code = task.result()
                    if code != 0:
                        say(f"{waits[task]} {_ended(code)}")
                        first = first or (code if code > 0 else 128 - code)
                if stopped in done or (first and not self._job.keep_going):
                    break
        finally:
            stopped.cancel()
            await self._end(set(waits))
            end_descendants(set(self._network.holders))
            if readers:
                await asyncio.wait(readers, timeout=_ENDING_S)
        return first if self.signal is None else 128 + self.signal

    def _started(self, node: int, local_rank: int) -> subprocess.Popen[bytes]:
        groups = [str(each) for each in self._joins[node]]
        command = ["sh", "-c", _JOIN, "sh", *groups, "--", *self._job.command]
        if shutil.which("setpriv"):  # Ends with this process, if that is killed.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        return subprocess.Popen(
            [*self._network.places[node].enter, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment_of(self._job, self._network, node, local_rank),
            start_new_session=True,  # Ctrl-C comes to this process, which ends all.
        )

    async def _end(self, waits: set[asyncio.Task[int]]) -> None:
        """Asks what still runs to end, and kills it after a while."""
        pending = {each for each in waits if not each.done()}
        ways = ((signal.SIGTERM, self._job.grace_s), (signal.SIGKILL, _ENDING_S))
        for signum, patience_s in ways:
            if not pending:
                return
            self._tell(signum)
            _, pending = await asyncio.wait(pending, timeout=patience_s)

    def _tell(self, signum: int) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signum)


async def _end_of(process: subprocess.Popen[bytes]) -> int:
    """Waits for the process alone, and not for what it started and left."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    pidfd = os.pidfd_open(process.pid)
    try:
        loop.add_reader(pidfd, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return process.wait()


def _ended(code: int) -> str:
    return f"ended with {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"


async def _pass_on(name: str, process: subprocess.Popen[bytes]) -> None:
    """Prints lines with the name of their node in front."""
    assert process.stdout is not None
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), process.stdout
    )
    line = b""
    while data := await stream.read(_CHUNK_BYTES):
        *whole, line = (line + data).split(b"\n")
        if len(line) > _LINE_BYTES_MAX:
            whole, line = [*whole, line], b""
        for each in whole:
            _print(name, each)
    if line:
        _print(name, line)
    transport.close()


def _print(name: str, line: bytes) -> None:
    print(f"[{name}] {line.decode(errors='replace')}", flush=True)


def say(text: str) -> None:
    """What the program itself has to say."""
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def end_descendants(spare: set[int]) -> None:
    """Kills the processes that nodes started and left, whatever session they made."""
    until = time.monotonic() + _ENDING_S
    while found := descendants(os.getpid(), spare):
        if time.monotonic() > until:
            say(f"processes {sorted(found)} were killed and do not end")
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def descendants(of: int, without: set[int]) -> set[int]:
    """The processes that `of` and its children started, except those `without` and theirs."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text()
                parent = int(stat.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found: set[int] = set()
    left = [of]
    while left:
        for child in children.get(left.pop(), []):
            if child not in without:
                found.add(child)
                left.append(child)
    return found
