"""The process that started this one. Without the core, for processes that start quickly."""

from __future__ import annotations

import os
import select


def wait_for_end(process: int) -> bool:
    """Waits until the parent of this number has ended, also where a fork of it keeps this process's
    socket open. False: the system cannot tell (before Linux 5.3)."""
    try:
        ends = select.poll()
        ends.register(os.pidfd_open(process), select.POLLIN)
        if os.getppid() == process:
            ends.poll()
    except ProcessLookupError:
        pass
    except OSError:
        return False
    return True
