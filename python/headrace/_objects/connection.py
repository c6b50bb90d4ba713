"""The user's end of the lister: starts it at the first question, and asks."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace._objects.listing import RAW, SIZE, Head, Listing, StoreError
from headrace._process.helpers import command_of

if TYPE_CHECKING:
    import socket
    import subprocess

_AT_ONCE = 32
"""Connections; other threads wait."""
_LOOK_S = 2.0  # between two looks whether the lister is there
_TRIES = 3
"""A lister that was killed is replaced."""
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_", "SSL_CERT_")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class _GoneError(Exception):
    """The lister has ended."""


class _Lister:
    """A lister process, and the connections to it that are idle."""

    def __init__(self, settings: dict[str, str]) -> None:
        import signal  # These take long to import.
        import socket
        import subprocess

        command = command_of("lister")
        if not command:
            raise OSError(
                "object stores are read by a process of Python, and this program does not know its "
                "interpreter (sys.executable is empty); set sys.executable to its path"
            )
        self.settings = settings
        self.idle: list[socket.socket] = []
        self.owner = os.getpid()
        self.control, other = socket.socketpair()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Until it ignores it.
        try:
            with other:
                self.process: subprocess.Popen[bytes] = subprocess.Popen(
                    [*command, str(other.fileno()), str(os.getpid())],
                    pass_fds=[other.fileno()],
                    stdin=subprocess.DEVNULL,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def connected(self) -> socket.socket:
        """A new connection. _GoneError: it has ended."""
        import socket

        mine, other = socket.socketpair()
        try:
            with other:
                socket.send_fds(self.control, [b"\0"], [other.fileno()])
        except OSError as error:
            mine.close()
            raise _GoneError from error
        return mine

    def answer_from(self, connection: socket.socket, of_bytes: int) -> Any:
        """The next answer; `of_bytes`: as in `Connection._ask`. EOFError: it has ended."""
        import pickle

        connection.settimeout(_LOOK_S)
        data = bytearray(of_bytes)
        at = 0
        while True:
            (size,) = SIZE.unpack(self._received(connection, bytearray(SIZE.size)))
            if not size & RAW:
                answer = pickle.loads(self._received(connection, bytearray(size)))
                break
            end = at + (size & ~RAW)
            if end > of_bytes:
                raise EOFError
            self._received(connection, memoryview(data)[at:end])
            at, answer = end, data
            if end == of_bytes:
                break
        connection.settimeout(None)
        return answer

    def _received(
        self, connection: socket.socket, into: bytearray | memoryview
    ) -> bytearray | memoryview:
        """Fills `into`, and returns it. EOFError: it has ended."""
        view, got = memoryview(into), 0
        while got < len(view):
            try:
                count = connection.recv_into(view[got:])
            except TimeoutError:
                # A fork of this process that began with the lister may have its end of the socket.
                if self.process.poll() is not None:
                    raise EOFError from None
                continue
            if not count:
                raise EOFError
            got += count
        return into

    def close(self) -> None:
        """Ends it, and waits until it has ended; in a child that was forked, forgets it."""
        for connection in (self.control, *self.idle):
            connection.close()
        self.idle.clear()
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        else:
            self.process.returncode = 0  # It is the parent's.


class Connection:
    """Asks the lister. Thread safety: all calls may be made from any thread."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._forget)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._lister: _Lister | None = None

    def _forget(self) -> None:
        """In a child: the lister is the parent's, and threads that held the locks are not here."""
        lister = self._lister
        self._begin()
        if lister is not None:
            lister.close()

    def close(self) -> None:
        """Ends the lister, if there is one."""
        with self._lock:
            lister, self._lister = self._lister, None
        if lister is not None:
            lister.close()

    def look(
        self, heads: Sequence[str], lists: Sequence[str], /
    ) -> tuple[list[Head], list[Listing | OSError]]:
        """As `Requests.look`."""
        answer: tuple[list[Head], list[Listing | OSError]] = self._ask("look", heads, lists)
        return answer

    def read(self, url: str, offset: int, size: int, version: int, /) -> bytes:
        """As `Requests.read`."""
        answer: bytearray = self._ask("read", url, offset, size, version, of_bytes=size)
        return bytes(answer)

    def _ask(self, *request: Any, of_bytes: int = 0) -> Any:
        """The answer; `of_bytes`: the size of the range that is asked for."""
        import pickle

        data = pickle.dumps((request[0], request[1:]), protocol=pickle.HIGHEST_PROTOCOL)
        message = SIZE.pack(len(data)) + data
        with self._free:
            for _ in range(_TRIES):
                try:
                    answer = self._answer(message, of_bytes)
                except _GoneError:
                    continue
                if isinstance(answer, OSError):
                    raise answer
                return answer
        raise StoreError(
            "the process that asks object stores ended without an answer; if memory is short, free "
            "some; what it printed says more"
        )

    def _answer(self, message: bytes, of_bytes: int) -> Any:
        lister, connection = self._taken()
        try:
            connection.sendall(message)
            answer = lister.answer_from(connection, of_bytes)
        except BaseException as error:  # Ctrl-C, too: the answer that is to come is nobody's.
            connection.close()
            if isinstance(error, (OSError, EOFError)):
                self._drop(lister)
                raise _GoneError from error
            raise
        with self._lock:
            if self._lister is lister:
                lister.idle.append(connection)
            else:
                connection.close()
        return answer

    def _taken(self) -> tuple[_Lister, socket.socket]:
        """A connection that is idle, or a new one; to a lister with the settings of now."""
        settings = _settings()
        with self._lock:
            before = self._lister
            if before is not None and before.settings != settings:
                self._lister = None
                before.close()
            if self._lister is None:
                self._lister = _Lister(settings)
            lister = self._lister
            if lister.idle:
                return lister, lister.idle.pop()
        try:
            return lister, lister.connected()
        except _GoneError:
            self._drop(lister)
            raise

    def _drop(self, lister: _Lister) -> None:
        with self._lock:
            is_last = self._lister is lister
            if is_last:
                self._lister = None
        if is_last:
            lister.close()


def _settings() -> dict[str, str]:
    """The variables that say how stores are reached: another lister follows when they change."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_SETTINGS) or name.upper() in _PROXIES
    }
