"""Errors of a dataset with the sample's key and place."""

from __future__ import annotations

from typing import Any

from torch._utils import ExceptionWrapper

from headrace._arguments import shown


class ReadError(Exception):
    """Carries an error of ``__getitem__`` with what it was reading. Users get the cause."""

    def __init__(self, cause: BaseException, doing: str) -> None:
        super().__init__(doing)
        self.cause = cause
        self.doing = doing


def reading(key: Any, batch: int, slot: int) -> str:
    return f"reading sample {shown(key)} (batch {batch} slot {slot})"


def collating(batch: int) -> str:
    return f"collating batch {batch}"


def in_this_process(error: ReadError) -> BaseException:
    """The user's own exception, with a note of what was read."""
    cause = error.cause
    if isinstance(cause, (StopIteration, SystemExit)):
        # They would end the epoch, or the program, without a message.
        made = RuntimeError(f"{error.doing}: {type(cause).__name__}: {cause}")
        made.__cause__ = cause
        return made
    if error.doing not in getattr(cause, "__notes__", ()):
        cause.add_note(error.doing)
    return cause


def wrapped(error: ReadError, worker: int) -> ExceptionWrapper:
    """The exception for another process: `reraised` makes one of the same type there."""
    cause = error.cause
    if isinstance(cause, (StopIteration, SystemExit)):
        cause = RuntimeError(f"{type(cause).__name__}: {cause}").with_traceback(cause.__traceback__)
    where = f"{error.doing} in DataLoader worker process {worker}"
    exc_info = (type(cause), cause, cause.__traceback__)
    return ExceptionWrapper(exc_info, where)  # type: ignore[no-untyped-call]


def reraised(wrapper: ExceptionWrapper) -> BaseException:
    """The exception that `wrapped` describes, with the worker's traceback in its text."""
    try:
        wrapper.reraise()  # type: ignore[no-untyped-call]
    except (wrapper.exc_type, RuntimeError) as error:
        return error.with_traceback(None)
    except BaseException:  # Of making it: an ExceptionGroup needs more than a text.
        kind = wrapper.exc_type.__name__
        return RuntimeError(f"Caught {kind} {wrapper.where}.\nOriginal {wrapper.exc_msg}")
    raise AssertionError("ExceptionWrapper.reraise() returned")
