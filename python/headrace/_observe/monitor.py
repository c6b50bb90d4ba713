"""Answers requests of other processes of the same user for a loader's statistics."""

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
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._descriptors import Acceptor, taking_descriptors
from headrace.errors import UnavailableError

REQUESTS = ("stats", "report")

_REQUEST_BYTES_MAX = 64
_ANSWER_BYTES_MAX = 256 * 2**20
_SECONDS_MAX = 2.0  # Time that a client may take for its request and the answer.
_ORDINALS_MAX = 1024
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_TIMEVAL = struct.Struct("@ll")  # seconds, microseconds
_PEERS_MAX = 64  # clients served at a time,
_PEERS_OF_PID_MAX = 8  # and the most of one process.
_BACKLOG = 128  # length of the accept queue
_REFUSED_MAX = 64  # in a turn; then comes a pause:
_PAUSE_S = 0.01
_NAME = re.compile(r"@headrace-(\d+)-(\d+)-(\d+)$")

_ordinals = itertools.count()

Answer = Callable[[str], dict[str, Any]]
"""The answer to a request of REQUESTS; on the monitor's thread."""


class _Peer:
    """A client: the bytes received from it, and those still to send."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection, self.pid = connection, pid
        self.until = time.monotonic() + _SECONDS_MAX
        self.request = bytearray()
        self.left: memoryview | None = None  # of the answer; None: it has not asked yet

    @property
    def waits_for(self) -> int:
        return selectors.EVENT_READ if self.left is None else selectors.EVENT_WRITE

    def receive(self) -> str | None:
        """Its request, if that is whole."""
        part = self.connection.recv(_REQUEST_BYTES_MAX)
        self.request += part
        if part and b"\n" not in self.request and len(self.request) < _REQUEST_BYTES_MAX:
            return None
        return self.request[:_REQUEST_BYTES_MAX].decode("ascii", "replace").strip()

    def send(self) -> bool:
        """Sends what its socket takes now; returns whether everything is sent."""
        assert self.left is not None
        self.left = self.left[self.connection.send(self.left) :]
        return not self.left


class Monitor:
    """One thread that answers on an abstract Unix socket.

    The name is @headrace-UID-PID-N, N counting the process's loaders that are monitored. Only
    processes of the same user are served, a limited number at a time, without blocking on any. The
    thread drops other connections immediately, a limited number in a turn; then it pauses, to limit
    the time that a flood can take from training. It only copies counters of the loader.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._pid = os.getpid()
        with taking_descriptors("EngineOptions.monitor: answering 'headrace top'"):
            self._listener, self.ordinal = _listen()
            self._wake, self._woken = socket.socketpair()
        self._closing = False
        self._peers: dict[socket.socket, _Peer] = {}
        self._thread = threading.Thread(target=self._serve, name="headrace-monitor", daemon=True)
        _monitors.add(self)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. In a forked child, which does not have it, closes the sockets."""
        if self._wake.fileno() < 0:
            return
        self._closing = True
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self._wake.send(b"x")
            if threading.current_thread() is not self._thread:
                self._thread.join()
        _monitors.discard(self)
        for descriptor in (self._listener, self._wake, self._woken, *self._peers):
            descriptor.close()

    def _serve(self) -> None:
        _core.exempt_thread()  # The closing thread waits for it, also at the interpreter's end.
        with selectors.PollSelector() as selector:  # Of any number of descriptors, and takes none.
            selector.register(self._woken, selectors.EVENT_READ)
            acceptor = Acceptor(selector, self._listener, "answering 'headrace top'")
            while not self._closing:
                ready = acceptor.select(self._patience())
                if self._woken in ready:
                    return
                for connection in ready:
                    if (peer := self._peers.get(connection)) is not None:
                        self._go_on(selector, peer)
                if self._listener in ready:
                    self._let_in(selector, acceptor)
                now = time.monotonic()
                for peer in [peer for peer in self._peers.values() if peer.until <= now]:
                    self._let_go(selector, peer)

    def _patience(self) -> float | None:
        """Seconds until the first client times out."""
        if not self._peers:
            return None
        return max(0.0, min(peer.until for peer in self._peers.values()) - time.monotonic())

    def _let_in(self, selector: selectors.BaseSelector, acceptor: Acceptor) -> None:
        refused = 0
        while refused < _REFUSED_MAX and len(self._peers) < _PEERS_MAX:
            connection = acceptor.accept()
            if connection is None:
                return
            pid, uid = _credentials_of(connection)
            talking = sum(peer.pid == pid for peer in self._peers.values())
            if uid != os.getuid() or talking >= _PEERS_OF_PID_MAX:
                connection.close()
                refused += 1
                continue
            connection.setblocking(False)
            peer = self._peers[connection] = _Peer(connection, pid)
            selector.register(connection, peer.waits_for)
        acceptor.pause(_PAUSE_S)

    def _go_on(self, selector: selectors.BaseSelector, peer: _Peer) -> None:
        try:
            if peer.left is None:
                if (request := peer.receive()) is None:
                    return
                peer.left = memoryview(json.dumps(self._answer_to(request)).encode())
                peer.until = time.monotonic() + _SECONDS_MAX
            if not peer.send():
                selector.modify(peer.connection, peer.waits_for)
                return
        except BlockingIOError:
            selector.modify(peer.connection, peer.waits_for)
            return
        except OSError:  # The client is gone.
            pass
        self._let_go(selector, peer)

    def _let_go(self, selector: selectors.BaseSelector, peer: _Peer) -> None:
        with contextlib.suppress(KeyError):  # The request closed the loader.
            selector.unregister(peer.connection)
        self._peers.pop(peer.connection, None)
        peer.connection.close()

    def _answer_to(self, request: str) -> dict[str, Any]:
        if request not in REQUESTS:
            return {"error": f"no such request: {request!r}"}
        try:
            return self._answer(request)
        except Exception as error:  # The loader is being closed: do not report it to the user.
            return {"error": str(error)}


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
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        return listener, ordinal
    listener.close()
    raise UnavailableError(
        f"EngineOptions.monitor: all {_ORDINALS_MAX} names of sockets for this process are taken; "
        "leave monitor= out"
    )


def _credentials_of(peer: socket.socket) -> tuple[int, int]:
    """(pid, uid) at the time of connecting."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid, uid


@dataclass(frozen=True, order=True)
class Address:
    """The address of a loader of this user, here or on another machine."""

    pid: int
    ordinal: int
    node: str = ""  # the machine; this one: ""

    def ask(self, request: str = "stats") -> dict[str, Any] | None:
        """Of this machine. None: it is gone, busy for too long, or another user's."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with peer, contextlib.suppress(OSError, ValueError):
            # Waits while others stand in the queue; with a timeout of Python's it would fail then.
            limit = _TIMEVAL.pack(int(2 * _SECONDS_MAX), 0)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            peer.connect(f"\0headrace-{os.getuid()}-{self.pid}-{self.ordinal}")
            peer.settimeout(2 * _SECONDS_MAX)
            if _credentials_of(peer)[1] != os.getuid():
                return None
            peer.sendall(f"{request}\n".encode())
            data = _receive_all(peer)
            answer = None if data is None else json.loads(data)
            if isinstance(answer, dict) and "error" not in answer:
                return answer
        return None


def _receive_all(peer: socket.socket) -> bytes | None:
    """None: it sends more than an answer may have."""
    data = bytearray()
    while part := peer.recv(2**20):
        data += part
        if len(data) > _ANSWER_BYTES_MAX:
            return None
    return bytes(data)


def find_loaders(names: Path = Path("/proc/net/unix")) -> list[Address]:
    """The monitored loaders of this user on this machine."""
    try:
        lines = names.read_text(errors="replace").splitlines()
    except OSError as error:
        raise UnavailableError(
            f"looking for loaders in {names}: {error.strerror}; mount /proc, which lists them"
        ) from error
    addresses = set()
    for line in lines:
        match = _NAME.search(line)
        if match is not None and int(match[1]) == os.getuid():
            addresses.add(Address(pid=int(match[2]), ordinal=int(match[3])))
    return sorted(addresses)
