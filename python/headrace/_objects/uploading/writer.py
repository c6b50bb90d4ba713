"""The process that writes objects: main(), with the descriptor of a socket and the parent's pid.

A request is (its number, which, arguments); its answer (number, None, what it returns or an
OSError), and before it, of an upload, (number, bytes read since the last). Several requests run at
a time. It ends when its socket or the parent does: uploads that run then are given up, and obstore
asks the store to forget their parts.

One place tries again, as everywhere: here it is obstore, part by part. Memory: for each upload,
`PARTS_AT_ONCE` parts and one more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import obstore

from headrace._objects.clients.client import Clients, address_of, failure, object_address
from headrace._objects.wire import SIZE, received
from headrace._process.parent import wait_for_end

PART_BYTES = 16 * 2**20
"""Of all parts but the last; S3 takes 10,000 of them."""
PARTS_AT_ONCE = 4
_REQUESTS_AT_ONCE = 8
_RETRIES = {
    "max_retries": 20,
    "backoff": {
        "init_backoff": timedelta(seconds=0.2),
        "max_backoff": timedelta(seconds=15),
        "base": 2,
    },
    "retry_timeout": timedelta(minutes=5),
}
_clients = Clients(_RETRIES)
_ended = threading.Event()

Progress = Callable[[int], None]


class _EndedError(Exception):
    """The socket is closed: nobody wants the upload."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it closes the socket.
    connection = socket.socket(fileno=int(sys.argv[-2]))
    lock = threading.Lock()
    pool = ThreadPoolExecutor(_REQUESTS_AT_ONCE, "write")

    def send(*message: Any) -> None:
        data = pickle.dumps(message)
        with lock, contextlib.suppress(OSError):
            connection.sendall(SIZE.pack(len(data)) + data)

    def answer(number: int, which: str, arguments: tuple[Any, ...]) -> None:
        def progress(count: int) -> None:
            send(number, count)

        send(number, None, _tried(_ANSWERS[which], progress, *arguments))

    def end_with(process: int) -> None:
        if wait_for_end(process):
            connection.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=end_with, args=(int(sys.argv[-1]),), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pool.submit(answer, *received(connection))
    _ended.set()
    pool.shutdown(wait=True, cancel_futures=True)


def _tried(ask: Callable[..., Any], progress: Progress, url: str, *arguments: Any) -> Any:
    """What `ask` returns, or an OSError: why there is none."""
    address = client = None
    for last in (False, True):
        try:
            address = address_of(url) if ask is _list else object_address(url)
            client = _clients.of(address)
            return ask(progress, client, address.key, *arguments)
        except FileExistsError as error:
            return error
        except (ValueError, OSError, obstore.exceptions.BaseError) as error:
            if isinstance(error, OSError) and error.filename is not None:
                return error  # Of a file here.
            if address is None:
                return OSError(errno.EINVAL, str(error), url)
            if isinstance(error, obstore.exceptions.AlreadyExistsError):
                return FileExistsError(errno.EEXIST, "the object exists already", url)
            failed = failure(error, address, "list" if ask is _list else "read, write and delete")
            if not failed.renew or last:
                return failed.os_error(url)
            _clients.renew(address, client)
        except _EndedError as error:
            return OSError(errno.ECANCELED, str(error), url)
        except BaseException as error:  # A panic of obstore, too: its user waits.
            return OSError(errno.EIO, f"{type(error).__name__}: {error}", url)
    raise AssertionError


def _list(_progress: Progress, store: Any, key: str) -> dict[str, int]:
    """The sizes of all objects below the key, by what follows it."""
    prefix = f"{key}/" if key else ""
    found: dict[str, int] = {}
    for page in obstore.list(store, prefix=prefix or None):
        for meta in page:
            found[meta["path"][len(prefix) :]] = meta["size"]
    return found


def _upload(progress: Progress, store: Any, key: str, path: str) -> None:
    """A file, in parts."""
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size <= PART_BYTES:
            data = file.read()
            obstore.put(store, key, data, use_multipart=False)
            progress(len(data))
            return
        obstore.put(
            store,
            key,
            _parts(file, progress),
            use_multipart=True,
            chunk_size=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
        )


def _parts(file: Any, progress: Progress) -> Iterator[bytes]:
    while data := file.read(PART_BYTES):
        yield data
        if _ended.is_set():
            raise _EndedError("stopped")
        progress(len(data))


def _create(progress: Progress, store: Any, key: str, path: str, replace: bool) -> None:
    """A file as one request: the object appears whole, and only if there is none, or `replace`.

    FileExistsError: there is one, which may be from a try of this request whose answer was lost.
    """
    with open(path, "rb") as file:
        data = file.read()
    obstore.put(store, key, data, use_multipart=False, mode="overwrite" if replace else "create")
    progress(len(data))


def _download(_progress: Progress, store: Any, key: str, path: str) -> bool:
    """Whether there is such an object, which is now in the file."""
    try:
        answer = obstore.get(store, key)
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise
        return False
    with open(path, "wb") as file:
        for chunk in answer.stream():
            file.write(chunk)
    return True


def _delete(_progress: Progress, store: Any, key: str, names: list[str]) -> None:
    """Objects below the key."""
    prefix = f"{key}/" if key else ""
    obstore.delete(store, [prefix + name for name in names])


_ANSWERS: dict[str, Callable[..., Any]] = {
    "list": _list,
    "upload": _upload,
    "create": _create,
    "download": _download,
    "delete": _delete,
}
