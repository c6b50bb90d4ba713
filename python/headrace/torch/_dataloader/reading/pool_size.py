"""How many samples to read at a time: from how long reading them took, and its processor time."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace._observe.waits import LoopWaits
from headrace._workers.worker import serving
from headrace.formats._base.findings import callers_level

AUTO = "auto"
POOL_MAX = 32
"""Samples that are read at a time at most, unless the user says more."""
_WAITED_MIN = 0.2  # of the loop's time, for a warning
_GAIN_MIN = 1.5
_STEPS_MIN, _SECONDS_MIN = 16, 2.0  # of the loop, before it
_SAMPLES_MIN, _READ_SECONDS_MIN = 16, 0.05  # that are measured, before anything is chosen


class Spent(NamedTuple):
    """Time that one thread spent in reading samples, one after the other."""

    samples: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    """Of it, seconds that this thread ran, or waited for a processor. In the rest it waited for
    files, the network, or a lock."""

    def plus(self, more: Spent) -> Spent:
        return Spent(
            self.samples + more.samples,
            self.seconds + more.seconds,
            self.processor + more.processor,
        )

    @property
    def is_enough(self) -> bool:
        """Whether it says how samples are read."""
        return self.samples >= _SAMPLES_MIN and self.seconds >= _READ_SECONDS_MIN

    def threads(self, limit: int) -> int:
        """How many threads of one process keep a processor busy with such samples."""
        needed = self.seconds / max(self.processor, self.seconds / limit)
        return max(1, min(limit, round(needed)))


class Stopwatch(serving.Stopwatch):
    """The time that this thread spends from now on."""

    def __init__(self) -> None:
        super().__init__(_processor_ns)

    def spent(self, samples: int) -> Spent:
        """Until now, in reading so many samples."""
        busy = self.busy()
        return Spent(samples, busy.busy_ns / 1e9, busy.ran_ns / 1e9)


def _processor_ns() -> int:
    """That this thread ran, and, where the kernel counts it, that it waited for a processor."""
    try:
        with open("/proc/thread-self/schedstat", "rb", 0) as file:
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        return time.thread_time_ns()
    return max(int(ran), time.thread_time_ns()) + int(waited)


class PoolAdvice(NamedTuple):
    """A `pool_size` for a loader, and how many times as fast it reads then."""

    pool_size: int
    gain: float
    waiting: float
    """Share of the time in `__getitem__` that was waiting."""

    def __str__(self) -> str:
        return (
            f"{self.waiting:.0%} of the time in __getitem__ is waiting, not computing, so that "
            f"pool_size={self.pool_size} would give up to {self.gain:.1f} times the samples a "
            "second (predicted from this run's own batches). It reads "
            "several samples at a time in threads: give it, or pool_size='auto', if __getitem__ "
            "may run in several threads at once"
        )


def advised(spent: Spent, workers: int, waited: float) -> PoolAdvice | None:
    """What more threads would give `workers` processes of one thread each, whose loop waits for
    this share of its time. None: little, or it is not known yet."""
    if not spent.is_enough or workers < 1 or waited <= 0:
        return None
    threads = spent.threads(max(1, POOL_MAX // workers))
    faster = min(threads, spent.seconds / max(spent.processor, 1e-9))
    gain = min(faster, 1 / max(1 - waited, 1e-3))
    if gain < _GAIN_MIN:
        return None
    return PoolAdvice(threads * workers, gain, 1 - spent.processor / spent.seconds)


class ReadWaits(LoopWaits):
    """How long a loop waited, and how the processes read that it waited for.

    Thread safety: any thread may call.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        super().__init__(clock)
        self._reads_lock = threading.Lock()
        self._spent = Spent()
        self._workers = 0
        self._warned = False
        self._chosen: dict[int, int] = {}

    def read(self, spent: Spent, workers: int) -> None:
        """One of these processes, which read one sample at a time, spent this."""
        with self._reads_lock:
            self._spent, self._workers = self._spent.plus(spent), workers

    def chose(self, reader: object, threads: int) -> None:
        """A process, or all threads together, chose to read so many samples at a time."""
        with self._reads_lock:
            self._chosen[id(reader)] = threads

    @property
    def chosen(self) -> int | None:
        """Samples that are read at a time, as it was measured; None: it was not."""
        with self._reads_lock:
            return sum(self._chosen.values()) or None

    def begin(self) -> None:
        super().begin()
        with self._reads_lock:
            self._chosen.clear()  # Each iteration has its own readers, or they say it again.

    @property
    def advice(self) -> PoolAdvice | None:
        """What another `pool_size` would give."""
        with self._reads_lock:
            return advised(self._spent, self._workers, self.share() or 0.0)

    def take(self, get: Callable[[], Any]) -> Any:
        batch = super().take(get)
        if not self._warned and self._workers and self.batches % _STEPS_MIN == 0:
            self._warn()
        return batch

    def _warn(self) -> None:
        advice = self.advice
        if advice is None or (self.share() or 0.0) < _WAITED_MIN:
            return
        if sum(self.seconds()) < _SECONDS_MIN:
            return
        self._warned = True
        warnings.warn(
            f"headrace: the loop waited {self.share():.0%} of the time for batches: {advice}",
            RuntimeWarning,
            stacklevel=callers_level(),
        )
