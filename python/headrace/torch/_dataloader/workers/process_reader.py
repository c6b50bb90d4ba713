"""Reads the batches of an iteration in worker processes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from headrace import _core
from headrace._workers._output import BatchConverter
from headrace._workers.results.tree import dump_skeleton, load_skeleton, without_note
from headrace.errors import CancelledError, FailedPreconditionError, ResourceExhaustedError
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.iterations.batch_reader import BatchReader, ReadBatch
from headrace.torch._dataloader.reading.failures import reraised
from headrace.torch._dataloader.reading.pool_size import ReadWaits
from headrace.torch._dataloader.reading.supply import Supply
from headrace.torch._dataloader.workers import packing, rows, worker
from headrace.torch._dataloader.workers.processes import ReaderProcesses

_PACKED = dump_skeleton(worker.PACKED)


class ProcessReader(BatchReader):
    """Reads the batches of one iteration in worker processes."""

    def __init__(
        self,
        processes: ReaderProcesses,
        supply: Supply,
        base_seed: int,
        waits: ReadWaits,
        *,
        persist: bool,
    ) -> None:
        self._processes = processes
        self._supply = supply
        self._base_seed = base_seed
        self._waits = waits
        self._persist = persist
        self._output = BatchConverter(torch.from_numpy, False)
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
            pairs = zip(drawn.keys, contents or [None] * drawn.rows, strict=True)
            keys = [pickle.dumps(pair, protocol=5) for pair in pairs]
        place, keys = drawn.place, keys[: drawn.rows]
        try:
            self._pool.add(self._run, self._base_seed, drawn.number, place, keys)
        except FailedPreconditionError:
            if not self._is_closed:  # As by the end of the interpreter, in another thread.
                raise

    def next(self, timeout: float | None) -> ReadBatch | None:
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
            return ReadBatch(result.step, self._value(result), None)
        batch = result["tasks"][0][1] if result["tasks"] else min(self._open, default=0)
        if result["kind"] in ("transform", "shape"):
            self._open.discard(batch)
            return ReadBatch(batch, None, _error(result, batch))
        self._processes.is_broken = True
        if result["kind"] == "start" and result["pickle"]:
            raise _error(result, batch)
        raise self._processes.lost(result, batch)

    def _value(self, batch: _core.TransformedBatch) -> Any:
        if batch.tree != _PACKED:
            made = self._output.of_workers(batch, whole=False)
            if any(batch.objects()):
                made = rows.with_tuples_of_texts(made, without_note(load_skeleton(batch.tree)))
            return made
        return packing.unpack([batch.leaf(number)[3] for number in range(batch.leaf_count)])

    def _count(self) -> None:
        if not self._processes.measures and not self._processes.advises:
            return
        newly, threads = self._processes.spent()
        if self._processes.measures:
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
