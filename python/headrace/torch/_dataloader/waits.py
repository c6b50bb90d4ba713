"""How long the training loop waited for its batches, and what that says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

_FEW = 0.05
"""Share of the time: a loop that waits less gains little by faster reading."""

_REMEDIES = {
    "loop": "samples are read in the loop itself; give num_workers=, or worker_method='thread' "
    "where __getitem__ waits for files or the network",
    "threads": "the threads read more slowly than the loop takes; raise pool_size= where "
    "__getitem__ waits for files or the network, or leave worker_method out where it computes",
    "processes": "the worker processes read more slowly than the loop takes; raise num_workers= up "
    "to the number of cores, or pool_size= where __getitem__ waits for files or the network",
    "engine": "the engine reads more slowly than the loop takes",
}


class Waits:
    """Times of all iterations of a DataLoader. The wait for the first batch of each is left out: it
    has the start of workers in it.

    Thread safety: any thread may call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._returned: float | None = None  # when the loop got its newest batch
        self._batches = 0
        self._waited = self._worked = 0.0

    def begin(self) -> None:
        """An iteration begins."""
        with self._lock:
            self._returned = None

    def take(self, get: Callable[[], Any]) -> Any:
        """What `get` returns, after its time was counted. One that raises is not counted."""
        asked = self._clock()
        value = get()
        got = self._clock()
        with self._lock:
            self._batches += 1
            if self._returned is not None:
                self._worked += max(0.0, asked - self._returned)
                self._waited += got - asked
            self._returned = got
        return value

    def figures(self, reader: str) -> dict[str, Any]:
        """The statistics. `reader`: who reads the samples: "loop", "threads", "processes" or
        "engine"."""
        with self._lock:
            batches, waited, worked = self._batches, self._waited, self._worked
        return {
            "reader": reader,
            "batches": batches,
            "waited_seconds": waited,
            "worked_seconds": worked,
            "verdict": _verdict(reader, waited, worked),
        }


def _verdict(reader: str, waited: float, worked: float) -> str:
    if waited + worked <= 0:
        return "No verdict: the loop got no second batch yet."
    share = waited / (waited + worked)
    said = f"The loop waited {share:.0%} of the time for batches"
    if share < _FEW:
        return f"{said}: reading keeps up."
    return f"{said}: {_REMEDIES[reader]}."
