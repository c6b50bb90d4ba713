"""Ranks: every sample once, the same as torch, with and without drop_last, after a resume."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data
from map_data import OnlyIds, ids
from torch.utils.data import DistributedSampler

from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch import DataLoader

COUNT = 61
THREADS: dict[str, Any] = {"num_workers": 2, "worker_method": "thread"}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_get_the_samples_of_torch_and_lose_none_at_any_step(
    ranks: int, drop_last: bool
) -> None:
    data = OnlyIds(COUNT)

    def sampler(rank: int) -> DistributedSampler[Any]:
        return DistributedSampler(data, ranks, rank, seed=3, drop_last=drop_last)

    everything: list[int] = []
    for rank in range(ranks):
        theirs = torch.utils.data.DataLoader(data, 5, sampler=sampler(rank), drop_last=drop_last)
        expected = []
        for epoch in range(2):
            theirs.sampler.set_epoch(epoch)  # type: ignore[union-attr]
            expected.append(ids(theirs))
        everything += [number for batch in expected[0] for number in batch]

        def loader(sampler: Any) -> DataLoader:
            return DataLoader(data, 5, sampler=sampler, drop_last=drop_last, **THREADS)

        for step in range(len(expected[0]) + 1):
            first = loader(sampler(rank))
            first.set_epoch(0)
            iterator = iter(first)
            taken = [next(iterator).tolist() for _ in range(step)]
            second = loader(sampler(rank))
            second.load_state_dict(first.state_dict())
            if step < len(expected[0]):
                taken += ids(second)
            second.set_epoch(1)
            assert [taken, ids(second)] == expected
    if not drop_last:
        assert set(everything) == set(range(COUNT))
        assert len(everything) == -(-COUNT // ranks) * ranks  # DistributedSampler repeats some.
    else:
        assert len(everything) == len(set(everything))


def of_ranks(ranks: int, rank: int, global_batch: int = 12, **sampler: Any) -> DataLoader:
    data = OnlyIds(COUNT)
    divided = DistributedSampler(data, ranks, rank, **({"seed": 3} | sampler))
    return DataLoader(data, global_batch // ranks, sampler=divided)


def steps_of(ranks: int) -> list[list[list[int]]]:
    """Of each step of two epochs the batch of each rank."""
    loaders = [of_ranks(ranks, rank) for rank in range(ranks)]
    steps: list[list[list[int]]] = []
    for epoch in range(2):
        for each in loaders:
            each.set_epoch(epoch)
        steps += map(list, zip(*(ids(each) for each in loaders), strict=True))
    return steps


@pytest.mark.parametrize("after", [1, 2, 4])
@pytest.mark.parametrize("before", [1, 2, 4])
def test_a_state_of_any_rank_restores_on_every_rank_of_any_number(before: int, after: int) -> None:
    """As trainers do, which save the state of rank 0 only. At every step, and twice in a row."""
    whole = steps_of(after)
    length = len(whole) // 2
    for begun in steps_of(before)[:length], whole[:length]:  # They are the same global batches.
        assert {number for step in begun for batch in step for number in batch} == set(range(COUNT))
    for step in range(2 * length):
        epoch, batches = divmod(step, length)
        saving = of_ranks(before, before - 1)
        saving.set_epoch(epoch)
        iterator = iter(saving)
        for _ in range(batches):
            next(iterator)
        state = saving.state_dict()
        for rank in range(after):
            second, third = of_ranks(after, rank), of_ranks(after, rank)
            second.load_state_dict(state)
            assert next(iter(second)).tolist() == whole[step][rank]
            third.load_state_dict(second.state_dict())
            rest = ids(third) if batches + 1 < length else []
            assert rest == [each[rank] for each in whole[step + 1 : (epoch + 1) * length]]


def test_a_step_of_all_ranks_has_the_same_samples_on_any_number() -> None:
    expected = [sorted(number for batch in step for number in batch) for step in steps_of(1)]
    for ranks in (2, 4):
        found = [{number for batch in step for number in batch} for step in steps_of(ranks)]
        length = len(found) // 2
        for number, (step, whole) in enumerate(zip(found, expected, strict=True), 1):
            assert step == set(whole) or (number % length == 0 and step > set(whole))  # padded


def test_another_rank_s_state_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    iterator = iter(saving := of_ranks(2, 0))
    next(iterator)
    state = saving.state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    restored = of_ranks(2, 1)
    restored.load_state_dict(state)
    next(iter(restored))
    assert torch.equal(torch.get_rng_state(), before)


class Groups(DistributedSampler[Any]):
    """Another way to divide."""


@pytest.mark.parametrize(
    ("restored", "message"),
    [
        (
            lambda: of_ranks(1, 0, 6),
            "state: saved on 2 ranks with batch_size 6, restored on 1 with batch_size 6: a step of "
            "all ranks must have the same number of samples",
        ),
        (
            lambda: of_ranks(2, 1, 8),
            "state: saved with batch_size 6, restored in a DataLoader with 4: its batches would",
        ),
        (
            lambda: of_ranks(2, 1, seed=4),
            "state: saved with a sampler of seed 3, restored with one of seed 4: its samples would",
        ),
        (lambda: of_ranks(2, 1, shuffle=False), "sampler of shuffle True, restored with one of sh"),
        (
            lambda: DataLoader(OnlyIds(COUNT), 6, sampler=Groups(OnlyIds(COUNT), 2, 1, seed=3)),
            "state: saved with a sampler of kind 'torch.utils.data.distributed.DistributedSampler'",
        ),
        (
            lambda: DataLoader(
                OnlyIds(COUNT),
                12,
                sampler=DistributedSampler(OnlyIds(COUNT), 1, 0, seed=3),
                epoch_size=30,
            ),
            "that needs torch's DistributedSampler, batch_size= and no epoch_size=",
        ),
    ],
)
def test_a_state_of_other_steps_is_refused(restored: Any, message: str) -> None:
    state = of_ranks(2, 0).state_dict()
    with pytest.raises(FailedPreconditionError, match=message):
        restored().load_state_dict(state)


def test_a_share_of_something_else_is_refused() -> None:
    state = of_ranks(2, 0).state_dict() | {"share": {"odd": 1}}
    with pytest.raises(InvalidArgumentError) as raised:
        of_ranks(2, 1).load_state_dict(state)
    text = str(raised.value)
    assert text.startswith("state: share is {'odd': 1}: ")
    assert text.endswith(": give what state_dict() gave, unchanged")
