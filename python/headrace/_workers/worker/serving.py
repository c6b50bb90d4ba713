"""What every worker process does: carries out its host's messages until the host is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import _core
from headrace._workers.results.rows import Columns, ResultError, storage_dtype
from headrace._workers.worker import protocol
from headrace._workers.worker.protocol import Busy, InputField, Task
from headrace._workers.worker.written_layout import WrittenLayout

REPLY_BYTES_MAX = _core.WorkerChannel.REPLY_BYTES_MAX
ERROR_TEXT_MAX = 1 << 20  # characters


def open_channel(connection: Any, host: int) -> _core.WorkerChannel:
    """The worker's end of its connection; `connection` is a socket, `host` the process that started
    it. From now on this process ends when the host does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The host handles Ctrl-C.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # It was blocked until here.
    socket = connection.detach()
    os.register_at_fork(after_in_child=lambda: _let_go(socket))
    return _core.WorkerChannel.open(socket, host)


def _let_go(descriptor: int) -> None:
    """Closes the connection in a child that the user's function forks: otherwise the host would not
    see the worker end. Keeps its number in use, because objects of the child will close it."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


class Stopwatch:
    """The time that this thread spends from now on."""

    def __init__(self, ran_ns: Callable[[], int] = time.thread_time_ns) -> None:
        """`ran_ns`: for how long this thread has run."""
        self._ran_ns = ran_ns
        self._began, self._ran = time.perf_counter_ns(), ran_ns()

    def busy(self) -> Busy:
        """Until now."""
        busy_ns = time.perf_counter_ns() - self._began
        return Busy(busy_ns, min(busy_ns, self._ran_ns() - self._ran))


class Server(ABC):
    """Carries out the host's messages: computes tasks, and writes results where the host says.

    Thread safety: one thread calls `serve`; any thread `reply` and `written`.
    """

    def __init__(self, channel: Any, fields: Sequence[InputField]) -> None:
        self._channel = channel
        self._fields = fields
        self._replying = threading.Lock()
        # 0 is the host's number of none, for rows without bytes in a batch that has no memory.
        self._memories: dict[int, Any] = {0: np.zeros(0, np.uint8)}
        # Results that wait for their places in a batch.
        self._buffered: dict[int, tuple[Columns, int]] = {}
        self._written_layout: WrittenLayout | None = None

    @abstractmethod
    def take(self, task: Task) -> None:
        """Computes a task, now or in another thread, and replies."""

    @abstractmethod
    def failed(self, task: int, slot: int, error: BaseException) -> bytes:
        """The reply that says so."""

    def reply(self, message: bytes) -> None:
        """Sends it. If the host is gone, `serve` ends."""
        with self._replying:
            self._channel.send(message)

    def serve(self) -> None:
        """Runs until the host closes the connection or is gone."""
        while (received := self._channel.receive()) is not None:
            fresh, gone, body = received
            self._memories.update(fresh)
            for number in gone:
                self._memories.pop(number, None)
            if body:
                self._carry_out(memoryview(body))

    def _carry_out(self, body: memoryview) -> None:
        kind, body = body[:8].cast("Q")[0], body[8:]
        if kind == protocol.COMPUTE:
            self.take(Task.parse(body, self._fields, self._memories))
            return
        number, leaves, places = protocol.write_head(body)
        columns, first_slot = self._buffered.pop(number)
        if leaves == 0:
            return
        try:
            protocol.write_leaves(columns, places, self._memories)
            done = protocol.done(number, Busy(0, 0), columns.objects())
        except BaseException as error:
            done = self.failed(number, first_slot, error)
        self.reply(self.bounded(number, first_slot, done))

    def bounded(self, task: int, slot: int, message: bytes) -> bytes:
        """The reply to a task; the error in its place if it is too large to send."""
        if len(message) <= REPLY_BYTES_MAX:
            return message
        why = ResultError(
            0,
            f"results that are no arrays take {len(message):,} bytes of a task of some samples, at "
            f"most {REPLY_BYTES_MAX:,} can be sent: return arrays, or make batch_size smaller",
        )
        return self.failed(task, slot, why)

    def wrote_as_before(self, task: Task, results: Sequence[Any]) -> bool:
        """Whether the results of a task had the layout of those before, and were written."""
        written = self._written_layout
        if written is None or task.layout != written.layout:
            return False
        return written.write(results, task.places)

    def written(self, task: Task, made: Columns, busy: Busy) -> bytes:
        """Writes results to where the host expects them, or keeps them until it says where; the
        reply."""
        layout = protocol.layout_of(made)
        if task.layout != layout:
            self._buffered[task.number] = made, task.first_slot
            return protocol.shaped(task.number, busy, made, layout)
        for column, place in zip(made.columns, task.places, strict=True):
            if not column.is_object:
                assert column.shape is not None
                shape = (made.rows, *column.shape)
                column.write(protocol.rows_at(place, storage_dtype(column.dtype), shape))
        self._written_layout = WrittenLayout(layout, made)
        return protocol.done(task.number, busy, made.objects())
