"""The option `pool_size`: advised by what reading took, and chosen by it with "auto"."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
from map_data import Numbers, OnlyIds
from test_map_waits import Clock, loop

from headrace.errors import InvalidArgumentError
from headrace.torch import DataLoader
from headrace.torch._dataloader.iterations import thread_reader
from headrace.torch._dataloader.reading.pool_size import (
    POOL_MAX,
    ReadWaits,
    Spent,
    Stopwatch,
    advised,
)
from headrace.torch._dataloader.stats import figures
from headrace.torch._dataloader.workers import worker

WAITING = Spent(100, 10.0, 0.5)  # 95 %
HALF = Spent(100, 10.0, 5.0)
COMPUTING = Spent(100, 10.0, 9.5)


@pytest.mark.parametrize(
    ("spent", "workers", "waited", "pool_size", "gain"),
    [
        (WAITING, 2, 0.99, 32, 16),
        (WAITING, 4, 0.99, 32, 8),
        (WAITING, 2, 0.5, 32, 2),  # The loop itself takes the other half.
        (HALF, 3, 0.9, 6, 2),
        (Spent(100, 10.0, 0.0), 1, 1.0, POOL_MAX, 32),
    ],
)
def test_the_gain_follows_from_waiting(
    spent: Spent, workers: int, waited: float, pool_size: int, gain: float
) -> None:
    found = advised(spent, workers, waited)
    assert found is not None
    assert (found.pool_size, found.gain) == (pool_size, pytest.approx(gain))
    assert f"pool_size={pool_size} would give up to {gain:.1f} times the samples a" in str(found)
    assert "predicted from this run's own batches" in str(found)


@pytest.mark.parametrize(
    ("spent", "workers", "waited"),
    [
        (COMPUTING, 2, 0.99),
        (WAITING, 2, 0.1),
        (WAITING, 2, 0.0),
        (WAITING, 32, 0.9),  # There are as many already.
        (WAITING, 0, 0.9),
        (Spent(8, 10.0, 0.1), 2, 0.9),
        (Spent(100, 0.01, 0.0), 2, 0.9),
    ],
)
def test_what_gains_little_or_is_not_known_is_not_advised(
    spent: Spent, workers: int, waited: float
) -> None:
    assert advised(spent, workers, waited) is None


def test_one_warning_names_the_option_and_its_gain() -> None:
    clock = Clock()
    waits = ReadWaits(clock)
    waits.read(WAITING, 2)
    with pytest.warns(
        RuntimeWarning, match=r"waited 75% .* pool_size=32 would give up to 4.0"
    ) as told:
        loop(waits, clock, batches=64, wait=3, work=1)
    assert len(told) == 1
    found = figures(waits, "processes")
    assert found["advised"] == {"pool_size": 32, "gain": pytest.approx(4), "waiting": 0.95}
    assert "pool_size='auto', if __getitem__ may run in several threads" in found["verdict"]
    for other in ("threads", "loop", "engine"):
        assert figures(waits, other)["advised"] is None


@pytest.mark.parametrize(
    ("spent", "wait", "batches"), [(COMPUTING, 3, 64), (WAITING, 0, 64), (WAITING, 3, 15)]
)
def test_no_warning_where_it_gains_little(spent: Spent, wait: int, batches: int) -> None:
    clock = Clock()
    waits = ReadWaits(clock)
    waits.read(spent, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(waits, clock, batches=batches, wait=wait, work=1)


def test_a_stopwatch_divides_the_time_of_its_thread() -> None:
    spent = Stopwatch().spent(3)
    assert spent.samples == 3
    assert 0 <= spent.processor <= spent.seconds
    assert Spent().plus(spent).plus(spent) == Spent(6, 2 * spent.seconds, 2 * spent.processor)


class Together(Numbers):
    """Its last samples are read by four threads at once, or not at all."""

    barrier = threading.Barrier(4)

    def __getitem__(self, number: int) -> Any:
        if number >= self.count - 4:
            self.barrier.wait(30)
        return number


class Says(Stopwatch):
    """Every sample takes a second, three quarters of it waiting."""

    def spent(self, samples: int) -> Spent:
        return Spent(samples, float(samples), samples / 4)


def test_auto_starts_the_threads_that_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_reader, "Stopwatch", Says)
    how: dict[str, Any] = {"num_workers": 2, "worker_method": "thread", "pool_size": "auto"}
    loader = DataLoader(Together(60), 4, **how)
    for _ in range(2):
        assert torch.cat(list(loader)).tolist() == list(range(60))
        assert loader.stats()["pool_size"] == 4


@pytest.mark.parametrize("persistent", [False, True])
def test_auto_in_processes_gives_each_the_threads_that_help(
    monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    monkeypatch.setattr(worker, "Stopwatch", Says)
    loader = DataLoader(
        OnlyIds(400),
        8,
        num_workers=2,
        pool_size="auto",
        persistent_workers=persistent,
        multiprocessing_context="fork",
    )
    expected = [batch.tolist() for batch in torch.utils.data.DataLoader(OnlyIds(400), 8)]
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == expected
        assert loader.stats()["pool_size"] == 8
        assert loader.stats()["advised"] is None
    loader.close()


def test_without_auto_no_thread_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset that torch never required to be thread-safe is read by one thread a process."""
    monkeypatch.setattr(worker, "Stopwatch", Says)
    loader = DataLoader(OnlyIds(200), 8, num_workers=2, multiprocessing_context="fork")
    list(loader)
    found = loader.stats()
    assert found["pool_size"] is None
    assert found["advised"] is None or found["advised"]["pool_size"] == 8


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_workers": 2, "pool_size": "most"}, "pool_size: got 'most', must be a number of"),
        ({"pool_size": "auto"}, "pool_size='auto': without workers samples are read one by one"),
    ],
)
def test_what_cannot_be_chosen_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        DataLoader(OnlyIds(8), **given)
