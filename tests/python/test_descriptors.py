"""Who answers other processes, where descriptors are many or run out."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import resource
import selectors
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import _descriptors, errors
from headrace._descriptors import Acceptor
from headrace._loading import node
from headrace._observe import monitor
from headrace._observe.monitor import Address, find_loaders

PATIENCE_S = 30.0


class Listener(socket.socket):
    """That has no room for a while."""

    room = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.room:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_who_connects_while_there_is_no_room_is_left_for_a_pause_and_told_of_once() -> None:
    now = 10.0
    with (
        Listener(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as client,
        selectors.PollSelector() as selector,
    ):
        listener.bind("")
        listener.listen(1)
        acceptor = Acceptor(selector, listener, "testing", lambda: now)
        client.connect(listener.getsockname())
        assert acceptor.select(0) == [listener]
        with pytest.warns(RuntimeWarning, match=r"headrace: testing: Too many open .*ulimit -n"):
            assert acceptor.accept() is None
        assert acceptor.select(0) == []
        now += _descriptors._PAUSE_S
        assert acceptor.select(0) == [listener]
        assert acceptor.accept() is None  # and says nothing: warnings are errors here
        assert acceptor.select(0) == []
        listener.room = True
        now += _descriptors._PAUSE_S
        assert acceptor.select() == [listener]
        accepted = acceptor.accept()
        assert accepted is not None
        accepted.close()


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


def test_a_loader_answers_in_a_process_of_very_many_descriptors(numbered: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2048:
        pytest.skip("more descriptors than select() can name are not allowed here")
    with descriptors(1100, 2048), hr.Loader(numbered, 10, monitor=True) as loader:
        assert loader._monitor is not None
        answer = Address(os.getpid(), loader._monitor.ordinal).ask()
        assert answer is not None
        assert answer["dataset"] == str(loader.dataset.path)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of all threads."""
    monkeypatch.setattr(_descriptors, "_PAUSE_S", 0.01)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def connect_without_room(
    client: socket.socket, name: str, told: list[warnings.WarningMessage]
) -> str:
    """What is said of it."""
    until = time.monotonic() + PATIENCE_S
    with descriptors(1000, 256) as taken:
        assert len(taken) < 1000
        client.connect(name)
        while not told:
            assert time.monotonic() < until
            os.sched_yield()
    return str(told[0].message)


def test_who_asks_a_loader_is_answered_when_a_descriptor_is_free(
    numbered: Path, told: list[warnings.WarningMessage]
) -> None:
    with hr.Loader(numbered, 10, monitor=True) as loader, socket.socket(socket.AF_UNIX) as client:
        assert loader._monitor is not None
        name = f"\0headrace-{os.getuid()}-{os.getpid()}-{loader._monitor.ordinal}"
        assert "answering 'headrace top'" in connect_without_room(client, name, told)
        client.sendall(b"stats\n")
        with client.makefile("rb") as answer:
            assert json.load(answer)["stats"]["batches"] == 0
    assert len(told) == 1


def test_a_worker_is_served_when_a_descriptor_is_free(
    numbered: Path, told: list[warnings.WarningMessage]
) -> None:
    pytest.importorskip("torch")
    from headrace.torch import SampleStream, _server

    with (
        hr.Loader(numbered, 10) as loader,
        SampleStream(loader) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client,
    ):
        assert stream._server is not None
        text = connect_without_room(client, stream._server.address, told)
        assert "giving batches to DataLoader's workers" in text
        hello = {"iteration": [1, 1], "started": [], "worker": 0, "workers": 1}
        client.send(json.dumps(hello).encode())
        client.send(_server.NEXT)
        message, memory, _, _ = socket.recv_fds(client, _server.MESSAGE_BYTES_MAX, 1)
        os.close(*memory)
        assert json.loads(message) == {"epoch": 0, "step": 0, "rows": 10}
    assert len(told) == 1


def test_a_node_process_s_name_is_not_taken_for_a_loader_s(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._loading.node._alone", {})
    monkeypatch.setattr(os, "urandom", lambda count: b"\x12" * count)
    with hr.Loader(numbered, 10, isolation="process", monitor=True) as loader:
        assert loader._monitor is not None
        found = [each for each in find_loaders() if each.pid == os.getpid()]
        assert found == [Address(os.getpid(), loader._monitor.ordinal)]


@pytest.mark.parametrize(
    ("options", "what"),
    [({"monitor": True}, "monitor=True"), ({"isolation": "process"}, "starting a node process")],
)
def test_a_loader_that_finds_no_descriptor_says_what_for(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], what: str
) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(monitor, "_listen", none_left)
    monkeypatch.setattr(node, "_Process", none_left)
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.ResourceExhaustedError, match=f"{what}.*: Too many .*ulimit -n"):
        hr.Loader(numbered, 10, **options)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_before
