"""What is asked of a node process that does not answer: it is stopped, as by a debugger."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from node_ranks import PATIENCE_S, node_pid
from test_node_server import service

import headrace as hr
from headrace import errors
from headrace._observe.monitor import Address


class AlarmError(Exception):
    """What the signal's handler raises."""


def ring(*_: object) -> None:
    raise AlarmError


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """A signal that comes while, or just before, something waits."""
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def loader(numbered: Path) -> Iterator[hr.Loader]:
    with hr.Loader(
        numbered, 10, job=hr.Job(node=hr.Node()), engine=hr.EngineOptions(monitor=True)
    ) as loader:
        yield loader


@contextlib.contextmanager
def stopped_service(source: Path) -> Iterator[tuple[str, int]]:
    """That serves its name."""
    with service() as (name, pid):
        hr.Loader(source, 10, job=hr.Job(node=hr.Node(name=name))).close()
        with stopped(pid):
            yield name, pid
        with hr.Loader(source, 10, job=hr.Job(node=hr.Node(name=name))) as loader:
            assert len(list(loader)) == len(loader)


@pytest.mark.parametrize(
    "ask",
    [
        hr.Loader.stats,
        hr.Loader.prometheus,
        lambda loader: loader.explain(0),
        lambda loader: loader._core.step_times(),
        lambda loader: loader._core.decode_times(),
    ],
    ids=["stats", "prometheus", "explain", "trace", "save_profile"],
)
def test_a_signal_ends_the_wait_for_an_answer_with_what_its_handler_raises(
    loader: hr.Loader, ask: Callable[[hr.Loader], object]
) -> None:
    with stopped(node_pid(loader)), pytest.raises(AlarmError), alarm():
        ask(loader)
    assert len(list(loader)) == len(loader) == loader.stats()["batches"]


def test_a_signal_ends_an_opening_with_what_its_handler_raises(numbered: Path) -> None:
    with stopped_service(numbered) as (name, _), pytest.raises(AlarmError), alarm():
        hr.Loader(numbered, 10, job=hr.Job(node=hr.Node(name=name)))


def test_an_opening_that_is_not_answered_ends_and_names_the_process(numbered: Path) -> None:
    with stopped_service(numbered) as (name, pid):
        message = rf"opening a loader by the node process \(pid {pid}\) .*no answer in 1 s"
        with pytest.raises(errors.DeadlineExceededError, match=message):
            hr.Loader(numbered, 10, job=hr.Job(node=hr.Node(name=name, start_timeout=1)))


def test_a_wait_for_a_batch_ends_and_names_the_process(numbered: Path) -> None:
    with hr.Loader(
        numbered, 10, job=hr.Job(node=hr.Node(start_timeout=1)), engine=hr.EngineOptions(prefetch=1)
    ) as loader:
        assert len(list(loader)) == len(loader)
        pid = node_pid(loader)
        message = rf"waiting for a batch of the node process \(pid {pid}\) .* stopped for \d+ s"
        with stopped(pid), pytest.raises(errors.DeadlineExceededError, match=message):
            deque(itertools.chain.from_iterable(itertools.repeat(loader)), maxlen=0)
        assert len(list(loader)) == len(loader)


def test_closing_does_not_wait_for_what_the_monitor_asked(loader: hr.Loader) -> None:
    assert loader._monitor is not None
    address, core = Address(os.getpid(), loader._monitor.ordinal), loader._core
    asking = threading.Thread(target=address.ask)
    closing = threading.Thread(target=loader.close)

    def until_it_is_closed() -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            assert core.steps_per_epoch > 0
            os.sched_yield()

    with stopped(node_pid(loader)):
        asking.start()
        while not loader._monitor._peers:
            os.sched_yield()
        closing.start()
        with pytest.raises(errors.FailedPreconditionError, match="the loader is closed"):
            until_it_is_closed()
    for thread in (closing, asking):
        thread.join()
