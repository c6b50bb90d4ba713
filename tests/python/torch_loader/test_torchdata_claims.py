"""What torchdata's tests claim of StatefulDataLoader, of headrace.torch.DataLoader.

docs/design/torch-dataloader.md lists the claims, and what does not hold, with the reason.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stateful_data as data
import torch.utils.data
from map_data import OnlyIds, plain
from torch.utils.data import IterableDataset, RandomSampler, Sampler

from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch import DataLoader

KINDS = {
    "own state": data.OwnState,
    "state of its iterator": data.StateOfIterator,
    "its own iterator": data.Itself,
    "no state": data.NoState,
    "random": data.RandomState,
}
WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "workers": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
}


def numbers(batches: Any) -> list[Any]:
    return [
        batch[0].tolist() if isinstance(batch[0], torch.Tensor) else batch[0] for batch in batches
    ]


def with_states(loader: DataLoader) -> tuple[list[Any], list[dict[str, Any]]]:
    """An epoch, and the state before each batch and at the end."""
    iterator = iter(loader)
    batches, states = [], [loader.state_dict()]
    for batch in iterator:
        batches.append(batch)
        states.append(loader.state_dict())
    return batches, states


def rest_of(make: Callable[[], DataLoader], state: dict[str, Any]) -> list[Any]:
    loader = make()
    loader.load_state_dict(state)
    batches = list(loader)
    loader.close()
    return batches


@pytest.mark.parametrize("way", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_iterable_dataset_goes_on_at_any_step(kind: str, way: str) -> None:
    """Its state is taken with each batch, and nothing that was delivered is read again."""

    def make() -> DataLoader:
        return DataLoader(KINDS[kind](), 4, generator=torch.Generator(), **WORKERS[way])

    torch.manual_seed(3)
    first = make()
    batches, states = with_states(first)
    first.close()
    expected = numbers(batches)
    if kind != "random":
        theirs = torch.utils.data.DataLoader(KINDS[kind](), 4, **WORKERS[way])
        assert expected == numbers(theirs)
    for step in (1, 3, len(expected) - 1):
        torch.manual_seed(50 + step)
        rest = rest_of(make, states[step])
        assert numbers(rest) == expected[step:]
        if kind not in ("no state", "random"):  # The second value: how many were read for it.
            assert rest[0][1].tolist()[0] == 1


@pytest.mark.parametrize("batch_size", [None, 4])
def test_states_are_taken_every_some_steps_and_batches_since_are_read_again(
    batch_size: int | None,
) -> None:
    def make() -> DataLoader:
        return DataLoader(
            data.OwnState(), batch_size, num_workers=2, snapshot_every_n_steps=3, collate_fn=same
        )

    batches, states = with_states(make())
    for step in (2, 7):
        rest = rest_of(make, states[step])
        assert [ids(batch) for batch in rest] == [ids(batch) for batch in batches[step:]]
        worker = states[step]["dataset"]["parts"][1]
        assert worker["at"] == worker["batches"] // 3 * 3


def same(samples: Any) -> Any:
    return samples


def ids(batch: Any) -> list[int]:
    return [sample[0] for sample in batch] if isinstance(batch, list) else [batch[0]]


@pytest.mark.parametrize("way", WORKERS)
@pytest.mark.parametrize("kind", ["own state", "no state", "map", "shuffled map"])
def test_the_state_before_the_first_batch_repeats_the_epoch_in_the_same_loader(
    kind: str, way: str
) -> None:
    made: Any = KINDS[kind]() if kind in KINDS else OnlyIds(30)
    shuffle = True if kind == "shuffled map" else None
    loader = DataLoader(made, 4, shuffle=shuffle, **WORKERS[way])
    iterator = iter(loader)
    state = loader.state_dict()
    expected = [plain(batch) for batch in iterator]
    loader.load_state_dict(state)
    found = [plain(batch) for batch in loader]
    loader.close()
    if kind == "own state":  # Their second column counts what a process has read.
        assert [batch[1][0] for batch in found] == [batch[1][0] for batch in expected]
    else:
        assert found == expected


@pytest.mark.parametrize("way", WORKERS)
@pytest.mark.parametrize("every", [1, 15])
def test_a_shuffled_epoch_that_was_interrupted_is_the_one_that_is_repeated(
    every: int, way: str
) -> None:
    """Also what the dataset draws from torch's generator: its state without workers, else a seed
    for each sample."""
    loader = DataLoader(
        data.RandomMap(), 4, shuffle=True, snapshot_every_n_steps=every, **WORKERS[way]
    )
    iterator = iter(loader)
    begin = loader.state_dict()
    batches = [plain(next(iterator)) for _ in range(4)]
    loader.load_state_dict(loader.state_dict())
    batches += [plain(batch) for batch in loader]
    assert len(batches) == 8
    loader.load_state_dict(begin)
    assert [plain(batch) for batch in loader] == batches
    loader.close()


@pytest.mark.parametrize("way", WORKERS)
@pytest.mark.parametrize("kind", ["own state", "map"])
def test_the_state_at_the_end_is_the_beginning_of_the_next_epoch(kind: str, way: str) -> None:
    """Loaded by a loader that has begun something else, too. A dataset that lasts for several
    epochs keeps what it counts."""

    def make() -> DataLoader:
        made: Any = data.OwnState() if kind == "own state" else data.RandomMap()
        return DataLoader(made, 4, shuffle=None if kind == "own state" else True, **WORKERS[way])

    torch.manual_seed(3)
    first = make()
    list(first)
    state = first.state_dict()
    expected = [plain(batch) for batch in first]
    first.close()
    second = make()
    iterator = iter(second)
    next(iterator)
    del iterator
    second.load_state_dict(state)
    found = [plain(batch) for batch in second]
    second.close()
    if kind == "map":
        assert found == expected
    else:
        passes = 0 if way == "workers" else 1
        assert [(batch[1][0], batch[1][2][2]) for batch in found] == [
            (batch[1][0], [passes] * len(batch[1][0][2])) for batch in expected
        ]


@pytest.mark.parametrize(("saved", "restored"), [(0, 2), (2, 0), (2, 1)])
def test_another_number_of_workers_is_refused_for_iterable_datasets_only(
    saved: int, restored: int
) -> None:
    def states(made: Any) -> list[dict[str, Any]]:
        return with_states(DataLoader(made, 4, num_workers=saved))[1]

    for kind in (data.OwnState, data.NoState):
        loader = DataLoader(kind(), 4, num_workers=restored)
        with pytest.raises(
            FailedPreconditionError, match=f"saved with num_workers {saved}, restored .* {restored}"
        ):
            loader.load_state_dict(states(kind())[2])
    loader = DataLoader(OnlyIds(30), 4, num_workers=restored)
    loader.load_state_dict(states(OnlyIds(30))[2])
    assert next(iter(loader)).tolist() == [8, 9, 10, 11]
    with pytest.raises(InvalidArgumentError, match="the part of the dataset"):
        DataLoader(data.NoState(), 4).load_state_dict(
            states(data.NoState())[2] | {"dataset": {"workers": 0}}
        )


@pytest.mark.parametrize("every", [1, 17])
def test_a_state_right_after_a_restore_knows_the_workers_that_gave_nothing_since(
    every: int,
) -> None:
    def make() -> DataLoader:
        return DataLoader(data.OwnState(), 2, num_workers=2, snapshot_every_n_steps=every)

    batches, states = with_states(make())
    expected = numbers(batches)
    second = make()
    second.load_state_dict(states[5])
    iterator = iter(second)
    assert numbers([next(iterator)]) == expected[5:6]
    assert numbers(rest_of(make, second.state_dict())) == expected[6:]
    third = make()
    third.load_state_dict(states[5])
    iterator = iter(third)  # It has read a batch ahead.
    assert numbers(rest_of(make, third.state_dict())) == expected[5:]


@pytest.mark.parametrize("workers", [0, 2])
def test_states_are_json_if_those_of_the_dataset_are(workers: int) -> None:
    for made in (data.OwnState, data.NoState):

        def make(made: Any = made) -> DataLoader:
            return DataLoader(made(), 4, num_workers=workers)

        batches, states = with_states(make())
        rest = rest_of(make, json.loads(json.dumps(states[2])))
        assert numbers(rest) == numbers(batches)[2:]


def test_the_state_of_a_dataset_that_is_its_own_iterator_is_saved_once() -> None:
    for kind, dataset, iterator in (
        (data.Itself, True, False),
        (data.StateOfIterator, False, True),
        (data.OwnState, True, False),
    ):
        loader = DataLoader(kind(), 4)
        next(iter(loader))
        (part,) = loader.state_dict()["dataset"]["parts"]
        assert (part["dataset"] is not None, part["iterator"] is not None) == (dataset, iterator)


def test_it_runs_beside_torchs_own_loader() -> None:
    ours = DataLoader(OnlyIds(30), 4, num_workers=1)
    theirs = torch.utils.data.DataLoader(OnlyIds(30), 4, num_workers=1)
    both = [(mine.tolist(), other.tolist()) for mine, other in zip(ours, theirs, strict=True)]
    assert [mine for mine, _ in both] == [other for _, other in both]


class Yielded(Sampler[int]):
    """A distributed sampler whose state is how many it has given; it loads into the next pass."""

    def __init__(self) -> None:
        self.given = 0
        self.next: int | None = None

    def __iter__(self) -> Iterator[int]:
        self.given = 0
        if self.next is not None:
            self.given, self.next = self.next, None
        for number in range(self.given, 30):
            self.given += 1
            yield number

    def __len__(self) -> int:
        return 30

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["given"]


class StateOfSamplersIterator(Sampler[int]):
    """A sampler whose iterator has the state: the keys are drawn again instead."""

    def __iter__(self) -> Iterator[Any]:
        return iter(data.Walk())

    def __len__(self) -> int:
        return sum(data.SIZES)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_with_a_state_goes_on(workers: int) -> None:
    def make() -> DataLoader:
        return DataLoader(OnlyIds(30), 4, sampler=Yielded(), num_workers=workers)

    batches, states = with_states(make())
    for step in (0, 1, 5, 7):
        rest = rest_of(make, json.loads(json.dumps(states[step])))
        assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in batches[step:]]


def test_a_sampler_whose_iterator_has_a_state_goes_on() -> None:
    def make() -> DataLoader:
        return DataLoader(Firsts(), 4, sampler=StateOfSamplersIterator())

    batches, states = with_states(make())
    assert len(batches) == 7
    assert [plain(batch) for batch in rest_of(make, states[3])] == [
        plain(batch) for batch in batches[3:]
    ]


class Firsts(OnlyIds):
    def __init__(self) -> None:
        super().__init__(28)

    def __getitem__(self, key: Any) -> int:
        return int(key[0])


class Endless(Sampler[int]):
    """Counts up for ever."""

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            yield number % 30
            number += 1


def test_an_endless_sampler_goes_on() -> None:
    def make() -> DataLoader:
        return DataLoader(OnlyIds(30), 4, sampler=Endless())

    first = make()
    iterator = iter(first)
    batches = [next(iterator).tolist() for _ in range(12)]
    assert batches[8] == [2, 3, 4, 5]
    loader = make()
    loader.load_state_dict(first.state_dict())
    assert next(iter(loader)).tolist() == [18, 19, 20, 21]


def test_processes_that_have_started_end_if_another_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = multiprocessing.process.BaseProcess.start
    begun: list[int] = []

    def start(self: Any) -> None:
        if len(begun) == 1:
            raise OSError("no more processes")
        begin(self)
        begun.append(self.pid)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start)
    with pytest.raises(OSError, match="no more processes"):
        iter(DataLoader(OnlyIds(30), 4, num_workers=2))
    for pid in begun:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len(begun) == 1


def test_an_error_of_an_iterable_dataset_does_not_end_the_loop() -> None:
    """As with torch's: the next batch can be asked for."""
    loader = DataLoader(FailsOnce(), 2)
    theirs = torch.utils.data.DataLoader(FailsOnce(), 2)
    outcomes = []
    for iterator in (iter(loader), iter(theirs)):
        found: list[Any] = []
        for _ in range(3):
            try:
                found.append(next(iterator).tolist())
            except KeyError:
                found.append("KeyError")
        outcomes.append(found)
    assert outcomes[0] == outcomes[1] == [[0, 1], "KeyError", [3, 4]]


class FailsOnce(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        self.at = -1
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 2:
            raise KeyError("two")
        return self.at


def test_workers_know_the_users_dataset_and_call_the_users_init_fn() -> None:
    loader = DataLoader(data.OwnState(), 4, num_workers=2, worker_init_fn=begin_at)
    assert numbers(loader) == [
        [2, 3, 4],
        [7, 8, 9, 10],
        *([n, n + 1, n + 2, n + 3] for n in (11, 15, 19)),
        [23, 24, 25, 26],
        [27],
    ]


def begin_at(worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.at = 2  # type: ignore[attr-defined]


def test_a_random_sampler_of_its_own_generator_goes_on() -> None:
    def make() -> DataLoader:
        sampler = RandomSampler(range(30), generator=torch.Generator().manual_seed(13))
        return DataLoader(data.RandomMap(), 7, sampler=sampler, num_workers=2)

    batches, states = with_states(make())
    for step in (1, 4):
        assert [plain(batch) for batch in rest_of(make, states[step])] == [
            plain(batch) for batch in batches[step:]
        ]
