"""Messages of errors for workers that are gone or cannot be used."""

from __future__ import annotations

import signal
from multiprocessing.process import BaseProcess
from typing import cast

import pytest

from headrace._workers._failures import lost_worker


class Process:
    """A process in the state that a test wants."""

    pid = 71
    _start_method = "forkserver"  # Its processes are none of this one.

    def __init__(self, exitcode: int | None) -> None:
        self.exitcode = exitcode

    def join(self, timeout: float) -> None:
        """Returns at once: the state does not change."""


@pytest.mark.parametrize(
    ("exitcode", "text", "end"),
    [
        (None, "", "(process 71) closed its connection but still runs"),
        (
            None,
            "sending it a task: too large",
            "(process 71) still runs but can no longer be used (sending it a task: too large)",
        ),
        (7, "", "(process 71) ended with exit code 7"),
        (7, "unknown kind 99", "(process 71) ended with exit code 7 (unknown kind 99)"),
        (-signal.SIGTERM, "", "(process 71) was killed by SIGTERM"),
    ],
)
def test_a_lost_worker_is_said_to_be_what_it_is(exitcode: int | None, text: str, end: str) -> None:
    process = cast(BaseProcess, Process(exitcode))
    error = lost_worker({"worker": 3, "text": text, "tasks": []}, process)
    assert str(error) == f"worker 3 {end}, with no samples in hand"
    assert (error.pid, error.exitcode) == (71, exitcode)
