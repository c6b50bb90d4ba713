"""A worker process: reads the samples whose keys its host sends, until the host is gone."""

from __future__ import annotations

import copy
import os
import pickle
import random
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
import torch.utils.data._utils.worker as torch_worker
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate

from headrace import _core
from headrace._process.pickling import Sent
from headrace._workers.results.rows import Column, Columns
from headrace._workers.results.tree import LEAF
from headrace._workers.worker import protocol
from headrace._workers.worker.protocol import Busy, InputField, Task
from headrace._workers.worker.serving import ERROR_TEXT_MAX, REPLY_BYTES_MAX, Server, open_channel
from headrace.torch._dataloader.reading.failures import ReadError, wrapped
from headrace.torch._dataloader.reading.fetching import Fetcher, ReadRequest
from headrace.torch._dataloader.reading.pool_size import Spent, Stopwatch
from headrace.torch._dataloader.workers import packing, rows

PACKED = b"packed"
"""The tree of a batch whose leaves are the parts of `packing.pack`."""
_KEY = InputField("key", "uint8", (), ragged=True)
_TEXT_BYTES_MAX = REPLY_BYTES_MAX // 4
"""Of a part of a batch; more of them are packed with the whole batch."""


@dataclass(frozen=True)
class Setup:
    """What a worker process is started with."""

    number: int
    workers: int
    threads: int
    """Samples that it reads at a time."""
    measures: bool
    """Whether it reads its first samples one by one, to choose how many threads it needs, up to
    `threads`."""
    base_seed: int
    arrival: bool
    """Whether samples come in the order in which they are read; else in that of the keys."""
    host: int  # process
    batched: bool
    """As in `Fetcher`."""
    whole: bool
    """The first key holds all keys of a batch; the others are empty."""


def run(connection: Any, setup: Setup, sent: Sent) -> None:
    """Runs in the new process until its host closes the other end of `connection`."""
    channel = open_channel(connection, setup.host)
    doing = "unpickling the dataset, collate_fn and worker_init_fn"
    try:
        dataset, collate_fn, init_fn = sent.load().values()
        _prepare(setup, dataset)
        doing = "calling worker_init_fn"
        if init_fn is not None:
            init_fn(setup.number)
    except BaseException as error:
        text, pickled = _sent(wrapped(ReadError(error, doing), setup.number))
        channel.send(protocol.failed(text, pickled))
        channel.receive()  # Until the host has received it.
        return
    reads = _Reads(channel, setup, Fetcher(dataset, collate_fn, setup.batched))
    reads.run()
    reads.close()


def _prepare(setup: Setup, dataset: Any) -> None:
    """Sets up the process as torch does."""
    torch.set_num_threads(1)
    seed = setup.base_seed + setup.number
    random.seed(seed)
    torch.manual_seed(seed)
    generate: Any = torch_worker._generate_state
    np.random.seed(generate(setup.base_seed, setup.number))
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=setup.number, num_workers=setup.workers, seed=seed, dataset=dataset
    )


@dataclass
class _Waiting:
    """A whole batch whose samples are read by several threads."""

    task: Task
    began: float  # time.monotonic()
    samples: list[Future[list[Any]]]


class _Reads(Server):
    """Reads the samples of tasks, in this thread or in several."""

    def __init__(self, channel: Any, setup: Setup, fetcher: Fetcher) -> None:
        super().__init__(channel, [_KEY])
        self._setup = setup
        self._fetcher = fetcher
        self._may_be_rows = not setup.whole and rows.is_known()
        self._spent = Spent() if setup.measures else None
        self._pool: ThreadPoolExecutor | None = None
        self._whole: SimpleQueue[_Waiting] = SimpleQueue()
        self._received: SimpleQueue[Task | None] = SimpleQueue()
        self._has_receiver = setup.threads == 1 or setup.measures
        if setup.threads > 1 and not setup.measures:
            self._start(setup.threads)
        else:
            self.reply(protocol.ready())

    def _start(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        threading.Thread(target=self._collate, daemon=True).start()
        self.reply(protocol.ready(threads))

    def run(self) -> None:
        """Serves until the host is gone. Where this thread reads samples, another one receives:
        what was read is written as soon as the host says where."""
        if not self._has_receiver:
            self.serve()
            return
        threading.Thread(target=self._receive, daemon=True).start()
        while (task := self._received.get()) is not None:
            self._begin(task)

    def _receive(self) -> None:
        try:
            self.serve()
        finally:
            self._received.put(None)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def take(self, task: Task) -> None:
        if self._has_receiver:
            self._received.put(task)
        else:
            self._begin(task)

    def _begin(self, task: Task) -> None:
        """Reads the samples of a task, or has other threads read them."""
        try:
            request = self._request(task)
        except BaseException as error:
            read = ReadError(error, f"unpickling keys of batch {task.step}")
            self.reply(self.failed(task.number, task.first_slot, read))
            return
        pool = self._pool
        if not task.whole and not self._may_be_rows:
            self.reply(protocol.unlike(task.number))
        elif pool is None:
            self._answer(task, self._computed(task, request))
        elif not task.whole:
            pool.submit(lambda: self._answer(task, self._computed(task, request)))
        else:
            requests = self._fetcher.divided(request)
            samples = [
                pool.submit(self._fetcher.read, part, whole_process=False) for part in requests
            ]
            self._whole.put(_Waiting(task, time.monotonic(), samples))

    def _answer(self, task: Task, reply: bytes) -> None:
        """Sends the reply to a task. A process that cannot, as without descriptors, ends: its host
        waits for the reply, and sees the end."""
        try:
            self.reply(self.bounded(task.number, task.first_slot, reply))
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def failed(self, task: int, slot: int, error: BaseException) -> bytes:
        if not isinstance(error, ReadError):
            error = ReadError(error, "sending a batch to the training process")
        text, pickled = _sent(wrapped(error, self._setup.number))
        return protocol.error(task, slot, text, pickled)

    def _request(self, task: Task) -> ReadRequest:
        sent = task.columns[0]
        if self._setup.whole:
            keys, contents = pickle.loads(sent[0]) if len(sent) else ([], None)
        else:
            pairs = [pickle.loads(pair) for pair in sent]
            keys, contents = [key for key, _ in pairs], [content for _, content in pairs]
        place = task.ids[0] if task.ids else 0
        # An epoch is called by the seed of its random numbers.
        return ReadRequest(keys, task.step, task.first_slot, place, task.epoch, contents)

    def _computed(self, task: Task, request: ReadRequest) -> bytes:
        """The reply to a task whose samples this thread reads."""
        watch = Stopwatch()
        try:
            samples = self._fetcher.read(request, whole_process=self._setup.threads == 1)
            spent = watch.spent(max(len(task.ids), 1))
            self._measured(spent)
            return self._made(task, samples, spent)
        except BaseException as error:
            return self.failed(task.number, task.first_slot, error)

    def _made(self, task: Task, samples: list[Any], spent: Spent) -> bytes:
        busy = Busy(int(spent.seconds * 1e9), int(spent.processor * 1e9))
        if task.whole:
            return self.written(task, self._packed(task, samples), busy)
        if self.wrote_as_before(task, samples):
            return protocol.done(task.number, busy, [])
        made = rows.as_rows(samples)
        if made is None or _text_bytes(made) > _TEXT_BYTES_MAX:
            return protocol.unlike(task.number)
        return self.written(task, made, busy)

    def _packed(self, task: Task, samples: list[Any]) -> Columns:
        """What collate_fn makes of all samples of a batch."""
        with _without_worker_info(self._fetcher.collate_fn is default_collate):
            value = self._fetcher.collate(samples, task.step)
        try:
            parts = packing.pack(value, _core.WorkerChannel.LEAVES_MAX)
        except Exception as error:
            raise ReadError(error, f"sending batch {task.step} to the training process") from error
        columns = Columns(LEAF, [Column("uint8", 1, 1, part.shape, [part]) for part in parts], 1)
        columns.batch_skeleton = PACKED
        return columns

    def _collate(self) -> None:
        """Answers tasks of whole batches, one after the other, as their samples are read."""
        while True:
            waiting = self._whole.get()
            task = waiting.task
            try:
                futures = waiting.samples
                ready = as_completed(futures) if self._setup.arrival else futures
                samples = [sample for future in ready for sample in future.result()]
                spent = Spent(len(task.ids), time.monotonic() - waiting.began)
                reply = self._made(task, samples, spent)
            except BaseException as error:
                reply = self.failed(task.number, task.first_slot, error)
            self._answer(task, reply)

    def _measured(self, spent: Spent) -> None:
        """Starts more threads once it is known how many such samples need."""
        if self._spent is None:
            return
        self._spent = self._spent.plus(spent)
        if self._spent.is_enough:
            threads, self._spent = self._spent.threads(self._setup.threads), None
            self._start(threads)


@contextmanager
def _without_worker_info(leave_out: bool) -> Iterator[None]:
    """In a worker default_collate would make tensors in torch's shared memory: a copy for
    nothing."""
    info = torch_worker._worker_info
    if leave_out:
        torch_worker._worker_info = None
    try:
        yield
    finally:
        torch_worker._worker_info = info


def _text_bytes(columns: Columns) -> int:
    return sum(len(text) for column in columns.columns if column.is_object for text in column.rows)


def _sent(wrapper: ExceptionWrapper) -> tuple[str, bytes]:
    """The text of an error, and its pickle."""
    wrapper = copy.copy(wrapper)
    wrapper.exc_msg = wrapper.exc_msg[-ERROR_TEXT_MAX:]
    try:
        data = pickle.dumps(wrapper)
        pickle.loads(data)
    except Exception:  # Of a class that the other process cannot find: its text says which.
        wrapper.exc_type = RuntimeError
        data = pickle.dumps(wrapper)
    return wrapper.exc_msg, data
