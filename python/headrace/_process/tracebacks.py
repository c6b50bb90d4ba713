"""What the traceback of an exception keeps alive."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def is_own(trace: TracebackType) -> bool:
    """Whether its frame is one of headrace's own."""
    return trace.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def release(error: BaseException) -> None:
    """Clears the variables of headrace's own frames in the traceback, and in those of its causes.

    Whoever keeps an exception, as a debugger, a test or a notebook does, would otherwise keep the
    loader that raised it, with its threads, files and processes. The lines stay, and so do the
    variables of the user's functions. Frames that still run are left as they are.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        exception = waiting.pop()
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        waiting += [exception.__cause__, exception.__context__]
        trace = exception.__traceback__
        while trace is not None:
            if is_own(trace):
                with contextlib.suppress(RuntimeError):
                    trace.tb_frame.clear()
            trace = trace.tb_next
