"""A state saved between two epochs knows its sampler: another one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import COUNT, FLAT, epoch_ids
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    WeightedRandomSampler,
)

import headrace as hr
from headrace import errors

NUMBERS: Any = range(COUNT)
REFUSED = r"restoring epoch \d+: the sampler gave before it other samples"


@pytest.fixture
def dataset(numbered: Path) -> hr.Dataset:
    return hr.open(numbered)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class CountsItself:
    """A sampler that goes on to its next epoch when iterated, and has set_epoch()."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        yield from torch.randperm(COUNT, generator=seeded(100 * self.seed + self.epoch)).tolist()


class ShowsNoEpoch:
    """A sampler with set_epoch(), but without `epoch`."""

    def __init__(self, seed: int) -> None:
        self.told = DistributedSampler(NUMBERS, 2, 1, seed=seed)

    def set_epoch(self, epoch: int) -> None:
        self.told.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(self.told)


class CountsOnly:
    """A sampler with an epoch that nobody can set."""

    def __init__(self, seed: int) -> None:
        self.generator = seeded(seed)
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        yield from torch.randperm(COUNT, generator=self.generator).tolist()


def distributed(seed: int) -> Any:
    return DistributedSampler(NUMBERS, 2, 1, seed=seed)


ASKED_AGAIN: dict[str, Callable[[int], dict[str, Any]]] = {
    "random": lambda seed: {"sampler": RandomSampler(NUMBERS, generator=seeded(seed))},
    "weighted": lambda seed: {
        "sampler": WeightedRandomSampler(torch.ones(COUNT), 80, generator=seeded(seed))
    },
    "batch sampler": lambda seed: {
        "batch_sampler": BatchSampler(RandomSampler(NUMBERS, generator=seeded(seed)), 30, False)
    },
    "list": lambda seed: {"sampler": [seed, 2, 3]},
    "counts only": lambda seed: {"sampler": CountsOnly(seed)},
}
TOLD_ITS_EPOCH: dict[str, Callable[[int], dict[str, Any]]] = {
    "distributed": lambda seed: {"sampler": distributed(seed)},
    "batch sampler of one": lambda seed: {
        "batch_sampler": BatchSampler(distributed(seed), 30, False)
    },
    "counts itself": lambda seed: {"sampler": CountsItself(seed)},
}
ALL = ASKED_AGAIN | TOLD_ITS_EPOCH


def make(dataset: hr.Dataset, name: str, seed: int) -> hr.Loader:
    options = {"batch_size": 30} if "batch" not in name else {}
    return hr.Loader(dataset, transform=FLAT, **options, **ALL[name](seed))


def after_epochs(dataset: hr.Dataset, name: str, epochs: int = 2) -> dict[str, Any]:
    with make(dataset, name, seed=5) as loader:
        for epoch in range(epochs):
            if name in TOLD_ITS_EPOCH and name != "counts itself":
                loader.set_epoch(epoch)
            epoch_ids(loader)
        return saved(loader)


def saved(loader: hr.Loader) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


@pytest.mark.parametrize("name", ALL)
def test_between_epochs_the_same_sampler_goes_on_and_another_is_refused(
    dataset: hr.Dataset, name: str
) -> None:
    def third(loader: hr.Loader) -> list[list[int]]:
        if name in TOLD_ITS_EPOCH and name != "counts itself":
            loader.set_epoch(2)
        return epoch_ids(loader)

    with make(dataset, name, seed=5) as whole:
        for epoch in range(2):
            if name in TOLD_ITS_EPOCH and name != "counts itself":
                whole.set_epoch(epoch)
            epoch_ids(whole)
        state = saved(whole)
        expected = third(whole)
    with make(dataset, name, seed=5) as again:
        again.load_state_dict(state)
        assert third(again) == expected
    with make(dataset, name, seed=6) as other:
        other.load_state_dict(state)
        for _ in range(2):  # However often it is tried.
            with pytest.raises(errors.FailedPreconditionError, match="other samples"):
                third(other)


@pytest.mark.parametrize("name", ["random", "distributed"])
def test_after_the_last_batch_is_the_end_of_the_epoch(dataset: hr.Dataset, name: str) -> None:
    with make(dataset, name, seed=5) as loader:
        states = [saved(loader) for _ in loader]
        assert states[-1] == saved(loader)
    with make(dataset, name, seed=6) as other:
        other.load_state_dict(states[-1])
        with pytest.raises(errors.FailedPreconditionError, match="other samples"):
            iter(other)


@pytest.mark.parametrize("name", ["random", "distributed"])
def test_a_state_of_a_restored_loader_knows_the_sampler(dataset: hr.Dataset, name: str) -> None:
    state = after_epochs(dataset, name)
    with make(dataset, name, seed=6) as other:
        other.load_state_dict(state)
        assert saved(other) == state
        other.set_epoch(state["epoch"])
        state = saved(other)
    with make(dataset, name, seed=6) as other:
        other.load_state_dict(state)
        with pytest.raises(errors.FailedPreconditionError, match="other samples"):
            iter(other)


def test_a_restored_loader_knows_its_sampler_after_its_next_epoch(dataset: hr.Dataset) -> None:
    for name in ("random", "distributed"):
        state = after_epochs(dataset, name)
        with make(dataset, name, seed=5) as again:
            again.load_state_dict(state)
            again.set_epoch(2)
            epoch_ids(again)
            later = saved(again)
        assert later["sampler_draws"] == 3
        assert later["sampler_last_hash"] not in (None, state["sampler_last_hash"])


def test_the_sampler_is_asked_when_the_iteration_begins_and_its_epoch_is_what_the_user_said(
    dataset: hr.Dataset,
) -> None:
    state = after_epochs(dataset, "distributed")
    sampler = distributed(6)
    with hr.Loader(dataset, batch_size=30, sampler=sampler) as other:
        other.load_state_dict(state)  # Asks nothing yet.
        sampler.set_epoch(7)
        with pytest.raises(errors.FailedPreconditionError, match="gives for its epoch 1 other"):
            iter(other)
        assert sampler.epoch == 7


def test_a_sampler_that_raises_when_it_is_compared_keeps_the_epoch_that_the_user_said(
    dataset: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = after_epochs(dataset, "distributed")
    sampler = distributed(5)
    with hr.Loader(dataset, batch_size=30, sampler=sampler, transform=FLAT) as other:
        other.load_state_dict(state)
        sampler.set_epoch(7)
        with monkeypatch.context() as broken:
            broken.setattr(DistributedSampler, "__iter__", lambda self: iter([None]))
            with pytest.raises(errors.InvalidArgumentError, match="gave None"):
                iter(other)
        assert sampler.epoch == 7


def test_a_sampler_that_raises_in_a_restore_leaves_torch_s_generator(dataset: hr.Dataset) -> None:
    def raising() -> Iterator[int]:
        torch.rand(3)
        raise RuntimeError("no samples")
        yield

    class Raises:
        def __iter__(self) -> Iterator[int]:
            return raising()

    with make(dataset, "random", seed=5) as loader:
        next(iter(loader))
        state = saved(loader)
    with hr.Loader(dataset, batch_size=30, sampler=Raises()) as other:
        other.load_state_dict(state)
        before = torch.get_rng_state()
        with pytest.raises(RuntimeError, match="no samples"):
            iter(other)
        assert torch.equal(torch.get_rng_state(), before)


def test_before_the_first_epoch_a_state_knows_no_sampler(dataset: hr.Dataset) -> None:
    with make(dataset, "random", seed=5) as loader:
        state = saved(loader)
    assert state["sampler_last_hash"] is None
    with make(dataset, "random", seed=6) as other:
        other.load_state_dict(state)
        assert len(epoch_ids(other)) == len(other)


def test_a_sampler_that_does_not_show_its_epoch_is_not_known_between_epochs(
    dataset: hr.Dataset,
) -> None:
    def told() -> hr.Loader:
        return hr.Loader(dataset, batch_size=30, sampler=ShowsNoEpoch(5), transform=FLAT)

    with told() as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            epoch_ids(loader)
        state = saved(loader)
        loader.set_epoch(2)
        expected = epoch_ids(loader)
    assert state["sampler_last_hash"] is None
    with told() as again:
        again.load_state_dict(state)
        again.set_epoch(2)
        assert epoch_ids(again) == expected


@pytest.mark.parametrize("name", ["random", "distributed"])
def test_a_state_without_what_is_known_of_the_last_epoch_restores(
    dataset: hr.Dataset, name: str
) -> None:
    state = after_epochs(dataset, name)
    older = {key: value for key, value in state.items() if "sampler_last" not in key}
    with make(dataset, name, seed=5) as again, make(dataset, name, seed=5) as known:
        again.load_state_dict(older)
        known.load_state_dict(state)
        assert epoch_ids(again) == epoch_ids(known)


def test_a_rewind_of_a_sampler_that_has_gone_on_is_refused(dataset: hr.Dataset) -> None:
    with make(dataset, "random", seed=5) as loader:
        epoch_ids(loader)
        state = saved(loader)
        epoch_ids(loader)
        loader.load_state_dict(state)
        with pytest.raises(errors.FailedPreconditionError, match="other samples"):
            iter(loader)


@pytest.mark.parametrize("key", ["sampler_last_hash", "sampler_last_epoch"])
def test_what_cannot_be_known_of_the_last_epoch_is_named(dataset: hr.Dataset, key: str) -> None:
    state = after_epochs(dataset, "distributed") | {key: [1]}
    with (
        make(dataset, "distributed", seed=5) as again,
        pytest.raises(errors.InvalidArgumentError, match=key),
    ):
        again.load_state_dict(state)
