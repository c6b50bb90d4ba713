"""How long the training loop waited for batches that Python code makes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

_STEPS_MAX = 4096  # as the engine's figures cover


class LoopWaits:
    """The newest steps of a loop: from taking one batch to taking the next.

    The engine's own figures end where Python code takes a batch from it; these include the wait for
    that code. The first batch of a run is left out, as it cannot be made ahead.

    Thread safety: one thread takes batches, any may call `share`.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque()
        self._spanned_ns = 0
        self._waited_ns = 0
        self._last_ns: int | None = None

    def begin(self) -> None:
        """Another run begins: its first batch does not count."""
        self._last_ns = None

    def timed(self, take: Callable[[], Any]) -> Any:
        """Takes a batch."""
        asked_ns = time.monotonic_ns()
        batch = take()
        self.took(asked_ns, time.monotonic_ns())
        return batch

    def took(self, asked_ns: int, got_ns: int) -> None:
        """A batch, which the loop asked for and got at these times."""
        if self._last_ns is not None:
            if len(self._steps) == _STEPS_MAX:
                spanned, waited = self._steps.popleft()
                self._spanned_ns -= spanned
                self._waited_ns -= waited
            step = got_ns - self._last_ns, got_ns - asked_ns
            self._steps.append(step)
            self._spanned_ns += step[0]
            self._waited_ns += step[1]
        self._last_ns = got_ns

    def share(self) -> float:
        """Of the time of these steps that the loop waited."""
        return self._waited_ns / self._spanned_ns if self._spanned_ns else 0.0
