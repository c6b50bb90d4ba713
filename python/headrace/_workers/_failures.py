"""Exceptions for failures in a worker."""

from __future__ import annotations

import contextlib
import pickle
import signal
from multiprocessing.process import BaseProcess
from typing import Any

from headrace import _core
from headrace._process.children import MAIN_EXIT, is_running, main_guard
from headrace._workers._options import WorkerOptions
from headrace.errors import (
    FailedPreconditionError,
    HeadraceError,
    TransformError,
    WorkerLostError,
)

_JOIN_SECONDS = 2.0
"""Seconds to wait until a process that was lost has ended."""
_SAMPLES_NAMED = 8


def transform_failure(
    failure: dict[str, Any], core: _core.Loader, options: WorkerOptions
) -> TransformError:
    """The error if a transform raised or its results form no batch."""
    epoch, step, slot, samples = failure["tasks"][0]
    cause = _unpickled(failure["pickle"])
    text = failure["text"]
    if failure["kind"] == "shape":
        text = f"its result {text}: {ragged_options()}"
    return make_transform_error(
        text, core, epoch, step, slot, samples[0], cause, whole=options.collate_fn is not None
    )


def ragged_options() -> str:
    """The remedy for samples that differ in shape."""
    return (
        'samples of a batch have one shape; or give output=hr.Output(ragged="pad") (zeros, and '
        'the shapes), ragged="list" (a list of arrays), or a collate_fn'
    )


def make_transform_error(
    text: str,
    core: _core.Loader,
    epoch: int,
    step: int,
    slot: int,
    sample: int,
    cause: BaseException | None,
    *,
    whole: bool = False,
) -> TransformError:
    """Names the sample and its place in storage."""
    path = None
    with contextlib.suppress(HeadraceError):  # The loader may be closed meanwhile.
        path = next((row[4] for row in core.explain_rows([sample]) if row[4]), None)
    where = f"epoch {epoch} step {step} slot {slot} sample {sample}"
    if path is not None:
        where += f" ({path})"
    what = "transforming and collating the batch from" if whole else "transforming"
    error = TransformError(f"{what} {where}: {text}")
    error.epoch, error.step, error.slot, error.sample, error.path = epoch, step, slot, sample, path
    error.__cause__ = cause
    return error


def lost_worker(failure: dict[str, Any], process: BaseProcess) -> WorkerLostError:
    """The error if a worker is gone or, with a text, the host stopped using it."""
    if failure["text"]:
        end = end_of(process, alive="still runs but can no longer be used")
        end += f" ({failure['text']})"
    else:
        end = end_of(process)
    error = WorkerLostError(f"worker {failure['worker']} {end}, {_in_hand(failure['tasks'])}")
    error.pid, error.exitcode = process.pid, process.exitcode
    return error


def start_failure(
    failure: dict[str, Any], process: BaseProcess, start: str
) -> FailedPreconditionError:
    """The error if a worker could not start."""
    if failure["text"]:
        error = FailedPreconditionError(
            f"starting worker {failure['worker']} (process {process.pid}): {failure['text']}"
        )
        error.__cause__ = _unpickled(failure["pickle"])
        return error
    how, hint = end_of(process), ""
    if process.exitcode == MAIN_EXIT:
        return FailedPreconditionError(f"starting worker {failure['worker']}: {main_guard()}")
    if start != "fork":
        hint = (
            f"; with hr.Workers(start={start!r}) it imports the main script: what makes the loader "
            'has to stand under if __name__ == "__main__", or take workers=hr.Workers(start="fork")'
        )
    return FailedPreconditionError(
        f"starting worker {failure['worker']}: it {how} before it was ready; why may "
        f"stand on stderr{hint}"
    )


def end_of(process: BaseProcess, alive: str = "closed its connection but still runs") -> str:
    """How the process ended; `alive` if it has not."""
    process.join(_JOIN_SECONDS)
    code = process.exitcode
    if code is None:
        if is_running(process):
            return f"(process {process.pid}) {alive}"
        return f"(process {process.pid}) ended, and the system kept no exit code"
    if code >= 0:
        return f"(process {process.pid}) ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": the system does that when memory runs out" if name == "SIGKILL" else ""
    return f"(process {process.pid}) was killed by {name}{hint}"


def _in_hand(tasks: list[tuple[int, int, int, list[int]]]) -> str:
    if not tasks:
        return "with no samples in hand"
    epoch, step, first, samples = tasks[0]
    named = ", ".join(map(str, samples[:_SAMPLES_NAMED]))
    if len(samples) > _SAMPLES_NAMED:
        named += f", ... ({len(samples)} of them)"
    text = f"with epoch {epoch} step {step} slots [{first}, {first + len(samples)}) in hand"
    text += f": samples {named}"
    waiting = sum(len(task[3]) for task in tasks[1:])
    return text + (f"; {waiting} more were waiting for it" if waiting else "")


def _unpickled(data: bytes) -> BaseException | None:
    if not data:
        return None
    try:
        error = pickle.loads(data)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None
