"""The reader of single samples where files or parts of them are decoded as a whole, or objects are
read: where it takes long to make one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from headrace import _core


class KeptReader:
    """The reader of `Dataset.read` that the next sample uses, too.

    It keeps some of what it decoded, and the process that decodes or fetches. Closed with
    the dataset, or when a loader of it is made.

    Thread safety: every method may be called from any thread. A forked child makes its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reader: _core.StoredReader | None = None
        self._process = 0

    def reader(self, make: Callable[[], _core.StoredReader]) -> _core.StoredReader:
        """The reader that is kept; else `make` makes it."""
        if (kept := self._kept()) is not None:
            return kept
        made = make()  # Without the lock: inside the core a daemon thread may stop for good.
        with self._lock:
            if self._kept() is None:
                self._reader, self._process = made, os.getpid()
            return self._reader or made

    def _kept(self) -> _core.StoredReader | None:
        return self._reader if self._process == os.getpid() else None

    def let_go(self) -> None:
        """It closes when the last read that uses it has ended."""
        with self._lock:
            self._reader = None
