"""What is closed when the interpreter exits. Imported with headrace, so that hooks which a program
registers later run before."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Protocol

from headrace import _core


class _Closes(Protocol):
    def close(self) -> None: ...


open_at_exit: weakref.WeakSet[_Closes] = weakref.WeakSet()
"""Loaders add themselves."""


@atexit.register
def _close_all() -> None:
    """Closes loaders in order, with their threads and memory.

    Daemon threads that iterate stop without an error, as all daemon threads do.
    """
    _core.begin_exit()
    for each in list(open_at_exit):
        each.close()
    if threading.active_count() > 1:  # Threads that remain keep their objects.
        _core.allow_leaks()
