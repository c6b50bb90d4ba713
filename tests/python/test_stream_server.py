"""A stream's side of its workers: what waits for them, and who is waited for."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from loader_data import epoch_ids, flat

pytest.importorskip("torch")

import stream_functions as functions
from test_sample_stream import Batch, make

import headrace as hr
from headrace import errors
from headrace._loading.cursor import Cursor, Place
from headrace._loading.feed import Delivered
from headrace._nodes import process as node
from headrace.torch import SampleStream, _server, _stream


def test_a_process_that_is_forked_keeps_no_batch_that_waits_for_a_worker() -> None:
    def kept() -> int:
        count = 0
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # That of the listing itself.
                count += "headrace-batch" in os.readlink(f"/proc/self/fd/{number}")
        return count

    deal = _server._Deal("an iteration", (), 2)
    deal.batches = iter(Batch, None)  # type: ignore[assignment]
    while deal.wants_one():
        deal.pull(())
    assert kept() == 4
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            number = deal.lanes[0].ready[0][1]
            os.write(say, b"%d" % kept())
            os.dup2(say, number)  # Something else has the number now, and keeps it.
            deal.lanes[0].drop_ready()
            os.write(number, b" and not closed")
        finally:
            os._exit(0)  # What is not written fails.
    assert os.waitpid(child, 0) == (child, 0)  # Tests before may have left other children.
    assert os.read(hear, 99) == b"0 and not closed"
    for lane in deal.lanes:
        lane.drop_ready()
    assert kept() == 0
    os.close(hear)
    os.close(say)


def test_a_worker_that_asks_is_told_that_its_iteration_was_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[bytes] = []
    monkeypatch.setattr(_server._Lane, "say", lambda lane, message, memories: said.append(message))

    def stopped() -> Iterator[Any]:
        raise errors.CancelledError("the run was stopped")
        yield

    deal = _server._Deal("an iteration", (), 1)
    deal.batches = stopped()  # type: ignore[assignment]
    deal.lanes[0].asks = True
    deal.is_over = True
    deal.pull(())
    assert [b"this iteration is over" in message for message in said] == [True]


@pytest.mark.parametrize("how", ["set_epoch", "load_state_dict", "iterate"])
def test_a_stream_that_is_told_where_to_go_on_waits_for_no_other_rank(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("MASTER_PORT", f"stream-{os.getpid()}-{how}")

    def ranked(rank: int) -> hr.Loader:
        node._ordinals.clear()  # Each is the first of its rank.
        place: dict[str, Any] = {
            "sharding": hr.Sharding(rank=rank, world_size=2),
            "node_process": hr.NodeProcess(local_rank=rank, local_world_size=2),
        }
        return make(numbered, **place)

    epoch = int(how == "set_epoch")
    with make(numbered, sharding=hr.Sharding(rank=0, world_size=2)) as plain:
        plain.set_epoch(epoch)
        state, expected = plain.state_dict(), epoch_ids(plain)
    with (
        ranked(0) as loader,
        ranked(1) as other,
        SampleStream(loader, functions.drawn) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker,
    ):
        server = stream._owned()
        worker.connect(server.address)
        worker.send(b'{"iteration": 1, "started": 1, "worker": 0, "workers": 1}')
        worker.send(_server.NEXT)
        while server._deal is None:
            os.sched_yield()  # From here on it waits for the other rank, with the lock.
        if how == "set_epoch":
            stream.set_epoch(epoch)
        elif how == "load_state_dict":
            stream.load_state_dict(state)
        samples = iter(stream)
        assert (
            "this iteration is over" in json.loads(worker.recv(_server.MESSAGE_BYTES_MAX))["text"]
        )
        other.set_epoch(epoch)
        reading = threading.Thread(target=lambda: [None for _ in other])
        reading.start()
        assert [number for number, _, _ in samples] == flat(expected)
        reading.join()


class OneBatch:
    """As the core makes them: of two samples."""

    epoch, step = 3, 1

    def samples(self) -> Any:
        return np.array([7, 4], np.uint64)

    def field(self, position: int) -> Any:
        return np.array([position, 10 + position])


class Feed:
    """A `BatchFeed` of one epoch with one batch, without a loader."""

    delivers = Delivered(
        {"a": "scalar", "b": "scalar"},
        (("a", "int64", (), False), ("b", "int64", (), False)),
        native=None,
        ids=True,
        python=False,
        seed=0,
    )
    shares, samples = 1, 2

    def __init__(self) -> None:
        self.cursor: Cursor[Any] = Cursor(2)
        self.called: list[str] = []

    def check_open(self) -> None:
        self.called.append("check_open")

    def iterate(self, present: Callable[[Any], Any], base_seed: bool = True) -> Iterator[Any]:
        assert not base_seed  # DataLoader draws it.
        self.called.append("iterate")
        self.cursor.begin(3, 1)
        return iter([present(OneBatch())])

    def interrupt(self) -> None:
        self.called.append("interrupt")


def test_a_server_needs_nothing_of_a_loader_but_the_feed() -> None:
    feed = Feed()
    server = _server.Server(cast(Any, feed))
    try:
        batches = server.begin()
        assert server.newest == Place(3, 1)
        (batch,) = _stream._taken(server, batches)
        epoch, step, ids, columns = batch
        assert (epoch, step, ids) == (3, 1, [7, 4])
        assert [column.tolist() for column in cast(Any, columns)] == [[0, 10], [1, 11]]
        with server.anew():
            assert server.newest is None
        assert feed.called == ["iterate"]
    finally:
        server.close()
