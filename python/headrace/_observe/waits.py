"""How long a training loop waited for its batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_STEPS_MAX = 4096  # as the engine's figures cover


class LoopWaits:
    """Steps of a loop: a step begins when the loop gets a batch, and ends when it gets the next.

    The engine's own figures end where Python code takes a batch from it; these include the wait for
    that code. The first batch of each iteration is left out: it cannot be made ahead, and its wait
    includes the start of workers.

    Thread safety: any thread may call.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        """`clock`: gives nanoseconds; default: the monotonic clock."""
        self._clock = clock or time.monotonic_ns
        self._lock = threading.Lock()
        self._got_ns: int | None = None  # when the loop got its newest batch
        self._batches = 0
        self._waited_ns = self._worked_ns = 0
        self._newest: deque[tuple[int, int]] = deque()  # steps: nanoseconds, and those of waiting
        self._newest_ns = self._newest_waited_ns = 0

    def begin(self) -> None:
        """An iteration begins."""
        with self._lock:
            self._got_ns = None

    def take(self, get: Callable[[], Any]) -> Any:
        """What `get` returns, after its time was counted. If it raises, nothing is counted."""
        asked_ns = self._clock()
        batch = get()
        self.took(asked_ns, self._clock())
        return batch

    def took(self, asked_ns: int, got_ns: int) -> None:
        """The loop asked for a batch, and got it, at these times."""
        with self._lock:
            self._batches += 1
            if self._got_ns is not None:
                self._count(max(0, asked_ns - self._got_ns), got_ns - asked_ns)
            self._got_ns = got_ns

    def _count(self, worked_ns: int, waited_ns: int) -> None:
        self._worked_ns += worked_ns
        self._waited_ns += waited_ns
        if len(self._newest) == _STEPS_MAX:
            oldest_ns, oldest_waited_ns = self._newest.popleft()
            self._newest_ns -= oldest_ns
            self._newest_waited_ns -= oldest_waited_ns
        self._newest.append((worked_ns + waited_ns, waited_ns))
        self._newest_ns += worked_ns + waited_ns
        self._newest_waited_ns += waited_ns

    @property
    def batches(self) -> int:
        """Taken until now, with the first ones."""
        return self._batches

    def seconds(self) -> tuple[float, float]:
        """That the loop waited for batches, and that it had them, since the beginning."""
        with self._lock:
            return self._waited_ns / 1e9, self._worked_ns / 1e9

    def share(self) -> float | None:
        """Of the time of the newest 4,096 steps that the loop waited. None before two batches."""
        with self._lock:
            return self._newest_waited_ns / self._newest_ns if self._newest_ns else None
