"""Programs of test_descriptors.py: each is a process that takes its descriptors to the limit.

`python hungry_program.py NAME DATASET` ends with 0 if what the function of that name claims holds.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import resource
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import headrace as hr
from headrace import _descriptors, errors
from headrace._nodes import process as node
from headrace._observe import monitor

HANG_S = 250.0  # of what takes a moment: nothing else may decide by time here


class Told:
    """The warnings of all threads. Takes no descriptor: there is none when they come."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._some = threading.Event()
        warnings.showwarning = self._show
        warnings.simplefilter("always")

    def _show(self, message: Warning | str, *_: object, **__: object) -> None:
        self.texts.append(str(message))
        self._some.set()

    def first(self) -> str:
        assert self._some.wait(HANG_S), "no thread was notified"
        return self.texts[0]


@contextlib.contextmanager
def descriptors(count: int, limit: int) -> Iterator[list[int]]:
    """`count` of them, of as many as the limit allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            taken += (os.dup(0) for _ in range(count))
        yield taken
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class WithoutRoom:
    """A server whose thread begins when no descriptor is left: it may not need one to serve."""

    def __init__(self, server: type[monitor.Monitor]) -> None:
        self._told = Told()
        self._none_is_left = threading.Event()
        serve = server._serve

        def begin(self_: Any) -> None:
            assert self._none_is_left.wait(HANG_S)
            serve(self_)

        server._serve = begin  # type: ignore[method-assign]

    def connect(self, client: socket.socket, name: str) -> str:
        """The message about it."""
        with descriptors(1000, 256) as taken:
            assert len(taken) < 1000
            self._none_is_left.set()
            client.connect(name)
            return self._told.first()

    def check_told_once(self) -> None:
        assert len(self._told.texts) == 1, self._told.texts


def many(dataset: str) -> None:
    """A loader answers where descriptors are more than select() can name."""
    with (
        descriptors(1100, 2048) as taken,
        hr.Loader(dataset, 10, output="numpy", engine=hr.EngineOptions(monitor=True)) as loader,
    ):
        assert len(taken) == 1100
        assert loader._monitor is not None
        answer = monitor.Address(os.getpid(), loader._monitor.ordinal).ask()
        assert answer is not None
        assert answer["dataset"] == str(loader.dataset.path)


def asked(dataset: str) -> None:
    """Who asks a loader is answered when a descriptor is free."""
    server = WithoutRoom(monitor.Monitor)
    with (
        hr.Loader(dataset, 10, output="numpy", engine=hr.EngineOptions(monitor=True)) as loader,
        socket.socket(socket.AF_UNIX) as client,
    ):
        assert loader._monitor is not None
        name = f"\0headrace-{os.getuid()}-{os.getpid()}-{loader._monitor.ordinal}"
        assert "answering 'headrace top'" in server.connect(client, name)
        client.sendall(b"stats\n")
        with client.makefile("rb") as answer:
            assert json.load(answer)["stats"]["batches"] == 0
    server.check_told_once()


def _refused(dataset: str, what: str, **options: Any) -> None:
    """A loader that finds no descriptor says what for, and keeps none."""
    # What the process opens once and keeps is open after the first try.
    left_open = []
    for _ in range(3):
        try:
            hr.Loader(dataset, 10, output="numpy", **options)
        except errors.ResourceExhaustedError as error:
            text = str(error)
        else:
            text = "it was made"
        assert what in text, text
        assert ": Too many " in text, text
        assert "ulimit -n" in text, text
        gc.collect()
        left_open.append(len(os.listdir("/proc/self/fd")))
    assert left_open[1] == left_open[2], left_open


def _none_left(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def refused_monitor(dataset: str) -> None:
    monitor._listen = _none_left  # type: ignore[assignment]
    _refused(dataset, "EngineOptions.monitor", engine=hr.EngineOptions(monitor=True))


def refused_node(dataset: str) -> None:
    node._Process = _none_left  # type: ignore[assignment,misc]
    _refused(dataset, "starting a node process", job=hr.Job(node=hr.Node()))


PROGRAMS: dict[str, Callable[[str], None]] = {
    each.__name__: each for each in (many, asked, refused_monitor, refused_node)
}

if __name__ == "__main__":
    _descriptors._PAUSE_S = 0.01
    monitor._SECONDS_MAX = HANG_S  # for one who asks: this machine may be busy
    PROGRAMS[sys.argv[1]](sys.argv[2])
