"""The lister: a process that asks object stores for the user's process, which never loads obstore.

`connection.py` is the other end. A connection has one request at a time, a thread for each; each
message is a pickled tuple behind its size.
"""

from __future__ import annotations

import array
import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from headrace._objects.listing import RAW, SIZE

_LOOK_S = 2.0  # between two looks whether the user's process is there


def main() -> None:
    """Serves the socket that the arguments name, and the process at its other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    control, parent = socket.socket(fileno=int(sys.argv[-2])), int(sys.argv[-1])
    while os.getppid() == parent:
        if not select.select([control], [], [], _LOOK_S)[0]:
            continue
        descriptors = array.array("i")
        data, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize))
        if not data:
            break
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content)
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()
    os._exit(0)  # Threads may wait for a server.


def _serve(connection: socket.socket) -> None:
    """Answers one request after another until the connection ends."""
    with connection, connection.makefile("rb") as requests:
        while len(head := requests.read(SIZE.size)) == SIZE.size:
            what, arguments = pickle.loads(requests.read(*SIZE.unpack(head)))
            try:
                for mark, data in _messages(what, arguments):
                    connection.sendall(SIZE.pack(mark | len(data)))
                    connection.sendall(data)
            except OSError:
                return  # Whoever asked is gone.


def _messages(what: str, arguments: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
    """The messages of an answer, each with what its size is marked with."""
    try:
        answer = _answered(what, arguments)
        if what == "read":
            for piece in answer:
                yield RAW, piece
            return
    except Exception as error:
        answer = (
            error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}")
        )
    yield 0, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)


def _answered(what: str, arguments: tuple[Any, ...]) -> Any:
    """What the function of `answers.py` returns."""
    try:
        from headrace._objects import answers
    except ImportError as error:
        raise OSError(
            f"object stores are read by the package obstore ({error}); install it: "
            "pip install 'headrace[objects]'"
        ) from error
    return getattr(answers, what)(*arguments)
