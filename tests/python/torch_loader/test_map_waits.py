"""Statistics of a DataLoader: who reads, how long the loop waited, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import stateful_data
from map_data import WAYS, OnlyIds

from headrace.torch import DataLoader
from headrace.torch._dataloader.reading.pool_size import ReadWaits
from headrace.torch._dataloader.stats import figures


class Clock:
    now_ns = 10**11

    def __call__(self) -> int:
        return self.now_ns

    def pass_(self, seconds: int) -> None:
        self.now_ns += seconds * 10**9


def loop(waits: ReadWaits, clock: Clock, batches: int, wait: int, work: int) -> None:
    def get() -> str:
        clock.pass_(wait)
        return "batch"

    waits.begin()
    for _ in range(batches):
        assert waits.take(get) == "batch"
        clock.pass_(work)


def test_waits_are_counted_without_the_first_of_each_iteration() -> None:
    clock = Clock()
    waits = ReadWaits(clock)
    assert figures(waits, "loop")["verdict"] == "No verdict: the loop got no second batch yet."
    for _ in range(2):
        loop(waits, clock, batches=4, wait=3, work=1)
        clock.pass_(50)  # Between epochs.
    found = figures(waits, "loop")
    assert (found["batches"], found["waited_seconds"], found["worked_seconds"]) == (8, 18.0, 6.0)
    assert found["verdict"].startswith("The loop waited 75% of the time for batches: samples are")
    assert "give num_workers=" in found["verdict"]


def test_a_loop_that_hardly_waits_is_told_so() -> None:
    clock = Clock()
    waits = ReadWaits(clock)
    loop(waits, clock, batches=4, wait=1, work=99)
    assert figures(waits, "threads")["verdict"] == (
        "The loop waited 1% of the time for batches: reading keeps up."
    )


def test_the_verdict_is_of_the_newest_steps() -> None:
    """A start that was slow is no advice for ever; the seconds are of all steps."""
    clock = Clock()
    waits = ReadWaits(clock)
    loop(waits, clock, batches=5001, wait=9, work=1)
    loop(waits, clock, batches=4097, wait=0, work=1)
    assert (waits.seconds(), waits.batches) == ((45_000.0, 5_000.0 + 4_096.0), 9_098)
    assert figures(waits, "loop")["verdict"].startswith("The loop waited 0% of the time")


def test_what_raises_is_not_counted() -> None:
    def get() -> Any:
        raise StopIteration

    waits = ReadWaits()
    with pytest.raises(StopIteration):
        waits.take(get)
    assert figures(waits, "loop")["batches"] == 0


@pytest.mark.parametrize(
    ("way", "reader"),
    [("direct", "loop"), ("threads", "threads"), ("processes", "processes")],
)
def test_a_loader_says_who_reads(way: str, reader: str) -> None:
    loader = DataLoader(OnlyIds(20), 4, **WAYS[way])
    for _ in range(2):
        list(loader)
    found = loader.stats()
    assert (found["reader"], found["batches"], found["engine"]) == (reader, 10, None)
    assert found["verdict"].startswith("The loop waited ")


def test_batches_of_iterable_datasets_are_counted() -> None:
    loader = DataLoader(stateful_data.OwnState(), 4)
    list(loader)
    assert loader.stats()["batches"] == 7
