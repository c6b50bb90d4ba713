"""The order `batch`: docs/orders.md, its slow model, and the C++ agree."""

from __future__ import annotations

import random
from pathlib import Path

import batch_model as model
import numpy as np
import pytest
from loader_data import COUNT, FLAT, epoch_ids

import headrace as hr
from headrace import _core


def number(i: int, j: int) -> int:
    return (i * 0x9E3779B1 + j * 0x85EBCA77) % 2**32 >> 16


# Frozen: src/plan/batch_order_test.cc has the same.
@pytest.mark.parametrize(
    (
        "samples",
        "batch_size",
        "world_size",
        "ranks_per_node",
        "homes_each",
        "costs",
        "drop_last",
        "digest",
    ),
    [
        (97, 5, 4, 2, 1, True, False, "63303a4c0990e0a5"),
        (97, 5, 4, 2, 1, True, True, "b9aa65698a9234e2"),
        (1000, 16, 7, 3, 3, True, False, "7630466a583a6cf5"),
        (1000, 16, 6, 1, 2, False, False, "8370acfa35386be4"),
        (251, 8, 16, 4, 0, True, False, "befd8d92cbac71c6"),
        (13, 4, 5, 5, 1, False, False, "717bbd6fb439ca1c"),
    ],
)
def test_the_model_gives_the_frozen_order_of_every_rank(
    samples: int,
    batch_size: int,
    world_size: int,
    ranks_per_node: int,
    homes_each: int,
    costs: bool,
    drop_last: bool,
    digest: str,
) -> None:
    nodes = -(-world_size // ranks_per_node)
    homes = [[number(i, j) % (nodes + 1) for j in range(homes_each)] for i in range(samples)]
    epochs = [
        model.batch_epoch(
            samples,
            batch_size,
            world_size=world_size,
            ranks_per_node=ranks_per_node,
            homes=homes if homes_each else None,
            costs=[number(i, 99) % 1000 for i in range(samples)] if costs else None,
            seed=7,
            epoch=epoch,
            drop_last=drop_last,
        )
        for epoch in range(2)
    ]
    ids = [
        sample
        for rank in range(world_size)
        for epoch in epochs
        for batch in epoch[rank]
        for sample in batch
    ]
    assert f"{_core.hash64(np.array(ids, np.uint64).tobytes()):016x}" == digest


def test_the_final_batch_begins_again_where_it_ends() -> None:
    steps = model.final_batch_padded(11, 4, 4, drop_last=False)
    assert steps == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 8]]
    assert model.final_batch_padded(1, 8, 4, drop_last=False) == [[0, 0, 0, 0]]
    assert model.final_batch_padded(11, 4, 4, drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("seed", range(60))
def test_the_core_deals_as_the_model_does_id_by_id(seed: int) -> None:
    draw = random.Random(seed)
    samples = draw.choice([1, 2, 13, 97, 128, 251, 600])
    world_size = draw.randint(1, 16)
    batch_size = draw.randint(1, 12)
    ranks_per_node = draw.randint(1, world_size)
    nodes = -(-world_size // ranks_per_node)
    each = draw.randint(0, 3)
    homes = [
        [draw.choice([0, draw.randint(0, nodes)]) for _ in range(each)] for _ in range(samples)
    ]
    costs = [draw.randrange(draw.choice([3, 1000, 2**32])) for _ in range(samples)]
    with_costs = draw.random() < 0.7
    drop_last = draw.random() < 0.5 and samples >= batch_size * world_size
    if each:
        homes[0][0] = 0
    for rank in range(world_size):
        stream = _core.OrderStream(
            "batch",
            {"ranks_per_node": ranks_per_node},
            index=(samples, 1),
            batch_size=batch_size,
            world_size=world_size,
            rank=rank,
            seed=seed,
            drop_last=drop_last,
            epochs=2,
            homes=np.array(homes, np.uint32).reshape(-1) if each else None,
            costs=np.array(costs, np.uint32) if with_costs else None,
        )
        for epoch in range(2):
            expected = model.batch_epoch(
                samples,
                batch_size,
                world_size=world_size,
                ranks_per_node=ranks_per_node,
                homes=homes if each else None,
                costs=costs if with_costs else None,
                seed=seed,
                epoch=epoch,
                drop_last=drop_last,
            )[rank]
            for batch in expected:
                assert stream.ids(1).tolist() == batch
        assert stream.ids(1).tolist() == []


def test_a_loader_takes_several_homes_a_sample_and_minus_one_for_none(numbered: Path) -> None:
    homes = np.random.default_rng(4).integers(-1, 3, (COUNT, 2))
    homes[0] = 0
    for rank in range(3):
        order = hr.orders.Batch(homes=homes, costs=None)
        with hr.Loader(
            numbered,
            batch_size=4,
            transform=FLAT,
            seed=2,
            order=order,
            job=hr.Job(rank=rank, world_size=3),
        ) as loader:
            expected = model.batch_epoch(COUNT, 4, world_size=3, homes=homes.tolist(), seed=2)
            assert epoch_ids(loader) == expected[rank]


@pytest.mark.parametrize(
    ("samples", "nodes", "copies"), [(1, 1, 1), (97, 8, 1), (97, 8, 2), (96, 3, 3), (500, 64, 16)]
)
def test_dealt_homes_are_different_nodes_each_home_to_as_many(
    samples: int, nodes: int, copies: int
) -> None:
    homes = hr.orders.dealt_homes(samples, nodes, copies, seed=3)
    assert homes.shape == (samples, copies)
    assert all(len(set(each)) == copies for each in homes.tolist())
    counts = np.bincount(homes.reshape(-1), minlength=nodes)
    assert len(counts) == nodes
    assert counts.max() - counts.min() <= copies
    assert (homes == hr.orders.dealt_homes(samples, nodes, copies, seed=3)).all()


def test_dealt_homes_are_frozen() -> None:
    assert hr.orders.dealt_homes(6, 4, 2, seed=1).tolist() == [
        [1, 2],
        [2, 3],
        [3, 0],
        [1, 3],
        [0, 2],
        [0, 1],
    ]


@pytest.mark.parametrize("copies", [0, 5, 17])
def test_dealt_homes_refuse_more_copies_than_nodes(copies: int) -> None:
    with pytest.raises(hr.errors.InvalidArgumentError, match="copies: "):
        hr.orders.dealt_homes(10, 4, copies)
