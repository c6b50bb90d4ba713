"""Ctrl-C while the `headrace` command is being imported, which takes some tenths of a second.

Imported before all the rest: until the command itself catches the signal, it ends the process
without a traceback, as nothing was begun. Other programs that import headrace are left alone, and
so is a process that ignores the signal.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


def is_command(arguments: list[str]) -> bool:
    """Whether an interpreter with these arguments (`sys.orig_argv`) runs the command."""
    words = iter(arguments[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, None)
        elif word == "-m":
            return next(words, None) == "headrace"
        elif not word.startswith("-"):
            return os.path.basename(word) == "headrace"
    return False


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


def raise_interrupts() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, which the command catches."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command(sys.orig_argv) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
