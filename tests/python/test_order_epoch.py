"""The order `epoch`: docs/orders.md as slow Python against frozen vectors and the core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import order_model as model
import pytest

from headrace import _core

EVEN = [4] * 6
UNEVEN = [1 + i * 7 % 13 for i in range(60)]
LARGE_SEED = 2**64 - 3


def units_by_rule(sample: int) -> int:
    return 1 + sample * 5 % 11


def small(epoch: int, homes: int = 1) -> list[int]:
    batches = model.epoch_epoch(EVEN, 4, pool_units=16, pools=2, seed=7, epoch=epoch, homes=homes)
    return sum(batches, list[int]())


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


# Frozen: src/plan/epoch/epoch_order_test.cc has the same.
@pytest.mark.parametrize(
    ("ids", "first", "hash_of_all"),
    [
        (small(epoch=0, homes=2), [21, 11, 23, 8, 12, 9, 10, 22], 5285069229543978399),
        (small(epoch=1, homes=2), [5, 6, 10, 8, 15, 7, 3, 2], 17967775041941671779),
        (small(epoch=0), [8, 13, 11, 15, 10, 14, 9, 0], 11544209883522274085),
        (small(epoch=1), [2, 14, 0, 13, 11, 15, 10, 7], 13032865670481526593),
        (wide(pools=4, epoch=0), [367, 387, 283, 35, 191, 393, 309, 270], 17189175151871724245),
        (
            wide(pools=4, epoch=0, drop_last=True, join_permille=600, first_fill_permille=300),
            [61, 195, 62, 199, 55, 196, 191, 230],
            17065012073737368779,
        ),
        (wide(pools=5, epoch=8), [131, 4, 382, 245, 334, 134, 5, 377], 10681475110207495915),
    ],
)
def test_the_model_gives_the_frozen_orders(
    ids: list[int], first: list[int], hash_of_all: int
) -> None:
    assert ids[:8] == first
    assert hash_of(ids) == hash_of_all


def of_core(
    samples: int,
    block_samples: int,
    parameters: dict[str, int | str],
    *,
    epoch: int,
    step: int = 0,
    batch_size: int,
    world_size: int,
    rank: int,
    seed: int,
    drop_last: bool,
) -> list[list[int]]:
    stream = _core.OrderStream(
        "epoch",
        parameters,
        index=(samples, block_samples),
        batch_size=batch_size,
        world_size=world_size,
        rank=rank,
        seed=seed,
        drop_last=drop_last,
        epochs=3,
        epoch=epoch,
        step=step,
    )
    return [stream.ids(1).tolist() for _ in range(stream.steps_per_epoch - step)]


def test_the_page_prints_the_frozen_vectors() -> None:
    page = (Path(__file__).parents[2] / "docs" / "orders.md").read_text()
    for ids in (small(epoch=0), small(epoch=1), small(epoch=0, homes=2), small(epoch=1, homes=2)):
        assert " ".join(map(str, ids[:8])) in page


# Sizes by chance: primes, one sample, one block, blocks above the batch and below it, more ranks
# than samples, pools that the ranks divide and that they do not.
@pytest.mark.parametrize("job", range(60))
def test_the_core_gives_what_the_page_says(job: int) -> None:
    words = model.Words(job, 0, model.AUGMENT)
    samples = [1, 2, 7, 31, 97, 120][words.below(6)]
    block = 1 + words.below(samples)
    blocks = [min(block, samples - first) for first in range(0, samples, block)]
    batch_size, world_size = 1 + words.below(9), 1 + words.below(16)
    global_batch = batch_size * world_size
    drop_last = global_batch <= samples and words.below(2) == 0
    pools = 1 + words.below(min(len(blocks), 12))
    share = -(-min(global_batch, samples) // pools)
    pool_units = pools * (max(2 * max(blocks), share) + words.below(samples))
    join, first_fill, seed = words.below(901), words.below(1001), words.next64()
    first_join = words.below(2) * words.below(1001)
    bijection_from = 1 + words.below(2) * words.below(2 * len(blocks))
    given: dict[str, int | str] = {
        "pool_bytes": pool_units,
        "pools": pools,
        "join_permille": join,
        "first_fill_permille": first_fill,
        "first_join_permille": first_join,
        "bijection_from": bijection_from,
    }
    for epoch in range(2):
        for rank in range(world_size):
            expected = model.epoch_epoch(
                blocks,
                batch_size,
                pool_units=pool_units,
                pools=pools,
                join_permille=join,
                first_fill_permille=first_fill,
                first_join_permille=first_join,
                seed=seed,
                epoch=epoch,
                drop_last=drop_last,
                rank=rank,
                world_size=world_size,
                bijection_from=bijection_from,
            )
            for step in {0, len(expected) // 2, len(expected) - 1}:
                found = of_core(
                    samples,
                    block,
                    given,
                    epoch=epoch,
                    step=step,
                    batch_size=batch_size,
                    world_size=world_size,
                    rank=rank,
                    seed=seed,
                    drop_last=drop_last,
                )
                assert found == expected[step:]


@pytest.mark.parametrize("chance", range(300))
def test_the_core_fills_in_what_the_page_says(chance: int) -> None:
    words = model.Words(chance, 1, model.AUGMENT)
    block = 1 + words.below(64)
    samples = 1 + words.below([100, 5_000, 200_000][words.below(3)])
    blocks = [min(block, samples - first) for first in range(0, samples, block)]
    batch_size, world_size = 1 + words.below(64), 1 + words.below(64)
    given: dict[str, int] = {}
    if words.below(3) == 0:
        given["join_permille"] = words.below(901)
    if words.below(4) == 0:
        given["pools"] = 1 + words.below(min(len(blocks), 60))
    elif words.below(3) == 0:  # Far above the dataset: the first fill is partial.
        least = max(2 * block, min(batch_size * world_size, samples))
        given["pool_bytes"] = least + words.below(2) * words.below(2**30)
    if words.below(4) == 0:
        given["first_fill_permille"] = words.below(1001)
    room = [None, words.below(2 * samples), words.below(samples // 10 + 1)][words.below(3)]
    found = _core.resolve_order(
        "epoch",
        dict(given),
        index=(samples, block),
        batch_size=batch_size,
        world_size=world_size,
        rank_units=room,
    )
    defaults = model.epoch_defaults(blocks, batch_size, world_size, given, room=room)
    assert found == defaults | {
        "bijection_from": model.BIJECTION_FROM,
        "homes": 1,
        "home_table": "none",
    }


# Homes of equal size and of any, by a table; streams of nodes that exchange samples, from their
# middle on, too.
@pytest.mark.parametrize("job", range(40))
def test_the_core_gives_each_node_what_the_page_says(job: int) -> None:
    words = model.Words(job, 2, model.AUGMENT)
    homes, ranks = 2 + words.below(3), 1 + words.below(3)
    block = 1 + words.below(7)
    samples = homes * block + words.below(120)
    blocks = [min(block, samples - first) for first in range(0, samples, block)]
    home_of_block = None
    if words.below(2):
        home_of_block = [i if i < homes else words.below(homes) for i in range(len(blocks))]
    table = None
    if home_of_block is not None:
        table = np.repeat(np.array(home_of_block, dtype=np.uint32), blocks)
    at = home_of_block or [i % homes for i in range(len(blocks))]
    of_home = [sum(np.array(blocks)[np.array(at) == home]) for home in range(homes)]
    batch_size, world_size = 1 + words.below(6), homes * ranks
    global_batch = batch_size * world_size
    drop_last = global_batch <= samples and words.below(2) == 0
    own_pools = 1 + words.below(min(4, *(at.count(home) for home in range(homes))))
    most = -(-min(global_batch, samples) * int(max(of_home)) // samples)
    pools = own_pools * homes
    pool_units = pools * (max(2 * block, -(-most // own_pools)) + words.below(samples))
    join, seed = words.below(901), words.next64()
    bijection_from = 1 + words.below(2) * words.below(2 * len(blocks))
    given: dict[str, int | str] = {
        "pool_bytes": pool_units,
        "pools": pools,
        "join_permille": join,
        "first_fill_permille": 1000,
        "first_join_permille": 0,
        "bijection_from": bijection_from,
        "homes": homes,
    }
    for epoch in range(2):
        expected = [
            model.epoch_epoch(
                blocks,
                batch_size,
                pool_units=pool_units,
                pools=pools,
                join_permille=join,
                seed=seed,
                epoch=epoch,
                drop_last=drop_last,
                rank=rank,
                world_size=world_size,
                bijection_from=bijection_from,
                homes=homes,
                home_of_block=home_of_block,
            )
            for rank in range(world_size)
        ]
        for node in range(homes):
            first = node * ranks
            for step in {0, len(expected[0]) // 2}:
                stream = _core.OrderStream(
                    "epoch",
                    given,
                    index=(samples, block),
                    batch_size=batch_size,
                    world_size=world_size,
                    rank=first,
                    ranks=ranks,
                    exchange=True,
                    seed=seed,
                    drop_last=drop_last,
                    epochs=3,
                    epoch=epoch,
                    step=step,
                    homes=table,
                )
                for at_step in range(step, stream.steps_per_epoch):
                    of_node = [expected[first + lane][at_step] for lane in range(ranks)]
                    assert stream.ids(1).tolist() == sum(of_node, list[int]())
