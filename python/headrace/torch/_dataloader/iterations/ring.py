"""Batches on their way, and the queue of the tasks that make them. Knows no dataset."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_EMPTY: Any = object()


class Batch:
    """One batch from its draw to its delivery; a slot for each sample."""

    __slots__ = (
        "_filled",
        "_slots",
        "error",
        "is_done",
        "keys",
        "number",
        "place",
        "rows",
        "value",
    )

    def __init__(self, number: int, keys: Any, place: int, rows: int) -> None:
        self.number = number
        """In its epoch."""
        self.keys = keys
        """Keys of its samples; or one key, without automatic batching."""
        self.place = place
        """Place of its first sample in the epoch."""
        self.rows = rows
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self._filled = 0
        self._slots: list[Any] = [_EMPTY] * rows

    def put(self, slot: int | None, count: int, result: Any) -> bool:
        """Fills `count` slots from `slot`, or from the next free one. Whether none is empty now."""
        if count:
            self._slots[self._filled if slot is None else slot] = result
        self._filled += count
        return self._filled == self.rows

    def results(self) -> list[Any]:
        """What was put, in the order of the slots; the batch keeps none of it."""
        results = [each for each in self._slots if each is not _EMPTY]
        self._slots = [_EMPTY] * self.rows
        self._filled = 0
        return results


@dataclass(frozen=True, slots=True)
class Task:
    """Slots of a batch that are read together."""

    batch: Batch
    first: int
    count: int

    @property
    def is_whole(self) -> bool:
        return self.count == self.batch.rows


class Ring:
    """Batches between a consumer, which adds and takes them, and lanes, which work on their tasks.

    Thread safety: lanes call `take`, `give`, `again`, `finish`, `fail` and `break_off` from any
    thread; one consumer calls the rest, and anyone `close`.
    Bounds: the consumer bounds the batches inside by taking one for each that it adds.
    """

    def __init__(
        self, *, in_order: bool, arrival: bool, prepare: Callable[[Any], Any] = lambda value: value
    ) -> None:
        """`in_order`: batches leave in the order they were added. `arrival`: a result takes the
        next free slot of its batch. `prepare`: the consumer gets what it makes of a batch's value,
        in the thread that calls `finish`."""
        self._in_order = in_order
        self._arrival = arrival
        self._prepare = prepare
        # The collector may end an iteration, and so call `close`, in a thread that holds it.
        lock = threading.RLock()
        self._has_tasks = threading.Condition(lock)
        self._has_batch = threading.Condition(lock)
        self._tasks: deque[Task] = deque()
        self._batches: deque[Batch] = deque()
        self._broken: BaseException | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def add(self, batch: Batch, tasks: Sequence[Task]) -> None:
        """Queues a batch. Its tasks name each slot once."""
        with self._has_tasks:
            self._batches.append(batch)
            self._tasks.extend(tasks)
            self._has_tasks.notify(len(tasks))

    def take(self, *, wait: bool) -> Task | None:
        """The oldest task; None if the ring is closed or broken, or, without `wait`, has none."""
        with self._has_tasks:
            while True:
                if self._closed or self._broken is not None:
                    return None
                while self._tasks:
                    task = self._tasks.popleft()
                    if not task.batch.is_done:  # It is if another of its tasks failed.
                        return task
                if not wait:
                    return None
                self._has_tasks.wait()

    def give(self, task: Task, result: Any) -> bool:
        """Puts the result of a task into its slots. True: they were the batch's last empty ones,
        and the caller has to call `finish`, `fail` or `again` for it."""
        with self._has_batch:
            if task.batch.is_done or self._closed:
                return False
            return task.batch.put(None if self._arrival else task.first, task.count, result)

    def again(self, batch: Batch) -> None:
        """Queues a batch as one task, before all others."""
        with self._has_tasks:
            self._tasks.appendleft(Task(batch, 0, batch.rows))
            self._has_tasks.notify()

    def finish(self, batch: Batch, value: Any) -> None:
        """The batch is ready.

        Raises: what `prepare` does; then the batch is not ready.
        """
        value = self._prepare(value)
        with self._has_batch:
            batch.value, batch.is_done = value, True
            self._has_batch.notify_all()

    def fail(self, batch: Batch, error: BaseException) -> None:
        """The consumer gets this error in place of the batch. The first error counts."""
        with self._has_batch:
            if not batch.is_done:
                batch.error, batch.is_done = error, True
                self._has_batch.notify_all()

    def break_off(self, error: BaseException) -> None:
        """Nobody will finish what is not finished now: the consumer gets this error for it."""
        with self._has_batch:
            self._broken = self._broken or error
            self._has_batch.notify_all()
            self._has_tasks.notify_all()

    def next(self, timeout: float | None) -> Batch | None:
        """The next batch, which leaves the ring; None after `timeout` seconds, or if it is closed.

        Raises: what was given to `break_off`.
        """
        with self._has_batch:
            self._has_batch.wait_for(lambda: self._ready() or self._broken or self._closed, timeout)
            batch = self._ready()
            if batch is None and (self._closed or self._broken is None):
                return None
            if batch is None:
                assert self._broken is not None
                raise self._broken
            self._batches.remove(batch)
            return batch

    def _ready(self) -> Batch | None:
        if self._in_order:
            first = self._batches[0] if self._batches else None
            return first if first is not None and first.is_done else None
        return next((batch for batch in self._batches if batch.is_done), None)

    def close(self) -> None:
        """Lanes get no more tasks, and the consumer no more batches."""
        with self._has_tasks:
            self._closed = True
            self._tasks.clear()
            self._batches.clear()
            self._has_tasks.notify_all()
            self._has_batch.notify_all()
