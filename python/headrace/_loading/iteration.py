"""One pass over a loader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace._loader import Loader


class Iteration(Iterator[Any]):
    """One iteration of a loader."""

    def __init__(self, loader: Loader[Any], iteration: int, present: Callable[[Any], Any]) -> None:
        self._loader = loader
        self._iteration = iteration
        self._present = present
        self._done = False
        self._lock = threading.Lock()  # Threads that share it get each batch once.

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        with self._lock:
            return self._take()

    def _take(self) -> Any:
        if self._done:
            raise StopIteration
        loader = self._loader
        if self._iteration == loader._iteration and loader._step and loader._epoch_is_over():
            loader._end_epoch()
            self._done = True
            raise StopIteration
        try:
            return self._present(loader._take(self._iteration))
        except BaseException:
            self._done = True
            loader._leave(self._iteration)
            raise

    def __del__(self) -> None:
        if not self._done:
            self._loader._leave(self._iteration)
