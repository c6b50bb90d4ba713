"""What reads ahead of an iteration, alone: order, errors of one batch, the end."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from typing import Any

import pytest

pytest.importorskip("torch")

from headrace import _core
from headrace.errors import FailedPreconditionError
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.iterations.batch_reader import (
    BatchReader,
    FinishedReader,
    ReadBatch,
)
from headrace.torch._dataloader.iterations.thread_reader import ThreadReader
from headrace.torch._dataloader.reading.fetching import Fetcher
from headrace.torch._dataloader.reading.pool_size import ReadWaits
from headrace.torch._dataloader.reading.supply import Supply


def drawn(number: int, keys: list[int]) -> Drawn:
    return Drawn(number, keys, 10 * number, len(keys), "", None)


class Given(BatchReader):
    """Gives what it is made with, and then waits until it is closed."""

    def __init__(self, *reads: ReadBatch) -> None:
        self._reads = deque(reads)
        self._closed = threading.Event()

    def add(self, drawn: Drawn) -> None: ...

    def next(self, timeout: float | None) -> ReadBatch | None:
        if self._reads:
            return self._reads.popleft()
        self._closed.wait()
        raise StopIteration

    def close(self) -> None:
        self._closed.set()


def test_a_pool_that_was_closed_says_what_to_do() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        pool = _core.ReaderPool([os.dup(ours.fileno())], False, True, 4, 1)
        pool.begin()
        pool.close()
        for call in (pool.begin, pool.stats, lambda: pool.next(-1)):
            with pytest.raises(
                FailedPreconditionError, match="the workers have ended; iterate the DataLoader"
            ):
                call()


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    """What a call returns or raises, in a thread that was started."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def test_an_error_in_finishing_is_that_of_one_batch() -> None:
    def finish(value: int) -> int:
        if value == 1:
            raise MemoryError("no pinned memory")
        return value * 10

    reads = [ReadBatch(number, number, None) for number in range(3)]
    reads.append(ReadBatch(3, None, KeyError(3)))
    reader = FinishedReader(Given(*reads), finish)
    found = [reader.next(30) for _ in range(4)]
    reader.close()
    assert [read.value for read in found if read is not None] == [0, None, 20, None]
    assert [repr(read.error) for read in found if read is not None] == [
        *("None", "MemoryError('no pinned memory')", "None", "KeyError(3)"),
    ]


@pytest.mark.parametrize("reads", [0, 1, 5])
def test_closing_wakes_who_waits_for_a_finished_batch(reads: int) -> None:
    for _ in range(20):
        given = Given(*[ReadBatch(number, number, None) for number in range(reads)])
        reader = FinishedReader(given, lambda value: value)
        for _ in range(reads):
            assert reader.next(30) is not None
        thread, found = in_thread(lambda reader=reader: reader.next(None))
        reader.close()
        thread.join(30)
        assert [type(each) for each in found] == [StopIteration]


class Samples:
    def __init__(self) -> None:
        self.may_go = threading.Event()

    def __getitem__(self, key: int) -> int:
        if key == 99:
            self.may_go.wait(60)
        if key < 0:
            raise LookupError(f"no sample {key}")
        return key


def thread_reader(data: Samples, **how: Any) -> ThreadReader:
    fetcher = Fetcher(data, list, batched=True)
    options = {"threads": 2, "base_seed": 1, "in_order": True, "arrival": False, "measures": False}
    supply = Supply(lambda: None)
    return ThreadReader(supply, fetcher, ReadWaits(), lambda value: value, **(options | how))


def test_batches_leave_in_order_or_as_they_are_complete() -> None:
    for in_order in (True, False):
        data = Samples()
        reader = thread_reader(data, in_order=in_order)
        reader.add(drawn(0, [1, 99]))
        reader.add(drawn(1, [2, 3]))
        if in_order:
            assert reader.next(0.01) is None
            data.may_go.set()
            expected = [(0, [1, 99]), (1, [2, 3])]
        else:
            expected = [(1, [2, 3]), (0, [1, 99])]
        for number, value in expected:
            read = reader.next(30)
            assert read is not None
            assert (read.number, read.value, read.error) == (number, value, None)
            data.may_go.set()
        reader.close()


def test_the_first_error_of_a_batch_counts_and_the_next_batch_follows() -> None:
    reader = thread_reader(Samples(), threads=1)
    reader.add(drawn(0, [1, -1, -2]))
    reader.add(drawn(1, []))
    reader.add(drawn(2, [5]))
    first, empty, last = (reader.next(30) for _ in range(3))
    assert first is not None
    assert repr(first.error) == "LookupError('no sample -1')"
    assert empty is not None
    assert empty.value == []
    assert last is not None
    assert last.value == [5]
    reader.close()


def test_closing_ends_the_wait_of_a_consumer_and_of_threads() -> None:
    reader = thread_reader(Samples())
    thread, found = in_thread(lambda: reader.next(None))
    reader.close()
    thread.join(30)
    assert [type(each) for each in found] == [StopIteration]
    assert not any(each.is_alive() for each in reader._threads)


def test_a_thread_that_has_the_lock_can_close() -> None:
    """As the garbage collector does, if it ends an iteration there."""
    reader = thread_reader(Samples(), threads=1)

    def close() -> None:
        with reader._has_tasks:
            reader.close()

    thread, _ = in_thread(close)
    thread.join(60)
    assert not thread.is_alive()
