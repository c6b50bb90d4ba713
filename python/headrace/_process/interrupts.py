"""Ctrl-C where Python would lose it."""

from __future__ import annotations

import _thread
import threading

_SECONDS = 0.05
"""By then the caller has returned."""


def interrupt_soon() -> None:
    """Ctrl-C comes again shortly. Call it where Python cannot raise, as in ``__del__``: it prints
    the KeyboardInterrupt there, and the program goes on. Thread safety: any thread may call."""
    timer = threading.Timer(_SECONDS, _thread.interrupt_main)
    timer.daemon = True
    timer.start()
