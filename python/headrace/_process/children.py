"""Processes that multiprocessing starts for headrace: whether it may, and how they end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from headrace import _core
from headrace._process.at_exit import exit_before_processes
from headrace.errors import FailedPreconditionError

NAME = "headrace-"
"""How the names of these processes begin."""
MAIN_EXIT = 83
"""The exit code of one that was to start processes itself, while it imported the main script."""


def check_can_start(doing: str, method: str, otherwise: str) -> None:
    """Refuses to start processes where multiprocessing cannot. `otherwise`: what needs none.

    Raises: FailedPreconditionError.
    """
    process: Any = multiprocessing.current_process()
    if method != "fork" and getattr(process, "_inheriting", False):  # It imports the main script.
        if process.name.startswith(NAME):
            os._exit(MAIN_EXIT)  # Its parent says what to do, once.
        raise FailedPreconditionError(f"{doing}: {main_guard()}")
    check_not_daemonic(doing, otherwise)


def check_not_daemonic(doing: str, otherwise: str) -> None:
    """As `check_can_start`, also for processes that others start."""
    process = multiprocessing.current_process()
    if process.daemon:
        raise FailedPreconditionError(
            f"{doing}: this process ({process.name}) is daemonic, and multiprocessing lets it "
            f"start none: {otherwise}; or start it with daemon=False, and in place of a "
            "multiprocessing.Pool take concurrent.futures.ProcessPoolExecutor"
        )


def main_guard() -> str:
    """What a script has to do that new processes import."""
    main: Any = sys.modules.get("__main__")
    script = os.path.basename(getattr(main, "__file__", None) or "the main script")
    return (
        f"it imports {script}, and came to the line that starts processes; put the code of "
        f"{script} that makes and uses loaders under this line:\n"
        '    if __name__ == "__main__":'
    )


@contextlib.contextmanager
def starting(method: str) -> Iterator[None]:
    """Around the start of a process by this method. Ctrl-C is raised where the block ends."""
    exit_before_processes()
    with warnings.catch_warnings(), _blocked_interrupts(method):
        # The user, or torch, chose fork: Python's warning about threads does not help.
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextlib.contextmanager
def _blocked_interrupts(method: str) -> Iterator[None]:
    """Blocks SIGINT for a process that is started meanwhile, until it can ignore it.

    A terminal's Ctrl-C goes to all processes. One that imports modules would print a traceback. A
    fork server is left alone: it would pass the blocked signal on to all its processes.
    """
    if method == "forkserver":
        yield
        return
    if method == "spawn":
        resource_tracker.ensure_running()  # Now: its start unblocks the signal.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_running(process: BaseProcess) -> bool:
    """Whether a process that was started has not ended yet.

    The system keeps no exit codes where SIGCHLD is ignored, as a process inherits it from a shell
    after ``trap '' CHLD``, nor where somebody else waits for all children: `exitcode` is None then.
    """
    if process.exitcode is not None:
        return False
    if getattr(process, "_start_method", "") == "forkserver":
        return True  # Its parent is the fork server, which keeps its exit code.
    try:
        os.waitid(os.P_PID, process.pid or 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_processes(processes: list[BaseProcess], deadline: float) -> None:
    """Waits for processes until `deadline` (time.monotonic()), then kills them."""
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if is_running(process):
            process.kill()
    for process in processes:
        process.join()
        _core.stop_at_exit()  # multiprocessing's exit hook may be joining it: it is not closed.
        if process.exitcode is None:  # Else multiprocessing takes it for running for ever.
            popen: Any = getattr(process, "_popen", None)
            popen.returncode = _CODE_UNKNOWN
        process.close()


_CODE_UNKNOWN = 255
"""In place of an exit code that the system did not keep."""
