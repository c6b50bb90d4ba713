"""epoch_size=: states within a pass of the sampler, which is longer or shorter than an epoch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from map_data import WAYS, OnlyIds, ids
from torch.utils.data import DistributedSampler, Sampler

from headrace.torch import DataLoader

COUNT = 24


class Sized(Sampler[int]):
    """A sampler with a state and a length, as torchdata's RandomSampler and DistributedSampler."""

    def __init__(self) -> None:
        self.given = self.passes = 0

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        if self.given == COUNT:
            self.given, self.passes = 0, self.passes + 1
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(self.passes))
        for number in order.tolist()[self.given :]:
            self.given += 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given, "passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given, self.passes = state["given"], state["passes"]


def with_own_state(**how: Any) -> DataLoader:
    return DataLoader(OnlyIds(COUNT), 4, sampler=Sized(), epoch_size=16, **how)


def distributed(**how: Any) -> DataLoader:
    sampler = DistributedSampler(OnlyIds(2 * COUNT), 2, 1, seed=3)
    return DataLoader(OnlyIds(2 * COUNT), 4, sampler=sampler, epoch_size=16, **how)


def begin(loader: DataLoader, epoch: int) -> None:
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(epoch)


@pytest.mark.parametrize("make", [with_own_state, distributed])
def test_a_loader_goes_on_within_a_pass_that_began_in_an_earlier_epoch(
    make: Callable[[], DataLoader],
) -> None:
    """At every step; a pass has 24 samples and an epoch 16."""
    expected: list[list[list[int]]] = []
    whole = make()
    for epoch in range(4):
        begin(whole, epoch)
        expected.append(ids(whole))
    given = [number for epoch in expected for batch in epoch for number in batch]
    assert len(set(given[:COUNT])) == COUNT
    for epoch in range(3):
        for step in range(5):
            first = make()
            for earlier in range(epoch):
                begin(first, earlier)
                list(first)
            begin(first, epoch)
            iterator = iter(first)
            for _ in range(step):
                next(iterator)
            state = json.loads(json.dumps(first.state_dict()))
            second = make()
            second.load_state_dict(state)
            if step < 4:
                begin(second, epoch)  # As a training loop does, which keeps the place.
                assert ids(second) == expected[epoch][step:], (epoch, step)
            begin(second, epoch + 1)
            assert ids(second) == expected[epoch + 1], (epoch, step)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [with_own_state, distributed])
def test_an_epoch_that_was_left_counts_as_a_whole(
    make: Callable[..., DataLoader], way: str
) -> None:
    """However far it was drawn; in this loader, and in one that goes on from its state."""
    whole = make(**WAYS[way])
    expected = []
    for epoch in range(4):
        begin(whole, epoch)
        expected.append(ids(whole))
    whole.close()
    first, second = make(**WAYS[way]), make(**WAYS[way])
    begin(first, 0)
    iterator = iter(first)
    assert next(iterator).tolist() == expected[0][0]
    state = json.loads(json.dumps(first.state_dict()))
    del iterator
    begin(first, 1)
    iterator = iter(first)
    later = json.loads(json.dumps(first.state_dict()))
    assert next(iterator).tolist() == expected[1][0]
    del iterator
    begin(first, 2)
    assert ids(first) == expected[2]
    second.load_state_dict(later)
    begin(second, 1)
    assert ids(second) == expected[1]
    if make is distributed:
        second.load_state_dict(state)
        begin(second, 1)  # Another epoch than the state's.
        assert ids(second) == expected[1]
    first.close()
    second.close()


class Breaks(DistributedSampler[int]):
    breaks = False

    def __iter__(self) -> Iterator[int]:
        if self.breaks and self.epoch == 0:
            raise OSError("no keys")
        return super().__iter__()


def test_a_sampler_that_fails_while_a_pass_is_finished_keeps_its_epoch() -> None:
    sampler = Breaks(OnlyIds(2 * COUNT), 2, 1, seed=3)
    loader = DataLoader(OnlyIds(2 * COUNT), 4, sampler=sampler, epoch_size=30)
    begin(loader, 0)
    next(iter(loader))
    sampler.breaks = True
    begin(loader, 2)
    with pytest.raises(OSError, match="no keys"):
        iter(loader)
    assert sampler.epoch == 2
