"""Worker processes of a DataLoader: starts, talks to and ends them."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from headrace import _core
from headrace._process.children import (
    MAIN_EXIT,
    NAME,
    check_can_start,
    end_processes,
    main_guard,
    starting,
)
from headrace._process.pickling import Sent
from headrace._workers._failures import end_of
from headrace.errors import FailedPreconditionError, HeadraceError, WorkerLostError
from headrace.torch._dataloader.reading.fetching import Fetcher, Job
from headrace.torch._dataloader.workers import worker
from headrace.torch._dataloader.workers.channel import Channel
from headrace.torch._dataloader.workers.worker import Reply, Setup

_END_SECONDS = 1.0
"""Seconds for processes to end after their connections are shut; then they are killed."""


class Process:
    """One worker process and the connection to it.

    Thread safety: one thread sends and receives; `shut` from any.
    """

    def __init__(self, context: Any, setup: Setup, sent: Sent) -> None:
        """Starts it. Raises: what `sent` raises, unless it is forked."""
        self._number = setup.number
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._channel = Channel(ours)
        _channels.add(self._channel)
        self.process: BaseProcess = context.Process(
            target=worker.run,
            args=(theirs, setup, sent),
            name=f"{NAME}dataloader-{setup.number}",
            daemon=True,
        )
        try:
            with theirs, starting(context.get_start_method()):
                self.process.start()
        except BaseException:
            self.close()
            raise

    def send(self, job: Job) -> None:
        """Raises: EOFError if the process is gone or was shut."""
        try:
            self._channel.send(job)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    def receive(self) -> Reply:
        """The reply to the oldest job sent. Raises: as `send`."""
        reply: Reply = self._channel.receive()
        return reply

    def lost(self, job: Job) -> HeadraceError:
        """The error if the process is gone."""
        _core.stop_at_exit()  # The interpreter ends its children: that is no loss.
        how = end_of(self.process)
        if self.process.exitcode == MAIN_EXIT:
            return FailedPreconditionError(
                f"starting DataLoader worker {self._number}: {main_guard()}"
            )
        error = WorkerLostError(
            f"reading batch {job.batch}: DataLoader worker {self._number} {how}"
        )
        error.pid, error.exitcode = self.process.pid, self.process.exitcode
        return error

    def shut(self) -> None:
        """Asks the process to end after its current sample."""
        self._channel.shut()

    def close(self) -> None:
        self._channel.shut()
        _channels.discard(self._channel)
        self._channel.close()


class Processes:
    """The worker processes of a loader, for one iteration or all of them.

    Ownership: the processes. Shutdown: `close`.
    """

    def __init__(
        self,
        context: Any,
        fetcher: Fetcher,
        *,
        count: int,
        threads: int,
        measures: bool,
        arrival: bool,
        base_seed: int,
        init_fn: Callable[[int], object] | None,
    ) -> None:
        method = context.get_start_method()
        check_can_start(
            "starting workers", method, 'give DataLoader num_workers=0 or worker_method="thread"'
        )
        functions = {
            "dataset": fetcher.dataset,
            "collate_fn": fetcher.collate_fn,
            "worker_init_fn": init_fn,
        }
        fork = 'multiprocessing_context="fork"'
        sent = Sent(functions, f"multiprocessing_context={method!r}", fork, copies=False)
        self._owner = os.getpid()
        self.members: list[Process] = []
        self.is_broken = False
        self.is_busy = False
        """Whether an iteration has them."""
        try:
            for number in range(count):
                setup = Setup(
                    number,
                    count,
                    threads,
                    measures,
                    base_seed,
                    arrival,
                    os.getpid(),
                    fetcher.batched,
                )
                self.members.append(Process(context, setup, sent))
        except BaseException:
            self.close()
            raise

    @property
    def is_usable(self) -> bool:
        """Not broken, nor those of the process from which this one was forked."""
        return not self.is_broken and self._owner == os.getpid()

    def shut(self) -> None:
        for each in self.members:
            each.shut()

    def close(self) -> None:
        """Waits until the processes have ended; kills those that take too long."""
        if self._owner != os.getpid():  # In a forked child: they are the parent's.
            return
        members, self.members = self.members, []
        self.is_broken = True
        deadline = time.monotonic() + _END_SECONDS
        for each in members:
            each.shut()
        end_processes([each.process for each in members if each.process.pid is not None], deadline)
        for each in members:
            each.close()


_channels: set[Channel] = set()
"""The ends that this process has of connections to its workers."""


def _close_in_child() -> None:
    """A forked process must not keep connections open."""
    for channel in _channels:
        with contextlib.suppress(OSError):
            channel.close()
    _channels.clear()


os.register_at_fork(after_in_child=_close_in_child)
