"""The user's end of the process that writes objects."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from headrace._objects.wire import SIZE, received
from headrace._process.helpers import command_of

if TYPE_CHECKING:
    import subprocess

Progress = Callable[[int], object]
_UPLOADS_AT_ONCE = 2
"""For memory: each has parts of 16 MiB."""
_LOOK_S = 0.5
"""How often the caller is asked whether it still wants an upload from which nothing comes."""
_END_S = 20
"""Until a process that should end is killed."""


class Uploads:
    """Writes, lists and deletes objects, by a process that ends by close(), or with this one.

    Thread safety: all calls may be made from any thread. They raise OSError, with a cause.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploading = threading.BoundedSemaphore(_UPLOADS_AT_ONCE)
        self._asked: dict[int, tuple[Future[Any], Progress]] = {}  # guarded by _lock
        self._number = 0  # guarded by _lock
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False  # guarded by _lock: no answer comes any more

    def start(self) -> None:
        """Before all calls but close()."""
        import subprocess  # It takes long to import.

        if importlib.util.find_spec("obstore") is None:
            raise ImportError(
                "writing to an object store needs obstore: pip install 'headrace[objects]'"
            )
        command = command_of("writer")
        if not command:
            raise OSError(
                "object stores are written by a process of Python, and this program does not know "
                "its interpreter (sys.executable is empty); set sys.executable to its path"
            )
        self._socket, other = socket.socketpair()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Until it ignores it.
        try:
            with other:
                self._process = subprocess.Popen(
                    [*command, str(other.fileno()), str(os.getpid())],
                    pass_fds=[other.fileno()],
                    stdin=subprocess.DEVNULL,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._reader = threading.Thread(target=self._read, name="headrace-written", daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Ends the process. Uploads that were begun are given up, and it has some time to have the
        store forget their parts."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        try:
            process.wait(_END_S)
        except Exception:  # subprocess.TimeoutExpired
            process.kill()
            process.wait()
        self._reader.join()
        self._socket.close()

    def sizes(self, url: str) -> dict[str, int]:
        """The sizes of all objects below `url`, by what follows it and a slash."""
        found: dict[str, int] = self._ask(None, "list", url)
        return found

    def upload(self, path: str, url: str, progress: Progress) -> None:
        """Copies a file, in parts. `progress` is called with bytes that were read, or 0. If it
        raises, the upload is given up by close()."""
        with self._uploading:
            self._ask(progress, "upload", url, path)

    def create(self, path: str, url: str, replace: bool) -> None:
        """Copies a file in one request. Raises FileExistsError, unless it is to `replace`."""
        self._ask(None, "create", url, path, replace)

    def download(self, url: str, path: str) -> bool:
        """Copies an object to a file. False: there is none."""
        found: bool = self._ask(None, "download", url, path)
        return found

    def delete(self, url: str, names: Sequence[str]) -> None:
        """Removes the objects of these names below `url`."""
        if names:
            self._ask(None, "delete", url, list(names))

    def _ask(self, progress: Progress | None, which: str, url: str, *arguments: Any) -> Any:
        answer: Future[Any] = Future()
        with self._lock:
            if self._over:
                raise _gone()
            self._number += 1
            self._asked[self._number] = (answer, progress or (lambda _count: None))
            data = pickle.dumps((self._number, which, (url, *arguments)))
            try:
                self._socket.sendall(SIZE.pack(len(data)) + data)
            except OSError as error:
                del self._asked[self._number]
                raise _gone() from error
        return self._wait(answer, progress)

    def _wait(self, answer: Future[Any], progress: Progress | None) -> Any:
        while True:
            try:
                return answer.result(_LOOK_S if progress else None)
            except TimeoutError:  # Of waiting, or the answer.
                if answer.done():
                    return answer.result()
            if progress is not None:
                progress(0)

    def _read(self) -> None:
        """On a thread of its own: the answers."""
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    number, count, *results = received(self._socket)
                    self._take(number, count, *results)
        finally:  # Whatever the error: callers wait for an answer.
            with self._lock:
                self._over = True
                left = [answer for answer, _ in self._asked.values()]
                self._asked.clear()
            for answer in left:
                answer.set_exception(_gone())

    def _take(self, number: int, count: int | None, result: Any = None) -> None:
        with self._lock:
            asked = self._asked.get(number)
            if count is None:
                self._asked.pop(number, None)
        if asked is None:
            return
        answer, progress = asked
        if count is not None:
            try:
                progress(count)
            except BaseException as error:  # The caller of upload() gets it.
                with self._lock:
                    self._asked.pop(number, None)
                answer.set_exception(error)
        elif isinstance(result, OSError):
            answer.set_exception(result)
        else:
            answer.set_result(result)


def _gone() -> OSError:
    return OSError(
        "the process that writes objects ended; if memory is short, free some, and run the same "
        "command again, which continues; what it printed says more"
    )
