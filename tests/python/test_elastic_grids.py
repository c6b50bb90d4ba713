"""What MosaicML's tests claim of its elastic grids, of our orders: any number of ranks that divides
the global batch has the same global batches, and a run goes on with another number of them.

docs/design/torch-dataloader.md lists the claims.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT, FLAT, flat, payload_ids

import headrace as hr
from headrace import _core

GLOBAL = 96
GRIDS = [ranks for ranks in range(1, GLOBAL + 1) if GLOBAL % ranks == 0]
POOLS: dict[str, int | str] = {"pool_bytes": 2**16, "pools": 96}
"""`epoch` has the same pools on every number of ranks if they are given, or fit its memory."""
SAMPLES = 1000


def stream(order: str, ranks: int, rank: int, **place: Any) -> _core.OrderStream:
    parameters: Any = POOLS if order == "epoch" else {}
    return _core.OrderStream(
        order,
        parameters,
        index=(SAMPLES, 4),
        batch_size=place.pop("batch", GLOBAL) // ranks,
        world_size=ranks,
        rank=rank,
        seed=7,
        **place,
    )


def grid(order: str, ranks: int, **place: Any) -> list[list[list[int]]]:
    """By step: the samples of each rank. Every rank has as many steps, and rows in each."""
    found = [
        [step.ids.tolist() for step in stream(order, ranks, rank, **place)] for rank in range(ranks)
    ]
    steps = [list(each) for each in zip(*found, strict=True)]
    assert all(len({len(rows) for rows in step}) == 1 for step in steps)
    return steps


def global_batches(steps: list[list[list[int]]]) -> list[list[int]]:
    return [sorted(sample for rows in step for sample in rows) for step in steps]


@pytest.mark.parametrize("order", ["exact", "batch", "epoch"])
def test_global_batches_are_the_same_on_every_number_of_ranks_that_divides_them(
    order: str,
) -> None:
    """All divisors, also those that no number of canonical nodes would have; two epochs."""
    expected = global_batches(grid(order, 1, epochs=2, drop_last=True))
    assert len(expected) == 2 * (SAMPLES // GLOBAL)
    assert len({tuple(batch) for batch in expected}) == len(expected)
    for ranks in GRIDS:
        assert global_batches(grid(order, ranks, epochs=2, drop_last=True)) == expected


@pytest.mark.parametrize("order", ["exact", "batch"])
@pytest.mark.parametrize("nodes", [1, 2, 8, 15, 120])
def test_the_grid_of_the_paper_of_eight_ranks_a_node(order: str, nodes: int) -> None:
    """960 samples a step, which 15 nodes began: sixteen numbers of nodes divide them."""
    ranks = nodes * 8
    expected = global_batches(grid(order, 1, batch=960, epochs=1, drop_last=True))
    assert global_batches(grid(order, ranks, batch=960, epochs=1, drop_last=True)) == expected


@pytest.mark.parametrize("order", ["exact", "batch", "epoch"])
def test_a_run_goes_on_at_any_step_with_another_number_of_ranks(order: str) -> None:
    expected = global_batches(grid(order, 4, epochs=2, drop_last=True))
    steps = SAMPLES // GLOBAL
    for step in range(0, steps, 3):
        for ranks in (1, 3, 32):
            found = grid(order, ranks, epochs=2, drop_last=True, epoch=1, step=step)
            assert global_batches(found) == expected[steps + step :]


@pytest.mark.parametrize("ranks", GRIDS)
@pytest.mark.parametrize("order", ["exact", "batch", "epoch"])
def test_every_sample_comes_once_and_the_ranks_are_made_equal_by_repeats(
    order: str, ranks: int
) -> None:
    """Without drop_last: no rank has a row that is empty, as Streaming's padding by -1."""
    given = [sample for step in grid(order, ranks, epochs=1) for rows in step for sample in rows]
    counts = np.bincount(given, minlength=SAMPLES)
    assert counts.min() == 1
    assert int((counts - 1).sum()) == -SAMPLES % ranks


def test_a_state_of_two_ranks_goes_on_with_others_through_loaders(numbered: Path) -> None:
    """As `Trainer`s do it: each rank opens its own loader, all with the state of one."""
    batch, taken = 12, 3

    def loader(ranks: int, rank: int) -> hr.Loader:
        job = hr.Job(rank=rank, world_size=ranks)
        return hr.Loader(numbered, batch // ranks, transform=FLAT, job=job, seed=3)

    def ids(one: hr.Loader) -> list[list[int]]:
        return [payload_ids(each) for each in one]

    with loader(1, 0) as whole:
        expected = [sorted(each) for each in ids(whole)]
    with loader(2, 1) as first:
        iterator = iter(first)
        for _ in range(taken):
            next(iterator)
        state = json.loads(json.dumps(first.state_dict()))
    for ranks in (1, 3):
        rows = []
        for rank in range(ranks):
            with loader(ranks, rank) as again:
                again.load_state_dict(state)
                rows.append(ids(again))
        found = [sorted(flat(step)) for step in zip(*rows, strict=True)]
        full = COUNT // batch - taken  # The last may have repeats.
        assert found[:full] == expected[taken : taken + full]
        assert set(found[-1]) >= set(expected[-1])
