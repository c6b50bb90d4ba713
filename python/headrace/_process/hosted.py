"""Worker processes of a host in this process, each with a socket to it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from headrace import _core
from headrace._process.children import NAME, end_processes, starting

END_SECONDS = 1.0
"""Seconds for workers to end after their connections are closed; then they are killed."""


class HostedProcesses:
    """Starts worker processes, and ends them.

    Ownership: the processes, and the sockets until `handed_over`. A forked child leaves the
    processes to its parent.
    """

    def __init__(self) -> None:
        self.members: list[BaseProcess] = []
        self._sockets: list[socket.socket] = []
        self._numbers: list[int] = []  # of the sockets, also those that the host has
        self._owner = os.getpid()

    @property
    def are_ours(self) -> bool:
        """Not those of the process from which this one was forked."""
        return self._owner == os.getpid()

    def start(self, context: Any, name: str, run: Callable[..., None], *arguments: Any) -> None:
        """Starts one that calls `run(socket, *arguments)`; `context` is multiprocessing's."""
        _core.stop_at_exit()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sockets.append(ours)
        self._numbers.append(ours.fileno())
        _host_sockets.add(ours.fileno())
        with theirs:
            process = context.Process(
                target=_run, args=(run, theirs, *arguments), name=f"{NAME}{name}", daemon=True
            )
            with starting(context.get_start_method()):
                process.start()
                self.members.append(process)
                if _core.stops_at_exit():
                    # multiprocessing's exit hook, on the main thread, has signalled the children
                    # that it knew. It would join this one, which waits for its host, for ever.
                    process.kill()

    def handed_over(self) -> list[int]:
        """The descriptors of the sockets, which are the host's from now on."""
        sockets, self._sockets = self._sockets, []
        return [connection.detach() for connection in sockets]

    def forget_sockets(self) -> None:
        """The host is about to close them; if there is none, closes them."""
        _host_sockets.difference_update(self._numbers)
        self._numbers = []
        for connection in self._sockets:
            connection.close()
        self._sockets = []

    def end(self, deadline: float | None = None) -> None:
        """Call it once their host has closed. Waits until the processes have ended; kills those
        that run at `deadline` (time.monotonic()), by default END_SECONDS from now."""
        members, self.members = self.members, []
        if self.are_ours:
            end_processes(members, time.monotonic() + END_SECONDS if deadline is None else deadline)


def _run(run: Callable[..., None], connection: Any, *arguments: Any) -> None:
    """Runs in the new process."""
    # A forked process has its host's ends, which only the host may keep.
    for descriptor in _host_sockets - {connection.fileno()}:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _host_sockets.clear()
    run(connection, *arguments)


_host_sockets: set[int] = set()
"""The ends that hosts of this process have of their connections."""
