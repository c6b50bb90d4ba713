"""Worker processes that read samples, and their host."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from headrace import _core
from headrace._process.children import MAIN_EXIT, check_can_start, main_guard
from headrace._process.hosted import HostedProcesses
from headrace._process.pickling import Sent
from headrace._workers._failures import end_of
from headrace.errors import (
    FailedPreconditionError,
    HeadraceError,
    WorkerLostError,
)
from headrace.torch._dataloader.reading.fetching import Fetcher
from headrace.torch._dataloader.reading.pool_size import Spent
from headrace.torch._dataloader.workers import worker
from headrace.torch._dataloader.workers.worker import Setup

_IDLE_NS = 1_000_000_000
"""For processes that persist to finish what they read when an iteration ends."""


class ReaderProcesses:
    """The worker processes of a loader, for one iteration or all of them, and their host.

    Ownership: the processes. Shutdown: `close`.
    """

    def __init__(
        self,
        context: Any,
        fetcher: Fetcher,
        *,
        count: int,
        threads: int,
        measures: bool,
        arrival: bool,
        in_order: bool,
        batches: int,
        base_seed: int,
        init_fn: Callable[[int], object] | None,
    ) -> None:
        """`batches`: on their way or ready, at most."""
        _core.stop_at_exit()
        method = context.get_start_method()
        check_can_start(
            "starting workers", method, 'give DataLoader num_workers=0 or worker_method="thread"'
        )
        functions = {
            "dataset": fetcher.dataset,
            "collate_fn": fetcher.collate_fn,
            "worker_init_fn": init_fn,
        }
        fork = 'multiprocessing_context="fork"'
        sent = Sent(functions, f"multiprocessing_context={method!r}", fork, copies=False)
        self.whole = arrival or not fetcher.has_rows
        """Whether a batch is read by one process."""
        self.advises = threads == 1 and fetcher.batched and not fetcher.reads_batches
        self.measures = measures
        """Whether they find out how many threads they need."""
        self.is_broken = False
        self.is_busy = False
        """Whether an iteration has them."""
        self._processes = HostedProcesses()
        self._read = Spent()  # until the newest look
        self.pool: _core.ReaderPool | None = None
        try:
            for number in range(count):
                setup = Setup(
                    number=number,
                    workers=count,
                    threads=threads,
                    measures=measures,
                    base_seed=base_seed,
                    arrival=arrival,
                    host=os.getpid(),
                    batched=fetcher.batched,
                    whole=self.whole,
                )
                name = f"dataloader-{number}"
                self._processes.start(context, name, worker.run, setup, sent)
            sockets = self._processes.handed_over()
            known = 1 if measures else threads
            self.pool = _core.ReaderPool(sockets, self.whole, in_order, batches, known)
            _hosts.add(self)
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        return len(self._processes.members)

    @property
    def is_usable(self) -> bool:
        """Not broken, nor those of the process from which this one was forked."""
        return not self.is_broken and self._processes.are_ours

    def begin(self) -> tuple[_core.ReaderPool, int]:
        """Begins to serve an iteration: the pool, and the number of its run."""
        assert self.pool is not None
        run = self.pool.begin()
        self.is_busy = True
        return self.pool, run

    def halt(self) -> None:
        """Ends it. They are broken if they still read after a second."""
        if self.pool is not None and not self.pool.halt(_IDLE_NS):
            self.is_broken = True
        self.is_busy = False

    def spent(self) -> tuple[Spent, int]:
        """In reading since the last call; and how many threads read now."""
        assert self.pool is not None
        stats = self.pool.stats()
        total = Spent(stats["rows"], stats["busy_ns"] / 1e9, stats["ran_ns"] / 1e9)
        before = self._read
        newly = Spent(
            total.samples - before.samples,
            total.seconds - before.seconds,
            total.processor - before.processor,
        )
        self._read = total
        return newly, stats["threads"]

    @property
    def has_measured(self) -> bool:
        """Whether they have read enough to choose how many threads they need."""
        return self._read.samples >= self.count and self._read.is_enough

    def about_to_fork(self) -> None:
        """The child's batches stay as they are: their memory is not used again."""
        if self.pool is not None:
            self.pool.renew_memory()

    def lost(self, failure: dict[str, Any], batch: int) -> HeadraceError:
        """The error if a process is gone."""
        _core.stop_at_exit()  # The interpreter ends its children: that is no loss.
        number = failure["worker"]
        process = self._processes.members[number]
        how = end_of(process)
        if process.exitcode == MAIN_EXIT:
            return FailedPreconditionError(f"starting DataLoader worker {number}: {main_guard()}")
        if failure["text"]:
            how += f" ({failure['text']})"
        error = WorkerLostError(f"reading batch {batch}: DataLoader worker {number} {how}")
        error.pid, error.exitcode = process.pid, process.exitcode
        return error

    def close(self) -> None:
        """Waits until the processes have ended; kills those that take too long."""
        self.is_broken = True
        pool, self.pool = self.pool, None
        self._processes.forget_sockets()
        if pool is not None:
            pool.close()
        self._processes.end()


class KeptProcesses:
    """The processes of a loader whose workers persist.

    Ownership: the processes. Shutdown: `close`, or the end of the last reference.
    """

    def __init__(self) -> None:
        self._processes: ReaderProcesses | None = None
        self._end: Any = None  # closes them

    def take(
        self, start: Callable[[], ReaderProcesses], *, keep: bool
    ) -> tuple[ReaderProcesses, bool]:
        """Processes for an iteration, started if none are free, and whether they are kept after it.
        Kept ones serve one iteration at a time: while it lasts others get their own."""
        kept = self._processes
        if kept is not None and not kept.is_usable:
            self.close()
        elif kept is not None and not kept.is_busy:
            return kept, True
        processes = start()
        if not keep or self._processes is not None:
            return processes, False
        self._processes = processes
        self._end = weakref.finalize(self, processes.close)
        return processes, True

    def close(self) -> None:
        """Ends the processes. The next iteration may start others."""
        if self._end is not None:
            self._end()
            self._end = self._processes = None


_hosts: weakref.WeakSet[ReaderProcesses] = weakref.WeakSet()


def _about_to_fork() -> None:
    for processes in list(_hosts):
        processes.about_to_fork()


os.register_at_fork(before=_about_to_fork)
