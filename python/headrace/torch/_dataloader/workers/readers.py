"""The host of worker processes that read samples: what a DataLoader's iteration talks to."""

from __future__ import annotations

import os
import pickle
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from headrace import _core
from headrace._process.children import MAIN_EXIT, check_can_start, main_guard
from headrace._process.hosted import HostedProcesses
from headrace._process.pickling import Sent
from headrace._workers._failures import end_of
from headrace._workers._output import Output
from headrace._workers._tree import dump_skeleton, load_skeleton
from headrace.errors import (
    CancelledError,
    FailedPreconditionError,
    HeadraceError,
    ResourceExhaustedError,
    WorkerLostError,
)
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.iterations.reader import Read, Reader
from headrace.torch._dataloader.reading.contents import Supply
from headrace.torch._dataloader.reading.failures import reraised
from headrace.torch._dataloader.reading.fetching import Fetcher
from headrace.torch._dataloader.reading.pool import ReadWaits, Spent
from headrace.torch._dataloader.workers import packing, rows, worker
from headrace.torch._dataloader.workers.worker import Setup

_IDLE_NS = 1_000_000_000
"""For processes that persist to finish what they read when an iteration ends."""
_PACKED = dump_skeleton(worker.PACKED)


class Processes:
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


_hosts: weakref.WeakSet[Processes] = weakref.WeakSet()


def _about_to_fork() -> None:
    for processes in list(_hosts):
        processes.about_to_fork()


os.register_at_fork(before=_about_to_fork)


class ProcessReader(Reader):
    """Has the batches of one iteration read by worker processes."""

    def __init__(
        self,
        processes: Processes,
        supply: Supply,
        base_seed: int,
        waits: ReadWaits,
        *,
        measures: bool,
        persist: bool,
    ) -> None:
        self._processes = processes
        self._supply = supply
        self._base_seed = base_seed
        self._waits = waits
        self._measures = measures
        self._persist = persist
        self._output = Output(torch.from_numpy, False)
        self._pool, self._run = processes.begin()
        self._open: set[int] = set()  # batches that were added and not given
        self._is_closed = False
        self._feeder: _Feeder | None = None
        if supply.waits:
            self._feeder = _Feeder(self._send, self._pool)

    def add(self, drawn: Drawn) -> None:
        self._open.add(drawn.number)
        if self._feeder is None:
            self._send(drawn)
        else:
            self._feeder.add(drawn)

    def _send(self, drawn: Drawn) -> None:
        contents = self._supply.contents(drawn.number, 0, drawn.rows)
        if self._processes.whole:
            keys = [pickle.dumps((drawn.keys, contents), protocol=5)]
            keys += [b""] * (drawn.rows - 1)
        else:
            of = contents or [None] * drawn.rows
            pairs = zip(drawn.keys, of, strict=True)
            keys = [pickle.dumps(pair, protocol=5) for pair in pairs]
        place, keys = drawn.place, keys[: drawn.rows]
        try:
            self._pool.add(self._run, self._base_seed, drawn.number, place, keys)
        except FailedPreconditionError:
            if not self._is_closed:  # As by the end of the interpreter, in another thread.
                raise

    def next(self, timeout: float | None) -> Read | None:
        try:
            result = None if self._is_closed else self._pool.next(_ns(timeout))
        except (CancelledError, FailedPreconditionError):
            if self._feeder is not None and self._feeder.error is not None:
                raise self._feeder.error from None
            raise StopIteration from None
        if self._is_closed:
            raise StopIteration
        if result is None:
            return None
        self._count()
        if not isinstance(result, dict):
            self._open.discard(result.step)
            return Read(result.step, self._value(result), None)
        batch = result["tasks"][0][1] if result["tasks"] else min(self._open, default=0)
        if result["kind"] in ("transform", "shape"):
            self._open.discard(batch)
            return Read(batch, None, _error(result, batch))
        self._processes.is_broken = True
        if result["kind"] == "start" and result["pickle"]:
            raise _error(result, batch)
        raise self._processes.lost(result, batch)

    def _value(self, batch: _core.TransformedBatch) -> Any:
        if batch.tree != _PACKED:
            made = self._output.of_workers(batch, whole=False)
            if any(batch.objects()):
                made = rows.with_tuples_of_texts(made, load_skeleton(batch.tree))
            return made
        return packing.unpack([batch.leaf(number)[3] for number in range(batch.leaf_count)])

    def _count(self) -> None:
        if not self._measures and not self._processes.advises:
            return
        newly, threads = self._processes.spent()
        if self._measures:
            if threads > self._processes.count or self._processes.has_measured:
                self._waits.chose(self._processes, threads)
        elif newly.samples:
            self._waits.read(newly, self._processes.count)

    def close(self) -> None:
        self._is_closed = True
        if self._feeder is not None:
            self._feeder.is_closed = True
        try:
            if self._persist:
                self._processes.halt()
            else:
                self._processes.close()
        finally:
            if self._feeder is not None:
                self._feeder.close()


class _Feeder:
    """Sends batches from a thread of its own, where what their files hold must be waited for."""

    def __init__(self, send: Callable[[Drawn], None], pool: _core.ReaderPool) -> None:
        self.error: BaseException | None = None
        self._send = send
        self._pool = pool
        self._drawn: SimpleQueue[Drawn | None] = SimpleQueue()
        self.is_closed = False
        thread = threading.Thread(target=self._run, name="headrace-dataloader-feeder", daemon=True)
        self._thread = thread
        thread.start()

    def add(self, drawn: Drawn) -> None:
        self._drawn.put(drawn)

    def _run(self) -> None:
        while (drawn := self._drawn.get()) is not None and not self.is_closed:
            try:
                self._send(drawn)
            except BaseException as error:
                if not self.is_closed:
                    self.error = error
                    self._pool.halt(0)
                return

    def close(self) -> None:
        """Call it after the supply was closed, which wakes the thread."""
        self.is_closed = True
        self._drawn.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)


def _ns(seconds: float | None) -> int:
    """For the core; negative: no limit."""
    return -1 if seconds is None else int(seconds * 1e9)


def _error(failure: dict[str, Any], batch: int) -> BaseException:
    """The exception of a worker; or why there is no memory for what it made."""
    if failure["kind"] == "shape":
        return ResourceExhaustedError(f"reading batch {batch}: {failure['text']}")
    try:
        wrapper = pickle.loads(failure["pickle"])
        assert isinstance(wrapper, ExceptionWrapper)
    except BaseException:  # Of a class that this process cannot import.
        return RuntimeError(failure["text"])
    return reraised(wrapper)
