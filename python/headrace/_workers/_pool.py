"""The loader's side of its workers: starts them, reports their failures, ends them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from multiprocessing.process import BaseProcess
from typing import Any

from headrace import _core
from headrace._observe.stats import results_budget
from headrace._observe.waits import LoopWaits
from headrace._process.children import check_can_start
from headrace._process.hosted import END_SECONDS, HostedProcesses
from headrace._process.pickling import Sent
from headrace._workers._failures import lost_worker, start_failure, transform_failure
from headrace._workers._options import WorkerOptions
from headrace._workers._output import BatchConverter
from headrace._workers.worker import main
from headrace._workers.worker.main import Settings
from headrace._workers.worker.protocol import InputField
from headrace.errors import FailedPreconditionError

_BATCHES_MAX = 4
"""Batches in workers, or ready; those that the core loader reads ahead are additional."""


class WorkerProcesses:
    """Processes that run a user's functions, and their host.

    They start with the first loader that is attached, and again after one was lost. Thread safety:
    as Loader's.
    """

    def __init__(self, options: WorkerOptions, seed: int, output: BatchConverter) -> None:
        self._options = options
        self._seed = seed
        self._output = output
        check_can_start("starting workers", options.start, "give the loader workers=0")
        self._functions = Sent(
            {
                "transform": options.transform,
                "Workers.collate_fn": options.collate_fn,
                "Workers.init_fn": options.worker_init_fn,
            },
            f"hr.Workers(start={options.start!r})",
            f'workers=hr.Workers({options.workers}, start="fork")',
            copies=True,
        )
        self._processes = HostedProcesses()
        self._host: _core.WorkerPool | None = None
        self._core: _core.Loader | None = None
        self._last: dict[str, Any] | None = None  # counts of the newest host
        self._dismissed_at: float | None = None  # for good; time.monotonic()

    @property
    def processes(self) -> list[BaseProcess]:
        """The workers that run; for tests."""
        return self._processes.members

    def attach(self, core: _core.Loader) -> None:
        """Takes batches of this core loader from now on.

        Raises: FailedPreconditionError after `dismiss`.
        """
        self._check_not_dismissed()
        self._core = core
        host = self._host
        if host is None:
            self._start(core)
        else:
            host.attach(core)

    def detach(self, core: _core.Loader) -> None:
        """Call it before the core loader is closed."""
        host = self._host  # Once: another thread may dismiss it.
        if self._core is core and host is not None:
            host.detach()

    def running(self) -> _core.WorkerPool:
        """The workers' host; starts new workers if one was lost.

        Raises: FailedPreconditionError after `dismiss`.
        """
        self._check_not_dismissed()
        host = self._host
        if host is not None and host.broken:
            self._check_not_dismissed()  # A host that another thread closes is broken, too.
            self.close()
            host = None
        if host is None:
            assert self._core is not None
            self._start(self._core)
            host = self._host
        if host is None:
            raise FailedPreconditionError("the loader is closed")
        return host

    def stop(self) -> None:
        """Ends the run."""
        host = self._host
        if host is not None:
            host.stop()

    def next(self) -> Any:
        """The next batch for the user, with its position; None at the end."""
        host = self._host
        if host is None:
            raise FailedPreconditionError("the loader is closed")
        result = host.next()
        if isinstance(result, dict):
            assert self._core is not None
            if result["kind"] == "lost":
                raise lost_worker(result, self.processes[result["worker"]])
            if result["kind"] == "start":
                raise start_failure(result, self.processes[result["worker"]], self._options.start)
            failure = transform_failure(result, self._core, self._options)
            if isinstance(failure.__cause__, KeyboardInterrupt):
                raise failure.__cause__
            raise failure
        return result

    def _check_not_dismissed(self) -> None:
        if self._dismissed_at is not None:
            raise FailedPreconditionError("the loader is closed")

    def present(self, batch: Any) -> Any:
        """Converts a batch for the user."""
        return self._output.of_workers(batch, whole=self._options.collate_fn is not None)

    def counts(self) -> dict[str, Any]:
        """The workers' part of the loader's stats; empty before the workers began."""
        host = self._host
        if host is not None:
            with contextlib.suppress(FailedPreconditionError):  # Another thread is closing it.
                self._last = host.stats()
        return self._last or {}

    def dismiss(self) -> None:
        """Closes the workers' connections for good, so that workers end. Does not wait."""
        if self._dismissed_at is None:
            self._dismissed_at = time.monotonic()
        self._close_host()

    def close(self) -> None:
        """Waits until the workers have ended; kills those that take too long.

        They have END_SECONDS since `dismiss`, or since now.
        """
        since = time.monotonic() if self._dismissed_at is None else self._dismissed_at
        try:
            self._close_host()
        finally:
            self._processes.end(since + END_SECONDS)

    def _close_host(self) -> None:
        self.counts()  # The last ones.
        host, self._host = self._host, None
        self._processes.forget_sockets()
        if host is not None:
            host.close()

    def _start(self, core: _core.Loader) -> None:
        fields = tuple(InputField(*field) for field in core.schema)
        decoded = self._options.decoded
        context: Any = multiprocessing.get_context(self._options.start)
        try:
            for number in range(self._options.workers):
                settings = Settings(number, os.getpid(), self._seed, fields, decoded)
                self._processes.start(
                    context, f"worker-{number}", main.run, settings, self._functions
                )
            counts = core.stats()
            batches_max = max(2, min(_BATCHES_MAX, counts["budget"]["batches_max"]))
            if self._options.collate_fn is not None:
                batches_max = max(batches_max, 2 * self._options.workers)
            self._host = _core.WorkerPool(
                core,
                self._processes.handed_over(),
                self._options.collate_fn is not None,
                self._options.ragged,
                batches_max,
                results_budget(counts),
            )
        except BaseException:
            self.close()
            raise


def batches_in_hand_max(options: WorkerOptions) -> int:
    """The most batches by which the training loop lags behind its workers."""
    return max(_BATCHES_MAX, 2 * options.workers)


class PooledCore:
    """Wraps a core loader; workers transform its batches. `Loader` uses it as the core loader."""

    def __init__(self, core: _core.Loader, workers: WorkerProcesses) -> None:
        self._core = core
        self._workers = workers
        self._taken = (-1, 0)  # epoch and step of the newest batch that the training loop took
        self._waits = LoopWaits()
        workers.attach(core)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def start(self, epoch: int, step: int) -> None:
        self._waits.begin()
        self._workers.running().start(epoch, step)

    def start_list(self, ids: Any, batch_ends: Any, epoch: int, first_step: int) -> None:
        self._waits.begin()
        self._workers.running().start_list(ids, batch_ends, epoch, first_step)

    def next(self) -> Any:
        batch = self._waits.take(self._workers.next)
        if batch is not None:
            self._taken = batch.epoch, batch.step
        return batch

    def stop(self) -> None:
        self._workers.stop()

    def close(self) -> None:
        try:
            self._workers.detach(self._core)
        finally:
            self._core.close()

    def stats(self) -> dict[str, Any]:
        """What the training loop took, which is behind what the workers took."""
        stats = self._core.stats()
        stats["loop_share"] = self._waits.share() or 0.0
        taken = stats["delivered"]
        if counts := self._workers.counts():
            stats["workers"] = counts
            taken |= {"batches": counts["batches"], "samples": counts["samples"]}
        listed = taken["substitutions"]
        # Otherwise the newest batches are counted, but not listed.
        if taken["substituted"] == len(listed):
            while listed and (listed[-1]["epoch"], listed[-1]["step"]) > self._taken:
                listed.pop()
            taken["substituted"] = len(listed)
        return stats
