"""Every error that headrace raises, in one tree.

Each status code of the core is one exception here, which is also the builtin exception that Python
code would expect in its place:

==================  =========================  =================  ===============================
status              exception                  is also            means
==================  =========================  =================  ===============================
Cancelled           `CancelledError`                              the caller asked to stop
InvalidArgument     `InvalidArgumentError`     ValueError         wrong in any state: correct it
DeadlineExceeded    `DeadlineExceededError`    TimeoutError       the time allowed has passed
NotFound            `NotFoundError`            FileNotFoundError  no such path or object
ResourceExhausted   `ResourceExhaustedError`   OSError            a limit: disk, memory, files
FailedPrecondition  `FailedPreconditionError`  RuntimeError       wrong in this state: changed
                                                                  since indexed, or closed
OutOfRange          `OutOfRangeError`          IndexError         past the end of what exists
Internal            `InternalError`            RuntimeError       a defect of headrace: report it
Unavailable         `UnavailableError`         OSError            may succeed if tried again
DataLoss            `DataLossError`            OSError            bytes are missing or damaged
(none)              `TransformError`           RuntimeError       a Python transform failed
(none)              `WorkerLostError`          RuntimeError       a worker process died
                                                                  or can no longer be used
==================  =========================  =================  ===============================

The message gives the operation, its object, the numbers, the cause and the remedy.
"""

from __future__ import annotations

from headrace._text import printable

__all__ = [
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "HeadraceError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "TransformError",
    "UnavailableError",
    "WorkerLostError",
]


class HeadraceError(Exception):
    """Anything that headrace raises.

    Its text can be printed and logged everywhere: a byte of a file's name that is not UTF-8 is
    written as \\xNN.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class CancelledError(HeadraceError):
    """The caller asked to stop."""


class InvalidArgumentError(HeadraceError, ValueError):
    """An argument is wrong whatever the state: correct the call."""


class DeadlineExceededError(HeadraceError, TimeoutError):
    """The time allowed has passed."""


class NotFoundError(HeadraceError, FileNotFoundError):
    """No such path or object."""


class ResourceExhaustedError(HeadraceError, OSError):
    """A limit was reached: disk space, memory, open files."""


class FailedPreconditionError(HeadraceError, RuntimeError):
    """Wrong in this state: closed, or a file changed since it was indexed."""


class OutOfRangeError(HeadraceError, IndexError):
    """Past the end of something that exists."""


class InternalError(HeadraceError, RuntimeError):
    """An invariant of headrace is broken: please report it."""


class UnavailableError(HeadraceError, OSError):
    """May succeed if tried again."""


class DataLossError(HeadraceError, OSError):
    """Bytes are missing or damaged; trying again will not help."""


class TransformError(HeadraceError, RuntimeError):
    """A Python transform or collate_fn failed for a sample, or its results cannot form a batch; or
    a `prepare` function of `headrace.torch.DeviceBatches` failed for a batch.

    `__cause__` is the original exception, if it could be pickled; if a worker raised it, the
    message ends with its traceback.
    """

    epoch: int | None = None
    step: int | None = None
    slot: int | None = None
    """The sample's place in its batch."""
    sample: int | None = None
    """Its number in the dataset."""
    path: str | None = None
    """Its file, if known."""


class WorkerLostError(HeadraceError, RuntimeError):
    """A worker process is lost: the next iteration of the loader starts new ones."""

    pid: int | None = None
    exitcode: int | None = None
    """As in multiprocessing: the negative number of a signal; None if not known."""
