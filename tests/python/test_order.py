"""docs/orders.md, the C++ and torch agree: numbers, permutations, and who gets which sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import order_model as model
import pytest
import torch
from loader_data import COUNT, FLAT, epoch_ids
from torch.utils.data import BatchSampler, DistributedSampler

import headrace as hr
from headrace import _core

LARGE_SEED = 2**64 - 3


# From the Random123 distribution (kat_vectors, philox4x32 10).
@pytest.mark.parametrize(
    ("counter", "key", "result"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_model_gives_the_known_answers_of_philox(
    counter: tuple[int, int, int, int], key: tuple[int, int], result: tuple[int, ...]
) -> None:
    assert model.philox(counter, key) == result


# Frozen: src/plan/permutation_test.cc has the same, and docs/orders.md prints them.
def test_the_model_gives_the_frozen_vectors() -> None:
    assert model.permutation(10, seed=7, epoch=0) == [2, 6, 4, 5, 0, 8, 3, 7, 9, 1]
    keyed = model.keyed_bijection(10, seed=7, epoch=0)
    assert [keyed(i) for i in range(10)] == [7, 2, 8, 9, 3, 6, 5, 0, 1, 4]
    large = model.keyed_bijection(2**27 + 1, seed=7, epoch=3)
    assert [large(0), large(1), large(2**27)] == [31807697, 113214232, 50329850]


def test_the_page_prints_the_frozen_vectors() -> None:
    page = (Path(__file__).parents[2] / "docs" / "orders.md").read_text()
    for part in ("2 6 4 5 0 8 3 7 9 1", "7 2 8 9 3 6 5 0 1 4", "31807697", "113214232", "50329850"):
        assert part in page


@pytest.mark.parametrize("size", [1, 2, 3, 10, 37, 64, 1000])
def test_the_keyed_bijection_of_the_model_gives_every_entry_once(size: int) -> None:
    keyed = model.keyed_bijection(size, seed=5, epoch=1)
    assert sorted(keyed(i) for i in range(size)) == list(range(size))


def test_the_permutation_of_the_core_is_the_model_s_for_every_small_size() -> None:
    for size in range(1, 301):
        for seed, epoch, stream in ((0, 0, model.ORDER), (size, 1, model.PACK)):
            found = _core.permutation(size, seed, epoch, stream)
            assert found.dtype == np.uint64
            assert found.tolist() == model.permutation(size, seed, epoch, stream), size


@pytest.mark.parametrize(
    ("size", "seed", "epoch"), [(65537, 11, 2), (100_000, LARGE_SEED, 2**24 - 1)]
)
def test_the_permutation_of_the_core_is_the_model_s_for_large_sizes(
    size: int, seed: int, epoch: int
) -> None:
    assert _core.permutation(size, seed, epoch, 1).tolist() == model.permutation(size, seed, epoch)


def first_ids(size: int, parameters: dict[str, int | str]) -> list[int]:
    job = {"index": (size, 1), "batch_size": 8, "seed": 7, "epoch": 3}
    return [int(i) for i in _core.OrderStream("exact", parameters, **job).ids(1)]


@pytest.mark.parametrize("size", [2**24 - 1, 2**24, 2**24 + 1])
def test_the_keyed_bijection_replaces_the_table_from_2_to_the_24_on(size: int) -> None:
    keyed = model.keyed_bijection(size, seed=7, epoch=3)
    of_bijection = [keyed(i) for i in range(8)]
    of_table = [int(i) for i in _core.permutation(size, 7, 3, model.ORDER)[:8]]
    assert first_ids(size, {}) == (of_bijection if size >= 2**24 else of_table)
    assert first_ids(size, {"bijection_from": size}) == of_bijection
    assert first_ids(size, {"bijection_from": size + 1}) == of_table
    # As the states say that were saved before there was that parameter.
    assert first_ids(size, {"bijection_from": 2**27 + 1}) == of_table


@pytest.mark.parametrize("order", _core.order_names())
def test_a_state_without_the_threshold_means_the_one_of_old(numbered: Path, order: str) -> None:
    with hr.Loader(
        numbered, 5, order=order, output=hr.Output(ids=True), transform=FLAT, seed=4
    ) as loader:
        whole = epoch_ids(loader)
        state = loader.state_dict()
    assert state["order_parameters"].pop("bijection_from") == 2**24
    with hr.Loader(
        numbered, 5, order=order, output=hr.Output(ids=True), transform=FLAT, seed=4
    ) as loader:
        loader.load_state_dict(state | {"epoch": 0})
        assert epoch_ids(loader) == whole
        assert loader.state_dict()["order_parameters"]["bijection_from"] == 2**27 + 1


def test_a_loader_continues_with_the_threshold_of_its_state(numbered: Path) -> None:
    options = {"output": hr.Output(ids=True), "transform": FLAT, "seed": 4}
    with hr.Loader(numbered, 5, order="exact", **options) as loader:
        state = loader.state_dict()
        state["order_parameters"]["bijection_from"] = COUNT
        loader.load_state_dict(state)
        expected = model.exact_epoch(COUNT, 5, seed=4, bijection_from=COUNT)
        assert epoch_ids(loader) == expected != model.exact_epoch(COUNT, 5, seed=4)
        assert loader.state_dict()["order_parameters"] == {"bijection_from": COUNT}


def test_draws_of_64_bits_are_uniform_and_below_their_bound() -> None:
    words = model.Words(3, 0, model.ORDER)
    bound = 2**63 + 1  # half of all draws are rejected
    drawn = [words.below(bound) for _ in range(200)]
    assert max(drawn) < bound
    assert 60 < sum(each < bound // 2 for each in drawn) < 140


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_the_loader_delivers_what_the_page_says(
    numbered: Path, world_size: int, drop_last: bool
) -> None:
    for rank in range(world_size):
        with hr.Loader(
            numbered,
            batch_size=5,
            transform=FLAT,
            seed=LARGE_SEED,
            job=hr.Job(rank=rank, world_size=world_size),
            drop_last=drop_last,
            output=hr.Output(ids=True),
        ) as loader:
            for epoch in range(2):
                expected = model.exact_epoch(
                    COUNT,
                    5,
                    seed=LARGE_SEED,
                    epoch=epoch,
                    drop_last=drop_last,
                    rank=rank,
                    world_size=world_size,
                )
                assert len(loader) == len(expected)
                assert epoch_ids(loader) == expected


# More ranks than samples, batches of one, and sizes that divide: on the model, which the loader
# follows (above), and which is quick.
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_the_page_says_what_torch_does_with_a_list(
    world_size: int, shuffle: bool, drop_last: bool
) -> None:
    for size in (1, 2, 7, 16, 97):
        entries = model.permutation(size, 3, 1) if shuffle else list(range(size))
        for batch_size in (1, 3, 16):
            for rank in range(world_size):
                sampler: DistributedSampler[int] = DistributedSampler(
                    entries, world_size, rank, shuffle=False, drop_last=drop_last
                )
                ours = model.exact_epoch(
                    size,
                    batch_size,
                    seed=3,
                    epoch=1,
                    shuffle=shuffle,
                    drop_last=drop_last,
                    rank=rank,
                    world_size=world_size,
                )
                if drop_last and size < world_size * batch_size:
                    assert ours == []  # the loader refuses this
                    continue
                batches = BatchSampler(sampler, batch_size, drop_last)
                assert ours == [[entries[i] for i in batch] for batch in batches]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_a_loader_of_each_rank_gives_what_torch_s_loader_of_that_rank_gives(
    numbered: Path, world_size: int, drop_last: bool
) -> None:
    entries = [int(i) for i in _core.permutation(COUNT, 9, 0, model.ORDER)]
    for rank in range(world_size):
        sampler: DistributedSampler[int] = DistributedSampler(
            entries, world_size, rank, shuffle=False, drop_last=drop_last
        )
        theirs = torch.utils.data.DataLoader(
            entries, batch_size=4, sampler=sampler, drop_last=drop_last
        )
        with hr.Loader(
            numbered,
            batch_size=4,
            transform=FLAT,
            seed=9,
            job=hr.Job(rank=rank, world_size=world_size),
            drop_last=drop_last,
        ) as loader:
            assert epoch_ids(loader) == [batch.tolist() for batch in theirs]
