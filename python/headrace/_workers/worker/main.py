"""A worker process: transforms samples until its host is gone."""

from __future__ import annotations

import pickle
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._dataset.decoding import decoded_columns
from headrace._process.pickling import Sent
from headrace._process.tracebacks import is_own
from headrace._workers.results.rows import Columns, ResultError
from headrace._workers.samples.sample import call_hint, make_samples, sample_hint, sample_type
from headrace._workers.worker import protocol
from headrace._workers.worker.protocol import InputField, Task
from headrace._workers.worker.serving import (
    ERROR_TEXT_MAX,
    REPLY_BYTES_MAX,
    Server,
    Stopwatch,
    open_channel,
)
from headrace.errors import DataLossError
from headrace.formats._files.nested import Nesting, RowError


@dataclass(frozen=True)
class Functions:
    """The user's functions."""

    transform: Callable[[Any], Any] | None
    collate_fn: Callable[[list[Any]], Any] | None
    worker_init_fn: Callable[[int], object] | None
    decoded: tuple[str, ...] = ()
    """Fields whose encoded images are decoded for the functions."""

    def positions(self, fields: Sequence[str]) -> list[int]:
        """Of the fields to decode, among those that samples have."""
        return [position for position, name in enumerate(fields) if name in self.decoded]

    def apply(self, samples: Any, results: list[Any]) -> None:
        """Appends the result of each sample to `results`, until one fails."""
        if self.transform is None:
            results.extend(samples)
            return
        transform, append = self.transform, results.append
        for sample in samples:
            append(transform(sample))


@dataclass(frozen=True)
class Settings:
    """The setup of a worker, sent with the functions."""

    worker: int
    host: int  # process
    seed: int
    fields: tuple[InputField, ...]
    decoded: tuple[str, ...]
    """As in `Functions`."""


def run(connection: Any, settings: Settings, sent: Sent) -> None:
    """Runs a worker until it ends. `connection` is its end of a socket pair."""
    channel = open_channel(connection, settings.host)
    try:
        transform, collate_fn, init_fn = sent.load().values()
        functions = Functions(transform, collate_fn, init_fn, settings.decoded)
        _prepare(settings, functions)
    except BaseException as error:
        channel.send(protocol.failed(traceback_text(error), _pickled(error)))
        channel.receive()  # Until the host has received it.
        return
    server = _Transforms(channel, settings, functions)
    server.reply(protocol.ready())
    server.serve()


def _prepare(settings: Settings, functions: Functions) -> None:
    """Seeds the worker's generators, and limits libraries to one thread: workers use the cores."""
    seed = np.random.SeedSequence([settings.seed, settings.worker]).generate_state(4)
    random.seed(seed.tobytes())
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        torch.manual_seed(int(seed[0]) << 32 | int(seed[1]))
    if functions.worker_init_fn is not None:
        functions.worker_init_fn(settings.worker)


class _Transforms(Server):
    """Transforms the samples of tasks, one task at a time."""

    def __init__(self, channel: Any, settings: Settings, functions: Functions) -> None:
        super().__init__(channel, settings.fields)
        self._seed = settings.seed
        self._functions = functions
        self._nesting = Nesting([field.name for field in settings.fields])
        self._sample = sample_type(self._nesting.names)
        self._decoded = functions.positions(self._nesting.names)

    def take(self, task: Task) -> None:
        self.reply(self.bounded(task.number, task.first_slot, self._computed(task)))

    def failed(self, task: int, slot: int, error: BaseException) -> bytes:
        return _error(task, slot, error)

    def _computed(self, task: Task) -> bytes:
        watch = Stopwatch()
        if (text := protocol.bad_text(task.columns, self._fields)) is not None:
            row, field = text
            why = f"field {field}: its text is not UTF-8; write it as UTF-8, or leave the field out"
            return _error(task.number, task.first_slot + row, DataLossError(why))
        results: list[Any] = []
        try:
            joined = self._nesting.joined(task.columns)
        except RowError as error:
            bad = DataLossError(str(error))  # without its traceback, which is not the user's
            return _error(task.number, task.first_slot + error.row, bad)
        columns = decoded_columns(joined, self._decoded)
        samples = make_samples(self._sample, columns, task.ids, task.origin(self._seed))
        try:
            self._functions.apply(samples, results)
        except BaseException as error:
            return _error(task.number, task.first_slot + len(results), error)
        try:
            if self.wrote_as_before(task, results):
                return protocol.done(task.number, watch.busy(), [])
            return self.written(task, self._columns(task, results), watch.busy())
        except ResultError as error:
            return _error(task.number, task.first_slot + error.row, error)
        except BaseException as error:
            return _error(task.number, task.first_slot, error)

    def _columns(self, task: Task, results: list[Any]) -> Columns:
        if not task.whole:
            return Columns.of_rows(results)
        assert self._functions.collate_fn is not None
        return Columns.of_batch(self._functions.collate_fn(results))


def _error(task: int, slot: int, error: BaseException) -> bytes:
    text = failure_text(error)[-ERROR_TEXT_MAX:]
    return protocol.error(task, slot, text, _pickled(cause_of(error)))


def cause_of(error: BaseException) -> BaseException:
    """The error of the user's code, if `error` only names the result."""
    return error.__cause__ or error if isinstance(error, ResultError) else error


def failure_text(error: BaseException) -> str:
    """The text of a cause in a TransformError."""
    if not isinstance(error, ResultError):
        return traceback_text(error)
    cause = cause_of(error)
    return str(error) if cause is error else f"{error}: {traceback_text(cause)}"


def traceback_text(error: BaseException) -> str:
    """The traceback from the user's function on, as Python prints it."""
    trace = error.__traceback__
    while trace is not None and is_own(trace):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
    # Without a frame of the user's function: it could not be called.
    hint = sample_hint(error) if trace is not None else call_hint(error)
    return text if hint is None else f"{text}\n{hint}"


def _pickled(error: BaseException) -> bytes:
    """Pickles an error; empty if it cannot be pickled and restored."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return b""
    return data if len(data) <= REPLY_BYTES_MAX // 2 else b""
