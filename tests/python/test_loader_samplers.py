"""A sampler handed over: ids are torch's, one by one, and it is asked when torch would ask it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import COUNT, FLAT, epoch_ids
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import headrace as hr
from headrace import errors

NUMBERS = range(COUNT)  # the dataset, as torch's samplers see it
EPOCHS = 3


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(20)


SAMPLERS: dict[str, Callable[[], Any]] = {
    "sequential": lambda: SequentialSampler(NUMBERS),
    "random": lambda: RandomSampler(NUMBERS, generator=seeded()),
    "with replacement": lambda: RandomSampler(
        NUMBERS, replacement=True, num_samples=150, generator=seeded()
    ),
    "subset": lambda: SubsetRandomSampler([5, 3, 90, 41, 2, 60], generator=seeded()),
    "weighted": lambda: WeightedRandomSampler(
        torch.arange(COUNT, dtype=torch.float64), 80, generator=seeded()
    ),
    "list": lambda: [4, 4, 0, 96, 17],
    "tensor": lambda: torch.tensor([8, 6, 7, 5, 3, 0, 9]),
}


@pytest.fixture
def dataset(numbered: Path) -> hr.Dataset:
    return hr.open(numbered)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_ids_are_those_of_torch_with_the_same_sampler(
    dataset: hr.Dataset, name: str, drop_last: bool
) -> None:
    theirs = DataLoader(
        NUMBERS,  # type: ignore[arg-type]
        batch_size=4,
        sampler=SAMPLERS[name](),
        drop_last=drop_last,
    )
    with hr.Loader(
        dataset, batch_size=4, sampler=SAMPLERS[name](), drop_last=drop_last, transform=FLAT
    ) as loader:
        assert len(loader) == len(theirs)
        for _ in range(EPOCHS):
            assert epoch_ids(loader) == [batch.tolist() for batch in theirs]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_every_rank_gets_what_torch_s_distributed_sampler_gives_it(
    dataset: hr.Dataset, world_size: int, drop_last: bool
) -> None:
    for rank in range(world_size):

        def sampler(rank: int = rank) -> DistributedSampler[int]:
            return DistributedSampler(
                NUMBERS,  # type: ignore[arg-type]
                world_size,
                rank,
                seed=5,
                drop_last=drop_last,
            )

        theirs = sampler()
        with hr.Loader(
            dataset, batch_size=4, sampler=sampler(), drop_last=drop_last, transform=FLAT
        ) as loader:
            for epoch in range(2):
                theirs.set_epoch(epoch)
                loader.set_epoch(epoch)  # which passes it on
                expected = list(BatchSampler(theirs, 4, drop_last))
                assert epoch_ids(loader) == expected


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_batch_sampler_decides_the_batches(dataset: hr.Dataset, drop_last: bool) -> None:
    def sampler() -> BatchSampler:
        return BatchSampler(RandomSampler(NUMBERS, generator=seeded()), 9, drop_last)

    with hr.Loader(dataset, batch_sampler=sampler(), transform=FLAT) as loader:
        theirs = sampler()
        assert len(loader) == len(theirs)
        for _ in range(EPOCHS):
            assert epoch_ids(loader) == list(theirs)


def test_batches_of_a_batch_sampler_may_differ_in_size(dataset: hr.Dataset) -> None:
    batches = [[1, 2, 3], [4], [5, 5]]
    with hr.Loader(dataset, batch_sampler=batches, transform=FLAT) as loader:
        assert epoch_ids(loader) == batches
        assert epoch_ids(loader) == batches


class Asked:
    """A sampler that says how often it was asked for an epoch; without a length."""

    def __init__(self) -> None:
        self.times = 0

    def __iter__(self) -> Iterator[int]:
        self.times += 1
        yield from range(self.times, self.times + 10)


def test_a_sampler_is_asked_for_an_epoch_when_it_begins_and_not_earlier(
    dataset: hr.Dataset,
) -> None:
    sampler = Asked()
    with hr.Loader(dataset, batch_size=5, sampler=sampler, transform=FLAT) as loader:
        assert sampler.times == 0
        iteration = iter(loader)
        assert sampler.times == 1
        assert epoch_ids(iteration) == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
        assert sampler.times == 1
        assert len(list(loader)) == 2
        assert sampler.times == 2
        with pytest.raises(TypeError, match=r"Asked has no len\(\)"):
            len(loader)


def test_an_epoch_of_a_sampler_that_was_left_is_over(dataset: hr.Dataset) -> None:
    theirs = RandomSampler(NUMBERS, generator=seeded())
    with hr.Loader(
        dataset, batch_size=6, sampler=RandomSampler(NUMBERS, generator=seeded()), transform=FLAT
    ) as loader:
        for _ in loader:
            break
        next(iter(theirs))
        assert epoch_ids(loader) == list(BatchSampler(theirs, 6, False))


def test_an_empty_sampler_is_an_empty_epoch(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, sampler=[], transform=FLAT) as loader:
        assert list(loader) == []
        assert list(loader) == []
        assert loader.epoch == 2


@pytest.mark.parametrize(
    ("sampler", "kind", "message"),
    [
        ([0, COUNT], errors.OutOfRangeError, f"sample {COUNT}, the dataset has {COUNT}"),
        ([0, -1], errors.InvalidArgumentError, "gave -1"),
        ([0, "1"], errors.InvalidArgumentError, "gave '1'"),
        ([0, 1.0], errors.InvalidArgumentError, r"gave 1\.0"),
        ([0, True], errors.InvalidArgumentError, "gave True"),
    ],
)
def test_a_sampler_that_gives_no_sample_is_named(
    dataset: hr.Dataset, sampler: Any, kind: type[Exception], message: str
) -> None:
    with (
        hr.Loader(dataset, sampler=sampler, transform=FLAT) as loader,
        pytest.raises(kind, match=message),
    ):
        list(loader)


def test_batch_sampler_and_what_it_replaces_exclude_each_other(dataset: hr.Dataset) -> None:
    for argument in ({"batch_size": 2}, {"drop_last": True}, {"sampler": [1]}):
        with pytest.raises(errors.InvalidArgumentError, match="batch_sampler"):
            hr.Loader(dataset, batch_sampler=[[1]], **argument)


# State.


@pytest.mark.parametrize("name", ["random", "with replacement", "weighted", "list"])
def test_a_state_of_every_step_restores_to_the_same_remainder(
    dataset: hr.Dataset, name: str
) -> None:
    def make() -> hr.Loader:
        return hr.Loader(dataset, batch_size=30, sampler=SAMPLERS[name](), transform=FLAT)

    whole: list[list[int]] = []
    states = []
    with make() as loader:
        states.append(loader.state_dict())
        for _ in range(EPOCHS):
            for batch in epoch_by_batch(loader):
                whole.append(batch)
                states.append(loader.state_dict())
    for done, state in enumerate(states[:-1]):
        with make() as again:
            again.load_state_dict(json.loads(json.dumps(state)))
            assert remainder(again) == whole[done:], (done, state)


def test_a_state_of_a_distributed_sampler_restores_to_the_same_remainder(
    dataset: hr.Dataset,
) -> None:
    def make() -> hr.Loader:
        sampler: DistributedSampler[int] = DistributedSampler(
            NUMBERS,  # type: ignore[arg-type]
            2,
            1,
            seed=5,
        )
        return hr.Loader(dataset, batch_size=20, sampler=sampler, transform=FLAT)

    whole: list[list[int]] = []
    states = []
    with make() as loader:
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            states.append(loader.state_dict())
            for batch in epoch_by_batch(loader):
                whole.append(batch)
                states.append(loader.state_dict())
            states.pop()  # the next one's set_epoch() is the state after the last step
    for done, state in enumerate(states):
        with make() as again:
            again.load_state_dict(json.loads(json.dumps(state)))
            rest = []
            for epoch in range(state["epoch"], EPOCHS):
                again.set_epoch(epoch)
                rest += epoch_ids(again)
            assert rest == whole[done:], (done, state)


def test_a_state_of_another_sampler_is_refused(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=30, sampler=SAMPLERS["random"]()) as loader:
        next(iter(loader))
        state = loader.state_dict()
    other = RandomSampler(NUMBERS, generator=torch.Generator().manual_seed(21))
    with hr.Loader(dataset, batch_size=30, sampler=other) as again:
        again.load_state_dict(state)
        told = rf"other samples \(hash [0-9a-f]{{16}}\) .* \(hash {state['sampler_hash']}\)"
        with pytest.raises(errors.FailedPreconditionError, match=told):
            iter(again)
    with (
        hr.Loader(dataset, batch_size=30) as without,
        pytest.raises(errors.FailedPreconditionError, match="saved with a sampler"),
    ):
        without.load_state_dict(state)


def epoch_by_batch(loader: hr.Loader) -> Iterator[list[int]]:
    for batch in loader:
        yield epoch_ids([batch])[0]


def remainder(loader: hr.Loader) -> list[list[int]]:
    """What is left until the end of the last epoch."""
    rest = []
    while loader.epoch < EPOCHS:
        rest += epoch_ids(loader)
    return rest


def test_what_the_user_tells_a_sampler_after_a_restore_counts(dataset: hr.Dataset) -> None:
    def loader_and_sampler() -> tuple[hr.Loader, Any]:
        numbers: Any = NUMBERS
        sampler: Any = DistributedSampler(numbers, num_replicas=2, rank=1, seed=3)
        return hr.Loader(dataset, 8, sampler=sampler, transform=FLAT), sampler

    loader, sampler = loader_and_sampler()
    epoch_ids(loader)
    state = loader.state_dict()  # at the end of epoch 0
    sampler.set_epoch(1)
    second = epoch_ids(loader)

    again, sampler = loader_and_sampler()
    again.load_state_dict(state)
    sampler.set_epoch(1)
    assert epoch_ids(again) == second


class Batches:
    """A batch sampler without a batch size."""

    def __iter__(self) -> Iterator[list[int]]:
        yield list(range(40))
        yield list(range(40, 90))


def test_an_empty_batch_is_refused(dataset: hr.Dataset) -> None:
    loader = hr.Loader(dataset, batch_sampler=[[1, 2], [], [3]], transform=FLAT)
    with loader, pytest.raises(errors.InvalidArgumentError, match="batch 1 of the epoch is empty"):
        iter(loader)


def test_the_budget_is_divided_for_the_batches_that_a_batch_sampler_gives(
    dataset: hr.Dataset,
) -> None:
    transform = hr.image.train(64)
    with hr.Loader(dataset, batch_sampler=Batches(), transform=transform, memory="32MiB") as loader:
        assert sum(len(batch.label) for batch in loader) == 90
        assert loader.stats()["memory"]["beyond_peak"] == 0
    tight = hr.Loader(dataset, batch_sampler=Batches(), transform=transform, memory="2MiB")
    with tight, pytest.raises(errors.InvalidArgumentError, match="a batch of 50 samples takes"):
        iter(tight)


def test_a_state_can_be_saved_after_close_and_inside_an_iteration_that_set_epoch_does_not_touch(
    dataset: hr.Dataset,
) -> None:
    with hr.Loader(dataset, 8, output=hr.Output(fields=["label"])) as loader:
        iteration = iter(loader)
        next(iteration)
        loader.set_epoch(7)
        state = loader.state_dict()
        assert (state["epoch"], state["samples"]) == (0, 8)
        next(iteration)
    state = loader.state_dict()
    assert (state["epoch"], state["samples"]) == (0, 16)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: (i for i in range(4)),
        lambda: iter([4, 0]),
        lambda: map(int, [4, 0]),
        lambda: zip([4], [0], strict=True),
        lambda: itertools.islice(itertools.count(), 4),
    ],
)
@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_what_can_be_iterated_once_is_refused(
    dataset: hr.Dataset, name: str, sampler: Callable[[], Any]
) -> None:
    message = rf"{name}: got <.*>, which can be iterated once.* as {name}=list\(...\)"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.Loader(dataset, **{name: sampler()})


@pytest.mark.parametrize(
    ("name", "sampler", "says"),
    [
        (
            "batch_sampler",
            lambda: BatchSampler(iter(range(8)), 4, False),
            "batch_sampler: got <.*BatchSampler.*> around <range_iterator.*>, which can be itera",
        ),
        (
            "sampler",
            lambda: Wrapping(BatchSampler((i for i in range(8)), 4, False)),
            "sampler: got <.*Wrapping.*> around <generator.*>, which can be iterated once",
        ),
    ],
)
def test_what_can_be_iterated_once_is_refused_inside_another_sampler(
    dataset: hr.Dataset, name: str, sampler: Callable[[], Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=says):
        hr.Loader(dataset, **{name: sampler()})


class Wrapping:
    """Around another, as accelerators of torch do."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        return (sample for batch in self.sampler for sample in batch)


class Once:
    """Not an iterator, but gives the same one always."""

    def __init__(self, given: Iterator[Any]) -> None:
        self.given = given

    def __iter__(self) -> Iterator[Any]:
        return self.given


@pytest.mark.parametrize(
    ("name", "given"), [("sampler", [0, 1, 2]), ("batch_sampler", [[0, 1], [2]])]
)
def test_an_epoch_without_samples_after_one_with_some_is_an_error(
    dataset: hr.Dataset, name: str, given: list[Any]
) -> None:
    size = {"batch_size": 2} if name == "sampler" else {}
    with hr.Loader(dataset, **size, **{name: Once(iter(given))}, transform=FLAT) as loader:
        assert epoch_ids(loader) == [[0, 1], [2]]
        with pytest.raises(errors.InvalidArgumentError, match=rf"^{name}: Once gave no samples"):
            next(iter(loader))


def test_a_sampler_that_never_gives_samples_has_empty_epochs(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, 2, sampler=[]) as loader:
        assert [list(loader) for _ in range(2)] == [[], []]


@pytest.mark.parametrize("given", ["a", -1])
def test_an_error_names_the_argument_that_was_given(dataset: hr.Dataset, given: Any) -> None:
    with (
        hr.Loader(dataset, batch_sampler=[[given]]) as loader,
        pytest.raises(errors.InvalidArgumentError, match=r"^batch_sampler: gave "),
    ):
        next(iter(loader))


class Counting:
    """An iterator; `begins_anew`, or it is empty after its first epoch."""

    def __init__(self, *, begins_anew: bool) -> None:
        self.begins_anew, self.at = begins_anew, 0

    def __iter__(self) -> Counting:
        if self.begins_anew:
            self.at = 0
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at > 3:
            raise StopIteration
        return self.at


def test_an_iterator_that_begins_anew_is_a_sampler(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, 2, sampler=Counting(begins_anew=True), transform=FLAT) as loader:
        assert [epoch_ids(loader) for _ in range(2)] == [[[1, 2], [3]]] * 2


def test_an_iterator_that_does_not_begin_anew_is_an_error_in_the_second_epoch(
    dataset: hr.Dataset,
) -> None:
    with hr.Loader(dataset, 2, sampler=Counting(begins_anew=False), transform=FLAT) as loader:
        assert epoch_ids(loader) == [[1, 2], [3]]
        with pytest.raises(errors.InvalidArgumentError, match=r"Counting gave no samples .* anew"):
            next(iter(loader))


@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_a_sampler_without_an_end_is_refused(
    dataset: hr.Dataset, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace._loading import sampling

    monkeypatch.setattr(sampling, "_MORE_MAX", 100)

    class Endless:
        def __iter__(self) -> Iterator[Any]:
            return itertools.repeat(3 if name == "sampler" else [3, 4])

    given: dict[str, Any] = {name: Endless()}
    with (
        hr.Loader(dataset, transform=FLAT, **given) as loader,
        pytest.raises(errors.InvalidArgumentError, match=rf"{name}: Endless gave .* no end"),
    ):
        iter(loader)
