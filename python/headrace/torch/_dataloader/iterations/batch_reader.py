"""What reads the batches of an iteration ahead, as the iteration sees it."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

from headrace.torch._dataloader.epochs.drawing import Drawn


class ReadBatch(NamedTuple):
    """A batch that was read, or the error in its place."""

    number: int
    value: Any
    error: BaseException | None


class BatchReader(ABC):
    """Reads batches that one thread adds and takes.

    Bounds: that thread takes a batch for each that it adds. Shutdown: `close`, from any thread.
    """

    @abstractmethod
    def add(self, drawn: Drawn) -> None:
        """Has a batch read. Raises: what its keys raise when they are sent."""

    @abstractmethod
    def next(self, timeout: float | None) -> ReadBatch | None:
        """The next batch; None after `timeout` seconds.

        Raises: StopIteration if it was closed; what ends all reading, such as a lost worker.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends what reads. Waits a limited time for samples that are being read."""


class FinishedReader(BatchReader):
    """Another reader whose batches a thread of its own finishes, one ahead of the loop."""

    def __init__(self, reader: BatchReader, finish: Callable[[Any], Any]) -> None:
        self._reader = reader
        self._finish = finish
        self._finished: Queue[ReadBatch | BaseException] = Queue(1)
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="headrace-dataloader-finish", daemon=True
        )
        self._thread.start()

    def add(self, drawn: Drawn) -> None:
        self._reader.add(drawn)

    def next(self, timeout: float | None) -> ReadBatch | None:
        try:
            finished = self._finished.get(timeout=timeout)
        except Empty:
            return None
        if isinstance(finished, BaseException):
            self._finished.put(finished)  # It is the end: for whoever asks again.
            raise finished
        return finished

    def _run(self) -> None:
        while not self._is_closed:
            try:
                read = self._reader.next(None)
            except BaseException as error:
                self._finished.put(error)
                return
            assert read is not None
            self._finished.put(self._finished_or_error(read))
            del read  # It is the loop's now.

    def _finished_or_error(self, read: ReadBatch) -> ReadBatch:
        if read.error is not None:
            return read
        try:
            return read._replace(value=self._finish(read.value))
        except Exception as error:
            return read._replace(value=None, error=error)

    def close(self) -> None:
        self._is_closed = True
        self._reader.close()
        while self._thread.is_alive() and self._thread is not threading.current_thread():
            with contextlib.suppress(Empty):  # It may wait for room.
                self._finished.get(timeout=0.01)
        with contextlib.suppress(Empty):
            self._finished.get_nowait()
        with contextlib.suppress(Full):
            self._finished.put_nowait(StopIteration())  # For a thread that waits in `next`.
