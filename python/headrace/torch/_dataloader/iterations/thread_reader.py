"""Threads of this process that read the samples of batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.iterations.batch_reader import BatchReader, ReadBatch
from headrace.torch._dataloader.reading.failures import ReadError, in_this_process
from headrace.torch._dataloader.reading.fetching import Fetcher, ReadRequest
from headrace.torch._dataloader.reading.pool_size import POOL_MAX, ReadWaits, Spent, Stopwatch
from headrace.torch._dataloader.reading.supply import Supply

_JOIN_SECONDS = 1.0
_EMPTY: Any = object()


class _Batch:
    """A batch on its way: a slot for each request."""

    def __init__(self, drawn: Drawn, requests: int) -> None:
        """`requests`: how many read it; one reads all samples, or each one of them."""
        self.drawn = drawn
        self.rows = drawn.rows if requests == 1 else 1
        """Of each request."""
        self.read: ReadBatch | None = None
        """Once it is complete, or failed."""
        self._left = requests
        self._slots: list[Any] = [_EMPTY] * requests

    def put(self, slot: int | None, samples: list[Any]) -> bool:
        """Fills a slot, or the next free one. Whether none is empty now."""
        self._slots[len(self._slots) - self._left if slot is None else slot] = samples
        self._left -= 1
        return self._left == 0

    def samples(self) -> list[Any]:
        """Those of all slots; the batch keeps none of them."""
        slots, self._slots = self._slots, []
        return [sample for samples in slots for sample in samples]


class ThreadReader(BatchReader):
    """Reads each sample of a batch by one of several threads; the last one collates it.

    Thread safety: any thread may call.
    """

    def __init__(
        self,
        supply: Supply,
        fetcher: Fetcher,
        waits: ReadWaits,
        finish: Callable[[Any], Any],
        *,
        threads: int,
        base_seed: int,
        in_order: bool,
        arrival: bool,
        measures: bool,
    ) -> None:
        """`finish`: what a batch becomes, in the thread that completes it. `threads`: how many; or,
        with `measures` one, until it is known how many more help."""
        self._supply = supply
        self._fetcher = fetcher
        self._waits = waits
        self._finish = finish
        self._count = threads
        self._base_seed = base_seed
        self._in_order = in_order
        self._arrival = arrival
        self._spent = Spent() if measures else None
        # The collector may end an iteration, and so call `close`, in a thread that holds it.
        lock = threading.RLock()
        self._has_requests = threading.Condition(lock)
        self._has_batch = threading.Condition(lock)
        self._requests: deque[tuple[_Batch, ReadRequest]] = deque()
        self._batches: deque[_Batch] = deque()
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        for _ in range(1 if measures else threads):
            self._start()

    def _start(self) -> None:
        name = f"headrace-dataloader-{len(self._threads)}"
        # A daemon: the interpreter does not wait for a sample that hangs.
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def add(self, drawn: Drawn) -> None:
        whole = ReadRequest(drawn.keys, drawn.number, 0, drawn.place, self._base_seed)
        requests = self._fetcher.divided(whole) or [whole]  # An empty batch is collated, too.
        batch = _Batch(drawn, len(requests))
        with self._has_requests:
            self._batches.append(batch)
            self._requests.extend([(batch, request) for request in requests])
            self._has_requests.notify(len(requests))

    def next(self, timeout: float | None) -> ReadBatch | None:
        with self._has_batch:
            self._has_batch.wait_for(lambda: self._ready() or self._is_closed, timeout)
            if self._is_closed:
                raise StopIteration
            batch = self._ready()
            if batch is None:
                return None
            self._batches.remove(batch)
            return batch.read

    def _ready(self) -> _Batch | None:
        seen = list(self._batches)[:1] if self._in_order else self._batches
        return next((batch for batch in seen if batch.read is not None), None)

    def close(self) -> None:
        with self._has_requests:
            self._is_closed = True
            self._requests.clear()
            self._batches.clear()
            self._has_requests.notify_all()
            self._has_batch.notify_all()
        # What threads do now is waited for, for a limited time: a sample that hangs may not stop
        # the training loop.
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (request := self._next_request()) is not None:
            self._carry_out(*request)
            del request  # Nothing here keeps a batch that the loop has let go.

    def _carry_out(self, batch: _Batch, request: ReadRequest) -> None:
        try:
            samples = self._read(batch, request)
            if self._put(batch, request.first, samples):
                value = self._fetcher.collate(batch.samples(), batch.drawn.number)
                self._complete(batch, self._finish(value), None)
        except ReadError as error:
            self._complete(batch, None, in_this_process(error))
        except BaseException as error:  # A dataset that breaks its promises: wrong lengths.
            self._complete(batch, None, error)

    def _next_request(self) -> tuple[_Batch, ReadRequest] | None:
        """The oldest one, and its batch; None if the reader is closed."""
        with self._has_requests:
            while not self._is_closed:
                while self._requests:
                    batch, request = self._requests.popleft()
                    if batch.read is None:  # Else another of its requests failed.
                        return batch, request
                self._has_requests.wait()
            return None

    def _read(self, batch: _Batch, request: ReadRequest) -> list[Any]:
        contents = self._supply.contents(request.batch, request.first, batch.rows)
        if contents is not None:
            request = request._replace(contents=contents)
        if self._spent is None:
            return self._fetcher.read(request, whole_process=False)
        watch = Stopwatch()
        samples = self._fetcher.read(request, whole_process=False)
        self._measured(watch.spent(batch.rows))
        return samples

    def _measured(self, spent: Spent) -> None:
        """The only thread has read samples: starts the others when it knows how many."""
        assert self._spent is not None
        self._spent = self._spent.plus(spent)
        if not self._spent.is_enough:
            return
        count = max(self._count, self._spent.threads(POOL_MAX))
        self._spent = None
        self._waits.chose(self, count)
        for _ in range(1, count):
            if not self._is_closed:
                self._start()

    def _put(self, batch: _Batch, slot: int, samples: list[Any]) -> bool:
        with self._has_batch:
            if batch.read is not None or self._is_closed:
                return False
            return batch.put(None if self._arrival else slot, samples)

    def _complete(self, batch: _Batch, value: Any, error: BaseException | None) -> None:
        """The first of it counts."""
        with self._has_batch:
            if batch.read is None:
                batch.read = ReadBatch(batch.drawn.number, value, error)
                self._has_batch.notify_all()
