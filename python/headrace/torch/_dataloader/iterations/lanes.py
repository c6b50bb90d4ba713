"""Threads that work on the tasks of a ring: they run the dataset, or talk to a worker process."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from headrace.torch._dataloader.iterations.ring import Batch, Ring, Task
from headrace.torch._dataloader.reading.contents import Supply
from headrace.torch._dataloader.reading.failures import ReadError, in_this_process, reraised
from headrace.torch._dataloader.reading.fetching import FAILED, Fetcher, Job, PartsDifferError, join
from headrace.torch._dataloader.reading.pool import POOL_MAX, ReadWaits, Spent, Stopwatch
from headrace.torch._dataloader.workers.processes import Process, Processes

_PART_SECONDS = 0.004
"""A part of a batch for one process should take as long: a message costs about a fortieth of it."""
_JOBS_AHEAD = 2
"""Jobs that a process has: the next is there when it has answered one."""
_JOIN_SECONDS = 1.0


class Lanes(ABC):
    """Threads that take a ring's tasks until it is closed.

    Ownership: the threads; the ring and what reads are the caller's. Shutdown: `close`.
    """

    def __init__(self, ring: Ring, supply: Supply, base_seed: int) -> None:
        self._ring = ring
        self._supply = supply
        self._base_seed = base_seed
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def tasks(self, batch: Batch) -> list[Task]:
        """The tasks that fill a batch."""

    def close(self) -> None:
        """Call it after the ring was closed. Waits for what threads do now, for a limited time:
        a sample that hangs may not stop the training loop."""
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, number: int, run: object, *arguments: object) -> None:
        assert callable(run)
        name = f"headrace-dataloader-{number}"
        # A daemon: the interpreter does not wait for a sample that hangs.
        thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _job(self, task: Task) -> Job:
        batch, first = task.batch, task.first
        keys = batch.keys
        if isinstance(keys, list):
            keys = keys if task.is_whole else keys[first : first + task.count]
        contents = self._supply.contents(batch.number, first, task.count)
        return Job(keys, batch.number, first, batch.place + first, self._base_seed, contents)


class ThreadLanes(Lanes):
    """Threads that run the dataset in this process."""

    def __init__(
        self,
        ring: Ring,
        supply: Supply,
        fetcher: Fetcher,
        waits: ReadWaits,
        count: int,
        base_seed: int,
        measures: bool,
    ) -> None:
        """Of `count` threads; or with `measures` of one, until it is known how many more help."""
        super().__init__(ring, supply, base_seed)
        self._fetcher = fetcher
        self._waits = waits
        self._count = count
        self._spent = Spent() if measures else None
        for number in range(1 if measures else count):
            self._start(number, self._run)

    def _measured(self, spent: Spent) -> None:
        """The only thread has read samples: starts the others when it knows how many."""
        assert self._spent is not None
        self._spent = self._spent.plus(spent)
        if not self._spent.is_enough:
            return
        count = max(self._count, self._spent.threads(POOL_MAX))
        self._spent = None
        self._waits.chose(self, count)
        for number in range(1, count):
            if not self._ring.is_closed:
                self._start(number, self._run)

    def _read(self, job: Job) -> list[Any]:
        if self._spent is None:
            return self._fetcher.read(job, whole_process=False)
        watch = Stopwatch()
        samples = self._fetcher.read(job, whole_process=False)
        self._measured(watch.spent(len(samples)))
        return samples

    def tasks(self, batch: Batch) -> list[Task]:
        if not self._fetcher.batched or self._fetcher.reads_batches:
            return [Task(batch, 0, batch.rows)]
        if not batch.rows:  # collate_fn says what an empty batch is.
            return [Task(batch, 0, 0)]
        return [Task(batch, slot, 1) for slot in range(batch.rows)]

    def _run(self) -> None:
        while (task := self._ring.take(wait=True)) is not None:
            batch = task.batch
            try:
                samples = self._read(self._job(task))
                if self._ring.give(task, samples):
                    filled = [sample for read in batch.results() for sample in read]
                    self._ring.finish(batch, self._fetcher.collate(filled, batch.number))
            except ReadError as error:
                self._ring.fail(batch, in_this_process(error))
            except BaseException as error:  # A dataset that breaks its promises: wrong lengths.
                self._ring.fail(batch, error)


class ProcessLanes(Lanes):
    """Threads that each talk to one worker process."""

    def __init__(
        self,
        ring: Ring,
        supply: Supply,
        fetcher: Fetcher,
        processes: Processes,
        threads: int,
        base_seed: int,
        waits: ReadWaits,
        measures: bool,
    ) -> None:
        super().__init__(ring, supply, base_seed)
        self._waits = waits
        self._may_advise = fetcher.batched and not fetcher.reads_batches and not measures
        self._processes = processes
        processes.is_busy = True
        self._parts_max = len(processes.members) if fetcher.has_parts else 1
        self._jobs_ahead = _JOBS_AHEAD * (1 if measures else threads)
        self._seconds: float | None = None  # for a sample
        for number, process in enumerate(processes.members):
            self._start(number, self._run, process)

    def tasks(self, batch: Batch) -> list[Task]:
        parts = max(1, min(self._parts_max, batch.rows))
        if self._seconds is not None:
            parts = max(1, min(parts, int(self._seconds * batch.rows / _PART_SECONDS)))
        ends = [batch.rows * (part + 1) // parts for part in range(parts)]
        return [
            Task(batch, first, end - first) for first, end in zip([0, *ends], ends, strict=False)
        ]

    def close(self) -> None:
        try:
            super().close()
        finally:  # A thread that stays would take the replies to the jobs of later ones.
            if any(thread.is_alive() for thread in self._threads):
                self._processes.is_broken = True
            self._processes.is_busy = False

    def _run(self, process: Process) -> None:
        waiting: deque[tuple[Task, Job]] = deque()
        try:
            while True:
                while len(waiting) < self._jobs_ahead:
                    task = self._ring.take(wait=not waiting)
                    if task is None:
                        break
                    waiting.append((task, self._job(task)))
                    process.send(waiting[-1][1])
                if not waiting:
                    return
                self._receive(process, waiting)
        except EOFError:
            if not self._ring.is_closed:
                self._lose(process, waiting[0][1])
        except BaseException as error:
            # Such as a reply that cannot be unpickled here.
            self._processes.is_broken = True
            self._ring.break_off(error)

    def _lose(self, process: Process, job: Job) -> None:
        self._processes.is_broken = True
        self._ring.break_off(process.lost(job))

    def _receive(self, process: Process, waiting: deque[tuple[Task, Job]]) -> None:
        reply = process.receive()
        task, _ = waiting.popleft()
        batch = task.batch
        value = reply.value
        if reply.error is not None:
            if task.is_whole or not reply.in_collate:
                self._ring.fail(batch, reraised(reply.error))
                return
            value = FAILED  # The batch is read again as a whole, for torch's own error.
        if reply.chosen is not None:
            self._jobs_ahead = max(self._jobs_ahead, _JOBS_AHEAD * reply.chosen)
            self._waits.chose(process, reply.chosen)
        elif reply.spent is not None and self._may_advise:
            self._waits.read(reply.spent, len(self._processes.members))
        spent = reply.seconds / max(1, task.count)
        self._seconds = spent if self._seconds is None else 0.9 * self._seconds + 0.1 * spent
        if self._ring.give(task, value):
            # An empty batch has no slots; its value is what collate_fn made of no samples.
            self._join(batch, batch.results() if batch.rows else [value])

    def _join(self, batch: Batch, parts: Sequence[object]) -> None:
        try:
            self._ring.finish(batch, join(parts))
        except PartsDifferError:
            self._parts_max = 1  # Later batches may differ as well.
            self._ring.again(batch)
        except BaseException as error:
            self._ring.fail(batch, error)
