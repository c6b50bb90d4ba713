"""Answers who asks a loader of the same user, from another process, what it is doing."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import selectors
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace._descriptors import Acceptor, taking_descriptors
from headrace.errors import UnavailableError

REQUESTS = ("stats", "report")

_REQUEST_BYTES_MAX = 64
_ANSWER_BYTES_MAX = 256 * 2**20
_SECONDS_MAX = 2.0  # That one who asks may take, to ask and to listen.
_ORDINALS_MAX = 1024
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_NAME = re.compile(r"@headrace-(\d+)-(\d+)-(\d+)$")

_ordinals = itertools.count()

Answer = Callable[[str], dict[str, Any]]
"""What is said to a request of REQUESTS; on the monitor's thread."""


class Monitor:
    """One thread that answers on an abstract Unix socket, one who asks at a time.

    The name is @headrace-UID-PID-N, N counting the process's loaders that are monitored. Only
    processes of the same user are answered. What it asks the loader for are copies of counters.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._pid = os.getpid()
        with taking_descriptors("monitor=True: answering 'headrace top'"):
            self._listener, self.ordinal = _listen()
            self._wake, self._woken = socket.socketpair()
        self._closing = False
        self._peer: socket.socket | None = None  # who is answered now
        self._thread = threading.Thread(target=self._serve, name="headrace-monitor", daemon=True)
        _monitors.add(self)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. In a forked child, which does not have it, lets go of the socket."""
        if self._wake.fileno() < 0:
            return
        self._closing = True
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self._wake.send(b"x")
            if (peer := self._peer) is not None:
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)  # Whoever asks is not waited for.
            if threading.current_thread() is not self._thread:
                self._thread.join()
        _monitors.discard(self)
        for each in (self._listener, self._wake, self._woken):
            each.close()

    def _serve(self) -> None:
        with selectors.PollSelector() as selector:  # Of any number of descriptors, and takes none.
            selector.register(self._woken, selectors.EVENT_READ)
            acceptor = Acceptor(selector, self._listener, "answering 'headrace top'")
            while not self._closing:
                ready = acceptor.select()
                if self._woken in ready:
                    return
                peer = acceptor.accept() if self._listener in ready else None
                if peer is None:
                    continue
                with contextlib.suppress(OSError), peer:  # Whoever asked is gone, or too slow.
                    self._peer = peer
                    if not self._closing:
                        self._serve_peer(peer)
                self._peer = None

    def _serve_peer(self, peer: socket.socket) -> None:
        if _uid_of(peer) != os.getuid():
            return
        peer.settimeout(_SECONDS_MAX)
        request = peer.recv(_REQUEST_BYTES_MAX).decode("ascii", "replace").strip()
        if request not in REQUESTS:
            answer: dict[str, Any] = {"error": f"no such request: {request!r}"}
        else:
            try:
                answer = self._answer(request)
            except Exception as error:  # The loader is being closed: its user is not to hear of it.
                answer = {"error": str(error)}
        peer.sendall(json.dumps(answer).encode())


_monitors: weakref.WeakSet[Monitor] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for monitor in list(_monitors):
        monitor.close()


os.register_at_fork(after_in_child=_let_go_in_child)


def _listen() -> tuple[socket.socket, int]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for _ in range(_ORDINALS_MAX):
        ordinal = next(_ordinals)
        try:
            listener.bind(f"\0headrace-{os.getuid()}-{os.getpid()}-{ordinal}")
        except OSError:  # Of a process of another pid namespace, which has our pid.
            continue
        listener.listen(4)
        listener.setblocking(False)
        return listener, ordinal
    listener.close()
    raise UnavailableError("monitor=True: all names of sockets for this process are taken")


def _uid_of(peer: socket.socket) -> int:
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


@dataclass(frozen=True, order=True)
class Address:
    """Where a loader of this user answers."""

    pid: int
    ordinal: int

    def ask(self, request: str = "stats") -> dict[str, Any] | None:
        """None: it is gone, busy for too long, or not ours."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with peer, contextlib.suppress(OSError, ValueError):
            peer.settimeout(2 * _SECONDS_MAX)
            peer.connect(f"\0headrace-{os.getuid()}-{self.pid}-{self.ordinal}")
            if _uid_of(peer) != os.getuid():
                return None
            peer.sendall(f"{request}\n".encode())
            answer = json.loads(_receive_all(peer))
            if isinstance(answer, dict) and "error" not in answer:
                return answer
        return None


def _receive_all(peer: socket.socket) -> bytes:
    data = bytearray()
    while part := peer.recv(2**20):
        data += part
        if len(data) > _ANSWER_BYTES_MAX:
            raise ValueError("the answer does not end")
    return bytes(data)


def find_loaders(names: Path = Path("/proc/net/unix")) -> list[Address]:
    """Those of this user that are monitored, on this machine."""
    try:
        lines = names.read_text(errors="replace").splitlines()
    except OSError as error:
        raise UnavailableError(f"looking for loaders in {names}: {error.strerror}") from error
    found = set()
    for line in lines:
        match = _NAME.search(line)
        if match is not None and int(match[1]) == os.getuid():
            found.add(Address(pid=int(match[2]), ordinal=int(match[3])))
    return sorted(found)
