"""What is closed when the interpreter exits.

Imported with headrace, so that hooks which a program registers later run before. Python's
multiprocessing registers a hook of its own, which sends SIGTERM to worker processes: whoever starts
those calls `close_before_processes`.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from headrace import _core

if TYPE_CHECKING:
    from multiprocessing.util import Finalize


class _Closes(Protocol):
    def close(self) -> None: ...


open_at_exit: weakref.WeakSet[_Closes] = weakref.WeakSet()
"""Loaders add themselves."""


@atexit.register
def _close_all() -> None:
    """Closes loaders in order, with their threads and memory; once more is no harm.

    Daemon threads that iterate stop without an error, as all daemon threads do.
    """
    _core.begin_exit()
    for each in list(open_at_exit):
        each.close()
    if threading.active_count() > 1:  # Threads that remain keep their objects.
        _core.allow_leaks()


_BEFORE_OTHERS = 1000
"""Above the priorities of multiprocessing's own finalizers, which are at most 100."""
_finalizer: Finalize | None = None


def close_before_processes() -> None:
    """Has loaders closed before multiprocessing ends this process's children: none is missed.

    Its hook runs before `_close_all` if its module was imported later than this one. Call this
    before each start of a process: a process that multiprocessing forks forgets what was
    registered.
    """
    global _finalizer
    from multiprocessing.util import Finalize  # Slow: `import headrace` does without.

    if _finalizer is None or not _finalizer.still_active():
        _finalizer = Finalize(None, _close_all, exitpriority=_BEFORE_OTHERS)
