"""Ctrl-C where Python would lose it."""

from __future__ import annotations

import signal
import threading

_SECONDS = 0.05
"""By then the caller has returned."""


def interrupt_soon() -> None:
    """Ctrl-C comes again shortly. Call it where Python cannot raise, as in ``__del__``: it prints
    the KeyboardInterrupt there, and the program goes on. Thread safety: any thread may call."""
    timer = threading.Timer(_SECONDS, _interrupt)
    timer.daemon = True
    timer.start()


def _interrupt() -> None:
    """The signal itself, to the main thread: it wakes it where it waits, for a lock or a read;
    ``_thread.interrupt_main`` does not. Nothing where Python does not handle SIGINT."""
    main = threading.main_thread().ident
    if main is not None and callable(signal.getsignal(signal.SIGINT)):
        signal.pthread_kill(main, signal.SIGINT)
