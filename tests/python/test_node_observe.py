"""Statistics and messages about a node process, as its ranks see them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from loader_data import COUNT
from node_ranks import Ranks
from test_observe import parse

import headrace as hr


@pytest.fixture
def alone(numbered: Path) -> Iterator[hr.Loader]:
    """The only rank of its node process."""
    with hr.Loader(numbered, 1, job=hr.Job(node=hr.Node()), epochs=1) as loader:
        yield loader


def test_statistics_do_not_grow_with_the_steps_that_they_are_of(alone: hr.Loader) -> None:
    def told() -> int:
        before = alone.stats()["bytes"]["messages"]
        return alone.stats()["bytes"]["messages"] - before

    before = told()
    assert sum(1 for _ in alone) == COUNT
    assert told() < before + 2 * COUNT  # The entry of an epoch.


def test_figures_are_those_of_the_steps_that_the_node_kept(alone: hr.Loader) -> None:
    assert sum(1 for _ in alone) == COUNT
    alone.stats()  # The node has heard of the last batch.
    steps, stats = alone._core.step_times(), alone.stats()
    taken, waited = steps["taken_ns"], steps["storage_ns"] + steps["decode_ns"]
    waited = waited + steps["consumer_ns"] + steps["ranks_ns"]
    for told, ns in (
        (stats["ranks"][0]["step"], taken[1:] - taken[:-1]),
        (stats["ranks"][0]["wait"], waited[1:]),
    ):
        ns.sort()
        assert told["count"] == len(ns) == COUNT - 1
        for percent in (50, 95, 99):
            assert told[f"p{percent}"] == ns[-(-len(ns) * percent // 100) - 1] / 1e9  # type: ignore[literal-required]


def test_a_step_was_taken_when_the_loop_took_it(alone: hr.Loader) -> None:
    between: list[tuple[int, int]] = []
    iteration = iter(alone)
    for _ in range(COUNT):
        before = time.monotonic_ns()
        next(iteration)
        between.append((before, time.monotonic_ns()))
    alone.stats()  # The node has heard of the last batch.
    taken = alone._core.step_times()["taken_ns"].tolist()
    assert len(taken) == COUNT
    for (before, after), ns in zip(between, taken, strict=True):
        assert before <= ns <= after


def test_metrics_of_all_ranks_add_up(numbered: Path) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", str(numbered), batch_size=2, seed=1)
        batches = [len(ids) for ids in ranks.ask("epoch")]
        texts = ranks.ask("prometheus")
    of_ranks = [parse(text) for text in texts]
    told = Counter(sample for samples in of_ranks for sample in samples)
    assert set(told.values()) == {1}
    names = [{name for name, _ in samples} for samples in of_ranks]
    for name in ("decode_seconds_total", "threads", "memory_bytes", "read_retries_total"):
        assert [f"headrace_{name}" in each for each in names] == [True, False]
    for rank, samples in enumerate(of_ranks):
        label = ("rank", str(rank))
        assert all(label in labels for _, labels in samples)
        assert samples["headrace_batches_total", frozenset({label})] == batches[rank]
        at = frozenset({label, ("kind", "messages")})
        assert samples["headrace_bytes_total", at] > 0
    shared = {dict(labels)["kind"] for name, labels in of_ranks[1] if name.endswith("bytes_total")}
    assert shared == {"messages"}
