"""One epoch of a DataLoader: gives batches in the training loop's thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from headrace._arguments import shown
from headrace._observe.waits import LoopWaits
from headrace._process.at_exit import exit_if_at_end
from headrace._process.tracebacks import release
from headrace.errors import FailedPreconditionError
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.epochs.progress import Progress
from headrace.torch._dataloader.iterations.batch_reader import BatchReader
from headrace.torch._dataloader.reading.failures import ReadError, in_this_process
from headrace.torch._dataloader.reading.fetching import Fetcher, ReadRequest
from headrace.torch._dataloader.reading.file_contents import FileContent
from headrace.torch._dataloader.reading.supply import Supply


class Failed:
    """What the loop gets in place of a batch: an error."""

    def __init__(self, error: BaseException) -> None:
        self._error: BaseException | None = error

    def throw(self) -> NoReturn:
        """Raises the error, once. Keeps no reference to it, as its traceback keeps this frame."""
        error, self._error = self._error, None
        assert error is not None
        try:
            raise error
        finally:
            del error


class Iteration(Iterator[Any]):
    """The batches of an epoch.

    Thread safety: threads that share an iteration get each batch once.
    Shutdown: `close`, or the end of the last reference.
    """

    def __init__(self, progress: Progress, length: Callable[[], int]) -> None:
        self.progress = progress
        self._length = length
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self.waits = LoopWaits()  # of the loader, if it sets it

    def __len__(self) -> int:
        return self._length()

    def __next__(self) -> Any:
        with self._lock:
            try:
                batch = self.waits.take(self._next)
            except StopIteration:
                self.progress.has_ended = True
                raise
            except BaseException as error:
                release(error)
                del self  # The traceback keeps this frame.
                raise
        if isinstance(batch, Failed):
            del self  # Likewise: whoever keeps the error would keep the iteration's processes.
            batch.throw()
        return batch

    def _next(self) -> Any:
        """The next batch, or Failed. Raises StopIteration, and what ends the iteration."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends what reads ahead."""


class EpochIteration(Iterator[Any]):
    """An iteration that begins again if its sampler's epoch was set before its first batch.

    Thread safety: as an Iteration.
    """

    def __init__(self, begun: Iteration, again: Callable[[Iteration], Iteration | None]) -> None:
        """`again(begun)` gives the iteration that takes its place, if one must."""
        self._iteration = begun
        self._again: Callable[[Iteration], Iteration | None] | None = again
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._iteration)

    def __next__(self) -> Any:
        with self._lock:
            if self._again is not None:
                self._iteration = self._again(self._iteration) or self._iteration
                self._again = None
        return next(self._iteration)

    def close(self) -> None:
        """Ends what reads ahead."""
        self._iteration.close()


def read_now(
    drawn: Drawn,
    contents: Sequence[FileContent | None] | None,
    progress: Progress,
    fetcher: Fetcher,
    finish: Callable[[Any], Any],
) -> Any:
    """A batch of the dataset's own samples; or Failed."""
    request = ReadRequest(drawn.keys, drawn.number, 0, drawn.place, progress.base_seed, contents)
    try:
        samples = fetcher.read(request, whole_process=False)
        value = fetcher.collate(samples, drawn.number)
    except ReadError as error:
        failure: BaseException | None = in_this_process(error)
        value = None
    else:
        failure = None
    if failure is not None:  # Outside of the block: it is the user's own error, as it was.
        progress.skip_failed(drawn)
        return Failed(failure)
    value = finish(value)
    progress.deliver(drawn)
    return value


class DirectIteration(Iteration):
    """Reads each batch when it is asked for."""

    def __init__(
        self,
        progress: Progress,
        length: Callable[[], int],
        supply: Supply,
        fetcher: Fetcher,
        finish: Callable[[Any], Any],
    ) -> None:
        super().__init__(progress, length)
        self._supply = supply
        self._fetcher = fetcher
        self._finish = finish
        self._end = weakref.finalize(self, supply.close)

    def _next(self) -> Any:
        drawn = self._supply.draw()
        if drawn is None:
            self.close()
            raise StopIteration
        contents = self._supply.contents(drawn.number, 0, drawn.rows)
        return read_now(drawn, contents, self.progress, self._fetcher, self._finish)

    def close(self) -> None:
        self._end()


@dataclass(frozen=True)
class Limits:
    """Bounds of an iteration that reads ahead."""

    batches: int
    """On their way or ready."""
    timeout: float | None
    """Seconds to wait for a batch."""


class AheadIteration(Iteration):
    """Takes batches that a reader reads ahead."""

    def __init__(
        self,
        progress: Progress,
        length: Callable[[], int],
        supply: Supply,
        reader: BatchReader,
        limits: Limits,
    ) -> None:
        """Begins to read. The reader ends with the iteration."""
        super().__init__(progress, length)
        self._supply = supply
        self._reader = reader
        self._limits = limits
        self._owner = os.getpid()
        self._drawn: dict[int, Drawn] = {}
        self._end: Any = weakref.finalize(self, _end, os.getpid(), reader, supply)
        for _ in range(self._limits.batches):
            self._fill()

    def _fill(self) -> None:
        """Draws one batch more. An error of the sampler is raised after the batches before."""
        if self._error is not None or not self._end.alive:
            return
        try:
            drawn = self._supply.draw()
        except Exception as error:
            self._error = error
            return
        if drawn is None:
            return
        self._drawn[drawn.number] = drawn
        try:
            self._reader.add(drawn)
        except Exception as error:
            del self._drawn[drawn.number]
            self._error = error

    def _next(self) -> Any:
        if self._owner != os.getpid():
            raise FailedPreconditionError(
                f"reading a batch in process {os.getpid()}: process {self._owner} began the "
                "iteration, and its workers are not in a process that was forked from it; begin "
                "an iteration in this one"
            )
        if not self._drawn or not self._end.alive:
            self.close()
            error, self._error = self._error, None
            if error is not None:
                raise error
            raise StopIteration
        try:
            read = self._reader.next(self._limits.timeout)
        except BaseException:  # A lost worker, Ctrl-C, or another thread closed it.
            self.close()
            raise
        if read is None:
            self.close()
            late = min(self._drawn)
            raise RuntimeError(
                f"DataLoader timed out after {self._limits.timeout} seconds: reading batch {late}, "
                f"samples {shown(self._drawn[late].keys)}"
            )
        drawn = self._drawn.pop(read.number)
        self._supply.forget(read.number)
        self._fill()
        if read.error is not None:
            self.progress.skip_failed(drawn)
            return Failed(read.error)
        self.progress.deliver(drawn)
        return read.value

    def close(self) -> None:
        self._end()


def _end(owner: int, reader: BatchReader, supply: Supply) -> None:
    if owner != os.getpid():  # A forked child has no reader, and perhaps a lock of its threads.
        return
    exit_if_at_end()  # A daemon thread that iterates stops, and begins no other iteration.
    try:
        supply.close()  # First: readers may wait for it.
    finally:
        reader.close()  # Also after Ctrl-C, which shortens the wait.
