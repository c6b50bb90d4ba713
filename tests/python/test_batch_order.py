"""The order `batch`: docs/orders.md, its slow model, and the C++ agree."""

from __future__ import annotations

import batch_model as model
import numpy as np
import pytest

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
