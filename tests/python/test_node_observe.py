"""What ranks of a node process are told of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loader_data import COUNT

import headrace as hr


@pytest.fixture
def alone(numbered: Path) -> Iterator[hr.Loader]:
    """The only rank of its node process."""
    with hr.Loader(numbered, 1, isolation="process", epochs=1) as loader:
        yield loader


def test_statistics_do_not_grow_with_the_steps_that_they_are_of(alone: hr.Loader) -> None:
    def told() -> int:
        before = alone.stats()["bytes"]["messages"]
        return alone.stats()["bytes"]["messages"] - before

    before = told()
    assert sum(1 for _ in alone) == COUNT
    assert told() < before + COUNT


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
