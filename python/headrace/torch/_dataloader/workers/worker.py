"""The loop of a worker process: reads jobs until its connection ends."""

from __future__ import annotations

import copy
import os
import random
import select
import signal
import socket
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.data._utils.worker as torch_worker
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate

from headrace._process.pickling import Sent
from headrace.torch._dataloader.reading.failures import ReadError, wrapped
from headrace.torch._dataloader.reading.fetching import Fetcher, Job
from headrace.torch._dataloader.reading.pool import Spent, Stopwatch
from headrace.torch._dataloader.workers.channel import Channel


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
    """Whether samples come in the order in which they are read; else in that of the job."""
    parent: int  # process
    batched: bool
    """As in `Fetcher`."""


class Reply(NamedTuple):
    """The collated batch, or part of it; or an error."""

    value: Any
    error: ExceptionWrapper | None
    in_collate: bool
    """Whether the error is one of `collate_fn`."""
    seconds: float
    """From the start of the job until its samples were collated."""
    spent: Spent | None = None
    """In reading the samples, if one thread did."""
    chosen: int | None = None
    """Threads that the process has chosen to have."""


def run(connection: socket.socket, setup: Setup, sent: Sent) -> None:
    """Runs in the new process until the other end of `connection` is shut."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # It was blocked until here.
    threading.Thread(target=_end_with, args=(setup.parent,), daemon=True).start()
    channel = Channel(connection)
    fetcher, broken = _prepare(setup, sent)
    try:
        if setup.threads == 1 or broken is not None:
            while True:
                job = channel.receive()
                _send(channel, _answer(job, setup, fetcher, broken), job, setup)
        threads = _chosen(channel, setup, fetcher) if setup.measures else setup.threads
        _serve_with_threads(channel, setup, fetcher, threads)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended, whatever it does at that time."""
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    os._exit(1)


def _prepare(setup: Setup, sent: Sent) -> tuple[Fetcher, ReadError | None]:
    """Sets up the process as torch does. Returns also what every job fails with, if that failed."""
    doing = "unpickling the dataset, collate_fn and worker_init_fn"
    fetcher = Fetcher(None, default_collate, setup.batched)
    try:
        dataset, collate_fn, init_fn = sent.load().values()
        fetcher = Fetcher(dataset, collate_fn, setup.batched)
        torch.set_num_threads(1)
        seed = setup.base_seed + setup.number
        random.seed(seed)
        torch.manual_seed(seed)
        generate: Any = torch_worker._generate_state
        np.random.seed(generate(setup.base_seed, setup.number))
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=setup.number, num_workers=setup.workers, seed=seed, dataset=dataset
        )
        doing = "calling worker_init_fn"
        if init_fn is not None:
            init_fn(setup.number)
    except BaseException as error:
        return fetcher, ReadError(error, doing)
    return fetcher, None


def _answer(
    job: Job,
    setup: Setup,
    fetcher: Fetcher,
    broken: ReadError | None,
    *,
    whole_process: bool = True,
) -> Reply:
    began, watch = time.monotonic(), Stopwatch()
    try:
        if broken is not None:
            raise broken
        samples = fetcher.read(job, whole_process=whole_process)
        spent = watch.spent(len(samples))
        return _collated(samples, job, fetcher, began)._replace(spent=spent)
    except ReadError as error:
        return _failed(error, setup, began)


def _send(channel: Channel, reply: Reply, job: Job, setup: Setup) -> None:
    """Sends a reply, or the error with which it cannot be pickled."""
    try:
        channel.send(reply)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        if reply.error is None:
            failed = ReadError(error, f"sending batch {job.batch} to the training process")
            channel.send(Reply(None, wrapped(failed, setup.number), False, reply.seconds))
        else:  # Of a class that the other process cannot find: its text says which.
            text = copy.copy(reply.error)
            text.exc_type = RuntimeError
            channel.send(reply._replace(error=text))


def _failed(error: ReadError, setup: Setup, began: float) -> Reply:
    wrapper = wrapped(error, setup.number)
    return Reply(None, wrapper, error.in_collate, time.monotonic() - began)


def _collated(samples: list[Any], job: Job, fetcher: Fetcher, began: float) -> Reply:
    if fetcher.collate_fn is not default_collate:
        value = fetcher.collate(samples, job.batch)
        return Reply(value, None, False, time.monotonic() - began)
    # In a worker default_collate would make tensors in torch's shared memory: a copy for nothing.
    info, torch_worker._worker_info = torch_worker._worker_info, None
    try:
        value = fetcher.collate(samples, job.batch)
    finally:
        torch_worker._worker_info = info
    return Reply(value, None, False, time.monotonic() - began)


def _chosen(channel: Channel, setup: Setup, fetcher: Fetcher) -> int:
    """Serves alone until it is known how many threads such samples need."""
    spent = Spent()
    while not spent.is_enough:
        job = channel.receive()
        reply = _answer(job, setup, fetcher, None, whole_process=False)
        spent = spent.plus(reply.spent or Spent())
        _send(channel, reply, job, setup)
    return spent.threads(setup.threads)


def _serve_with_threads(channel: Channel, setup: Setup, fetcher: Fetcher, threads: int) -> None:
    """Reads the samples of several jobs at a time; answers the jobs in their order."""
    waiting: SimpleQueue[tuple[Job, float, deque[Future[list[Any]]]]] = SimpleQueue()
    with ThreadPoolExecutor(threads) as pool:

        def answer() -> None:
            while True:
                job, began, futures = waiting.get()
                try:
                    ready = as_completed(futures) if setup.arrival else futures
                    samples = [each for future in ready for each in future.result()]
                    reply = _collated(samples, job, fetcher, began)._replace(chosen=threads)
                except ReadError as error:
                    reply = _failed(error, setup, began)
                except CancelledError:  # The process ends.
                    return
                try:
                    _send(channel, reply, job, setup)
                except BaseException as error:
                    channel.shut()  # The process ends: nobody would answer.
                    if isinstance(error, (BrokenPipeError, ConnectionResetError)):
                        return
                    raise

        threading.Thread(target=answer, daemon=True).start()
        try:
            while True:
                job = channel.receive()
                jobs = fetcher.divided(job)
                futures = deque(
                    pool.submit(fetcher.read, each, whole_process=False) for each in jobs
                )
                waiting.put((job, time.monotonic(), futures))
        except EOFError:
            pool.shutdown(wait=False, cancel_futures=True)
