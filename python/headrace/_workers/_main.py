"""A worker process: transforms samples until its host is gone."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace import _core
from headrace._dataset.decoding import decoded_columns
from headrace._process.pickling import Sent
from headrace._process.tracebacks import is_own
from headrace._workers import _protocol as protocol
from headrace._workers._known import KnownLayout
from headrace._workers._protocol import InputField, Task
from headrace._workers._rows import Columns, ResultError, storage_dtype
from headrace._workers._sample import call_hint, make_samples, sample_hint, sample_type
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The host handles Ctrl-C.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # It was blocked until here.
    socket = connection.detach()
    os.register_at_fork(after_in_child=lambda: _let_go(socket))
    channel = _core.WorkerChannel.open(socket, settings.host)
    try:
        transform, collate_fn, init_fn = sent.load().values()
        functions = Functions(transform, collate_fn, init_fn, settings.decoded)
        _prepare(settings, functions)
    except BaseException as error:
        channel.send(protocol.failed(traceback_text(error), _pickled(error)))
        channel.receive()  # Until the host has received it.
        return
    _Worker(channel, settings, functions).serve()


def _let_go(descriptor: int) -> None:
    """Closes the connection in a child that the user's function forks: otherwise the host would not
    see the worker end. Keeps its number in use, because objects of the child will close it."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


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


class _Worker:
    """Carries out the host's messages."""

    def __init__(self, channel: Any, settings: Settings, functions: Functions) -> None:
        self._channel = channel
        self._settings = settings
        self._functions = functions
        self._nesting = Nesting([field.name for field in settings.fields])
        self._sample = sample_type(self._nesting.names)
        self._decoded = functions.positions(self._nesting.names)
        # 0 is the host's number of none, for rows without bytes in a batch that has no memory.
        self._memories: dict[int, Any] = {0: np.zeros(0, np.uint8)}
        # Results that wait for their places in a batch.
        self._buffered: dict[int, tuple[Columns, int]] = {}
        self._known: KnownLayout | None = None

    def serve(self) -> None:
        """Runs until the host closes the connection or is gone."""
        reply: bytes | None = protocol.ready()
        while True:
            if reply is not None and not self._channel.send(reply):
                return
            received = self._channel.receive()
            if received is None:
                return
            fresh, gone, body = received
            self._memories.update(fresh)
            for number in gone:
                self._memories.pop(number, None)
            reply = self._answer(memoryview(body)) if body else None

    def _answer(self, body: memoryview) -> bytes | None:
        kind, body = body[:8].cast("Q")[0], body[8:]
        if kind == protocol.COMPUTE:
            return self._compute(Task.parse(body, self._settings.fields, self._memories))
        number, leaves, places = protocol.write_head(body)
        columns, first_slot = self._buffered.pop(number)
        if leaves == 0:
            return None
        try:
            protocol.write_leaves(columns, places, self._memories)
            return _bounded(number, first_slot, protocol.done(number, 0, columns.objects()))
        except BaseException as error:
            return _error(number, first_slot, error)

    def _compute(self, task: Task) -> bytes:
        begin = time.perf_counter_ns()
        if (text := protocol.bad_text(task.columns, self._settings.fields)) is not None:
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
        origin = task.origin(self._settings.seed)
        samples = make_samples(self._sample, columns, task.ids, origin)
        try:
            self._functions.apply(samples, results)
        except BaseException as error:
            return _error(task.number, task.first_slot + len(results), error)
        known = self._known
        if known is not None and task.layout == known.layout and known.write(results, task.places):
            return protocol.done(task.number, time.perf_counter_ns() - begin, [])
        try:
            made = self._columns(results)
            layout = protocol.layout_of(made)
            if task.layout == layout:
                self._write(made, task)
                self._known = KnownLayout(layout, made)
                busy_ns = time.perf_counter_ns() - begin
                done = protocol.done(task.number, busy_ns, made.objects())
                return _bounded(task.number, task.first_slot, done)
        except ResultError as error:
            return _error(task.number, task.first_slot + error.row, error)
        except BaseException as error:
            return _error(task.number, task.first_slot, error)
        self._buffered[task.number] = made, task.first_slot
        return protocol.shaped(task.number, time.perf_counter_ns() - begin, made, layout)

    def _columns(self, results: list[Any]) -> Columns:
        if self._functions.collate_fn is None:
            return Columns.of_rows(results)
        return Columns.of_batch(self._functions.collate_fn(results))

    def _write(self, columns: Columns, task: Task) -> None:
        for column, place in zip(columns.columns, task.places, strict=True):
            if not column.is_object:
                assert column.shape is not None
                shape = (columns.rows, *column.shape)
                column.write(protocol.rows_at(place, storage_dtype(column.dtype), shape))


def _bounded(task: int, slot: int, reply: bytes) -> bytes:
    """Replaces a message that is too large to send by an error."""
    if len(reply) <= _REPLY_BYTES_MAX:
        return reply
    why = ResultError(
        0,
        f"results that are no arrays take {len(reply):,} bytes of a task of some samples, at most "
        f"{_REPLY_BYTES_MAX:,} can be sent: return arrays, or make batch_size smaller",
    )
    return _error(task, slot, why)


def _error(task: int, slot: int, error: BaseException) -> bytes:
    text = failure_text(error)[-_ERROR_TEXT_MAX:]
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
    return data if len(data) <= _REPLY_BYTES_MAX // 2 else b""


_REPLY_BYTES_MAX = _core.WorkerChannel.REPLY_BYTES_MAX
_ERROR_TEXT_MAX = 1 << 20  # characters
