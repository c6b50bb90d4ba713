"""A state saved between two epochs knows its sampler: another one is refused."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_data import COUNT, FLAT, epoch_ids, flat, payload_ids
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    WeightedRandomSampler,
)

import headrace as hr
import headrace.torch
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


def test_the_batch_size_beside_a_sampler_is_that_of_a_rank(dataset: hr.Dataset) -> None:
    state = after_epochs(dataset, "distributed", 1)
    sampler = ALL["distributed"](5)
    with hr.Loader(dataset, 20, transform=FLAT, **sampler) as loader:
        with pytest.raises(errors.FailedPreconditionError) as refused:
            loader.load_state_dict(state)
        assert str(refused.value) == (
            "state: saved with global_batch 30, restored in a loader with 20; make the loader with "
            "batch_size=30"
        )


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


def test_without_set_epoch_a_sampler_gives_its_next_pass_and_the_number_decides_augmentation(
    dataset: hr.Dataset,
) -> None:
    """And a state knows both."""

    def drawn(sample: hr.Sample) -> tuple[int, float]:
        return sample.id, sample.rng.random()

    def made() -> hr.Loader:
        sampler = RandomSampler(NUMBERS, generator=seeded(5))
        return hr.Loader(dataset, 30, sampler=sampler, transform=drawn, workers=0, output="numpy")

    def epoch(loader: hr.Loader) -> list[Any]:
        return [[part.tolist() for part in batch] for batch in loader]

    with made() as plain, made() as numbered:
        passes = [epoch(plain) for _ in range(2)]
        numbered.set_epoch(7)
        first = epoch(numbered)
        assert [batch[0] for batch in first] == [batch[0] for batch in passes[0]]
        assert [batch[1] for batch in first] != [batch[1] for batch in passes[0]]
        numbered.set_epoch(0)  # Not the pass that was epoch 0 in `plain`.
        iterator = iter(numbered)
        next(iterator)
        state = saved(numbered)
        rest = [[part.tolist() for part in batch] for batch in iterator]
        assert [batch[0] for batch in rest] == [batch[0] for batch in passes[1][1:]]
    assert state["epoch"] == 0
    with made() as again:
        again.load_state_dict(state)
        assert epoch(again) == rest


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


BACK: dict[str, Callable[[], dict[str, Any]]] = {
    "its own generator": lambda: {"sampler": RandomSampler(NUMBERS, generator=seeded(5))},
    "torch's generator": lambda: {"sampler": RandomSampler(NUMBERS)},
    "weights, torch's generator": lambda: {"sampler": WeightedRandomSampler(torch.ones(COUNT), 80)},
    "NumPy's generator": lambda: {"sampler": DrawsFromNumPy()},
    "batches": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(NUMBERS, generator=seeded(5)), 30, False)
    },
}


class DrawsFromNumPy:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.permutation(COUNT).tolist())


@pytest.mark.parametrize("name", BACK)
def test_a_loader_goes_back_to_its_own_state_in_and_between_epochs(
    dataset: hr.Dataset, name: str
) -> None:
    given = BACK[name]()
    size = {} if "batch_sampler" in given else {"batch_size": 30}
    torch.manual_seed(9)
    with hr.Loader(dataset, transform=FLAT, **size, **given) as loader:
        epochs, states = [epoch_ids(loader)], [saved(loader)]
        iterator = iter(loader)
        epochs.append([payload_ids(next(iterator))])
        states.append(saved(loader))
        epochs[1] += [payload_ids(batch) for batch in iterator]
        epochs.append(epoch_ids(loader))
        for state, first in ((states[1], 1), (states[0], 0), (states[1], 1)):
            loader.load_state_dict(state)
            assert epoch_ids(loader) == epochs[1][first:]
            assert epoch_ids(loader) == epochs[2]


def test_a_loader_does_not_go_back_with_a_sampler_that_draws_from_elsewhere(
    dataset: hr.Dataset,
) -> None:
    class Elsewhere:
        def __iter__(self) -> Iterator[int]:
            return iter(random.sample(range(COUNT), COUNT))

    with hr.Loader(dataset, 30, transform=FLAT, sampler=Elsewhere()) as loader:
        iterator = iter(loader)
        next(iterator)
        state = saved(loader)
        epoch_ids(loader)
        loader.load_state_dict(state)
        with pytest.raises(errors.FailedPreconditionError, match="other samples"):
            iter(loader)


class Yielded:
    """As torchdata's StatefulDistributedSampler: its state is how many samples the pass has given,
    all of them between two passes; a state that is loaded counts for the next pass."""

    def __init__(self) -> None:
        self.given = self.asked = 0
        self.skip: int | None = None

    def __iter__(self) -> Iterator[int]:
        self.given, self.skip = self.skip or 0, None
        self.asked += 1
        while self.given < 80:
            self.given += 1
            yield (self.given * 7) % COUNT

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skip = state["given"]


class CountsPasses(Yielded):
    """Its state says which pass is next."""

    def __iter__(self) -> Iterator[int]:
        self.asked += 1
        self.given += 1
        return iter([(self.given * 13 + n) % COUNT for n in range(80)])

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


@pytest.mark.parametrize("kind", [Yielded, CountsPasses])
def test_the_state_of_a_sampler_is_saved_and_restored(
    dataset: hr.Dataset, kind: type[Yielded]
) -> None:
    """In a new loader, whose sampler gives no earlier pass again, and back in the same one."""
    with hr.Loader(dataset, 30, transform=FLAT, sampler=kind()) as loader:
        epoch_ids(loader)
        between = saved(loader)
        iterator = iter(loader)
        second = [payload_ids(next(iterator))]
        within = saved(loader)
        second += [payload_ids(batch) for batch in iterator]
        third = epoch_ids(loader)
        for state, first in ((within, 1), (between, 0)):
            sampler = kind()
            with hr.Loader(dataset, 30, transform=FLAT, sampler=sampler) as again:
                again.load_state_dict(state)
                assert epoch_ids(again) == second[first:]
                assert sampler.asked <= 2
                assert epoch_ids(again) == third
            loader.load_state_dict(state)
            assert epoch_ids(loader) == second[first:]
            assert epoch_ids(loader) == third
    with (
        hr.Loader(dataset, 30, transform=FLAT, sampler=[1, 2, 3]) as other,
        pytest.raises(errors.FailedPreconditionError, match="saved with a sampler that has st"),
    ):
        other.load_state_dict(within)


@pytest.mark.parametrize("key", ["sampler_last_hash", "sampler_last_epoch"])
def test_what_cannot_be_known_of_the_last_epoch_is_named(dataset: hr.Dataset, key: str) -> None:
    state = after_epochs(dataset, "distributed") | {key: [1]}
    with (
        make(dataset, "distributed", seed=5) as again,
        pytest.raises(errors.InvalidArgumentError, match=key),
    ):
        again.load_state_dict(state)


class Counts:
    """A sampler without an end, and with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.at += 1
            yield 7 * (self.at - 1) % COUNT

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize(
    "make",
    [Counts, lambda: RandomSampler(NUMBERS, generator=seeded(5)), lambda: range(COUNT)],
    ids=["endless", "random", "in order"],
)
@pytest.mark.parametrize("size", [10, COUNT + 9])
def test_epochs_of_any_size_of_any_sampler_go_on_at_every_step(
    make: Callable[[], Any], size: int, dataset: hr.Dataset
) -> None:
    def loader() -> hr.Loader[Any]:
        sampler = headrace.torch.EpochSampler(make(), size)
        return hr.Loader(dataset, 8, sampler=sampler, transform=FLAT)

    inner = make()
    keys = itertools.chain.from_iterable(itertools.repeat(inner))  # Pass after pass.
    expected = [list(itertools.islice(keys, size)) for _ in range(3)]
    assert [flat(epoch_ids(each)) for each in [loader()] * 3] == expected
    for step in range(-(-size // 8) + 1):
        before = loader()
        iterator = iter(before)
        for _ in range(step):
            next(iterator)
        after = loader()
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        rest = [expected[0][8 * step :]] if step < len(after) else []
        found = [flat(epoch_ids(after)) for _ in range(len(rest) + 2)]
        assert found == [*rest, *expected[1:]]
