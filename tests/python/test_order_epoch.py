"""The order `epoch`: docs/orders.md as slow Python against frozen vectors and the core."""

from __future__ import annotations

from pathlib import Path

import order_model as model
import pytest

EVEN = [4] * 6
UNEVEN = [1 + i * 7 % 13 for i in range(60)]
LARGE_SEED = 2**64 - 3


def units_by_rule(sample: int) -> int:
    return 1 + sample * 5 % 11


def small(epoch: int) -> list[int]:
    return sum(
        model.epoch_epoch(EVEN, 4, pool_units=16, pools=2, seed=7, epoch=epoch), list[int]()
    )


def wide(pools: int, epoch: int, *, drop_last: bool = False, **parameters: int) -> list[int]:
    ids = []
    for rank in range(6):
        for batch in model.epoch_epoch(
            UNEVEN,
            7,
            pool_units=900,
            pools=pools,
            units=units_by_rule,
            seed=LARGE_SEED,
            epoch=epoch,
            drop_last=drop_last,
            rank=rank,
            world_size=6,
            **parameters,
        ):
            ids += batch
    return ids


def hash_of(ids: list[int]) -> int:
    value = 0xCBF29CE484222325
    for each in ids:
        value = (value ^ each) * 0x100000001B3 % 2**64
    return value


# Frozen: src/plan/epoch_order_test.cc has the same.
@pytest.mark.parametrize(
    ("ids", "first", "hash_of_all"),
    [
        (small(epoch=0), [], 0),
        (small(epoch=1), [], 0),
        (wide(pools=4, epoch=0), [], 0),
        (
            wide(pools=4, epoch=0, drop_last=True, join_permille=600, first_fill_permille=300),
            [],
            0,
        ),
        (wide(pools=5, epoch=8), [], 0),
    ],
)
def test_the_model_gives_the_frozen_orders(
    ids: list[int], first: list[int], hash_of_all: int
) -> None:
    print(ids[:8], hash_of(ids))
    assert ids[:8] == first
    assert hash_of(ids) == hash_of_all
