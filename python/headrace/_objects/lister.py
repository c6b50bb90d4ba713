"""The lister: a process that asks object stores for the user's process, which never loads obstore.

`connection.py` is the other end. A connection has one request at a time, a thread for each; each
message is a pickled tuple behind its size.
"""

from __future__ import annotations

import array
import errno
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore

from headrace._objects.addresses import Address, address_of, object_address
from headrace._objects.client import Clients
from headrace._objects.failures import Failure, Result, failure
from headrace._objects.listing import SIZE, Head, Listing, Object
from headrace._objects.version import version_of

_AT_ONCE = 32  # requests of this process
_TRIES = 6
_FIRST_WAIT_S = 0.2  # doubled after each try
_LOOK_S = 2.0  # between two looks whether the user's process is there

_pool = ThreadPoolExecutor(_AT_ONCE)
_clients = Clients()


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
                answer: Any = _ANSWERS[what](*arguments)
            except Exception as error:
                answer = (
                    error
                    if isinstance(error, OSError)
                    else OSError(f"{type(error).__name__}: {error}")
                )
            data = pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
            try:
                connection.sendall(SIZE.pack(len(data)) + data)
            except OSError:
                return  # Whoever asked is gone.


def look(heads: Sequence[str], lists: Sequence[str]) -> tuple[list[Head], list[Listing | OSError]]:
    """As `Requests.look`."""
    listed = [_pool.submit(_tried, _listing, address_of(url)) for url in lists]
    found = [_pool.submit(_tried, _head, object_address(url)) for url in heads]
    return [head.result() for head in found], [listing.result() for listing in listed]


def _tried(ask: Callable[[Any, Address], Any], address: Address) -> Any:
    """What `ask(client, address)` returns; None: there is no such object. An OSError: why not.

    What may pass is tried again.
    """
    wait_s = _FIRST_WAIT_S
    for left in reversed(range(_TRIES)):
        try:
            return ask(_clients.of(address), address)
        except _ChangedError:
            return OSError("it has changed since it was listed; open the dataset again")
        except Exception as error:
            failed = failure(error, address)
        if failed.renew:
            _clients.renew(address)
        may_pass = failed.result in (Result.BROKEN, Result.SLOW_DOWN)
        if failed.code == errno.ENOENT and not may_pass and not _is_of_bucket(failed.cause):
            return None
        if not may_pass or not left:
            return _error(failed)
        time.sleep(wait_s)
        wait_s *= 2
    raise AssertionError


def _error(failed: Failure) -> OSError:
    """With the cause as its text, and a remedy."""
    kind = PermissionError if failed.code == errno.EACCES else OSError
    has_remedy = ";" in failed.cause
    return kind(failed.cause if has_remedy else f"{failed.cause}; try again when it answers")


def _is_of_bucket(cause: str) -> bool:
    return not cause.startswith("there is no such object")


def _head(store: Any, address: Address) -> Object:
    found = obstore.head(store, address.key)
    return Object(found["size"], version_of(found["e_tag"], found["last_modified"]))


def _listing(store: Any, address: Address) -> Listing:
    prefix = f"{address.key}/" if address.key else ""
    found = obstore.list_with_delimiter(store, prefix or None)
    skip = len(prefix)
    objects = {
        meta["path"][skip:]: Object(meta["size"], version_of(meta["e_tag"], meta["last_modified"]))
        for meta in found["objects"]
        if len(meta["path"]) > skip  # Else it is what some programs write for the folder.
    }
    return Listing(frozenset(path[skip:] for path in found["common_prefixes"]), objects)


def read(url: str, offset: int, size: int, version: int) -> bytes:
    """As `Requests.read`."""

    def ask(store: Any, address: Address) -> bytes:
        answer = obstore.get(store, address.key, options={"range": (offset, offset + size)})
        known = version_of(answer.meta["e_tag"], answer.meta["last_modified"])
        if known and version and known != version:
            raise _ChangedError
        return bytes(answer.bytes())

    found = _tried(ask, object_address(url))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
    if isinstance(found, OSError):
        raise found
    return bytes(found)


class _ChangedError(Exception):
    """The object is not of the version that was asked for."""


_ANSWERS: dict[str, Callable[..., Any]] = {"look": look, "read": read}
