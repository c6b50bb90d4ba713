"""What is closed when the interpreter exits.

Imported with headrace, so that hooks which a program registers later run before. Python's
multiprocessing registers a hook of its own, which sends SIGTERM to worker processes: whoever starts
those calls `exit_before_processes`.
"""

from __future__ import annotations

import atexit
import os
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
    """Closes loaders in order, with their threads and memory.

    Daemon threads that iterate stop without an error, as all daemon threads do.
    """
    _core.begin_exit()
    for loader in list(open_at_exit):
        loader.close()
    if threading.active_count() > 1:  # Threads that remain keep their objects.
        _core.allow_leaks()


def exit_if_at_end() -> None:
    """Has daemon threads stop if finalizers run because the interpreter exits: they may run before
    `_close_all`.
    """
    if getattr(weakref.finalize, "_shutdown", False):
        _core.begin_exit()


_has_threads = False


def _note_threads() -> None:
    global _has_threads
    _has_threads = threading.active_count() > 1


def _keep_quiet_in_child() -> None:
    """The threads of the process that forked are not in the child, but what they held is."""
    if _has_threads:
        _core.allow_leaks()


os.register_at_fork(before=_note_threads, after_in_child=_keep_quiet_in_child)

_BEFORE_OTHERS = 1000
"""Above the priorities of multiprocessing's own finalizers, which are at most 100."""
_registered: tuple[Finalize, int] | None = None
"""What runs first there, and the process that registered it."""


def exit_before_processes() -> None:
    """Has daemon threads stop before multiprocessing ends this process's children: a thread that
    waits for one would report it as lost.

    multiprocessing's hook runs before `_close_all` if its module was imported later than this one.
    Call this before each start of a process: a process that was forked has none registered.
    """
    global _registered
    from multiprocessing import parent_process
    from multiprocessing.util import Finalize  # Slow: `import headrace` does without.

    if parent_process() is not None:  # Its threads may go on after that hook.
        return
    if _registered is not None and _registered[0].still_active() and _registered[1] == os.getpid():
        return
    _registered = Finalize(None, _core.begin_exit, exitpriority=_BEFORE_OTHERS), os.getpid()
