"""States of a DataLoader: at every step, in every way to read, twice in a row."""

from __future__ import annotations

import copy
import json
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from map_data import WAYS, Counting, Draws, Fails, OnlyIds, ids, plain
from torch.utils.data import DistributedSampler, RandomSampler, Sampler, WeightedRandomSampler

from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch import DataLoader

COUNT = 23
FAST = {name: WAYS[name] for name in ("direct", "threads")}
"""Ways that start no process: for tests with many loaders."""


def seeded(seed: int = 11) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class NumPys(Sampler[int]):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def __iter__(self) -> Any:
        yield from self.rng.permutation(COUNT).tolist()

    def __len__(self) -> int:
        return COUNT


def make(name: str, **how: Any) -> DataLoader:
    return DataLoader(**arguments_of(name), **how)


def arguments_of(name: str) -> dict[str, Any]:
    data = OnlyIds(COUNT)
    weights = torch.arange(COUNT) + 1.0
    lazy = seeded()
    endless = seeded()
    arguments: dict[str, dict[str, Any]] = {
        "in order": {"batch_size": 4},
        "shuffled": {"batch_size": 4, "shuffle": True},
        "generator": {"batch_size": 4, "shuffle": True, "generator": seeded()},
        "drop_last": {"batch_size": 4, "shuffle": True, "drop_last": True},
        "weighted": {"batch_size": 4, "sampler": WeightedRandomSampler(weights, 30)},
        "its own": {"batch_size": 4, "sampler": RandomSampler(data, generator=seeded())},
        "lazy": {
            "batch_size": 30,
            "sampler": RandomSampler(data, True, 100, generator=lazy),
            "generator": lazy,
        },
        "NumPy": {"batch_size": 4, "sampler": NumPys()},
        "one by one": {"batch_size": None, "shuffle": True, "generator": seeded()},
        "endless": {
            "batch_size": 4,
            "shuffle": True,
            "generator": endless,
            "epoch_size": 17,
        },
        "endless global": {"batch_size": 4, "shuffle": True, "epoch_size": 30},
        "counting": {"batch_size": 4, "sampler": Counting(5, COUNT), "epoch_size": 14},
    }
    return {"dataset": data, **arguments[name]}


NAMES = [
    *("in order", "shuffled", "generator", "drop_last", "weighted", "its own", "lazy", "NumPy"),
    *("one by one", "endless", "endless global", "counting"),
]
EPOCHS = 3


def straight(name: str, **how: Any) -> list[list[Any]]:
    """The batches of each epoch without a stop."""
    torch.manual_seed(1)
    loader = make(name, **how)
    epochs = [[plain(batch) for batch in loader] for _ in range(EPOCHS)]
    loader.close()
    return epochs


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(state)))


def pickled(loader: DataLoader) -> Any:
    return pickle.loads(pickle.dumps(loader))


@pytest.mark.parametrize("way", FAST)
@pytest.mark.parametrize("name", NAMES)
def test_a_loader_goes_on_at_every_step(name: str, way: str) -> None:
    """In a new loader, and then again in a third, after one batch; with nothing lost or repeated
    in this epoch and the next ones."""
    expected = straight(name, **FAST[way])
    steps = [(epoch, step) for epoch in range(2) for step in range(len(expected[epoch]) + 1)]
    for epoch, step in steps:
        torch.manual_seed(1)
        first = make(name, **FAST[way])
        for _ in range(epoch):
            list(first)
        iterator = iter(first)
        for _ in range(step):
            next(iterator)
        state = through_json(first.state_dict())
        torch.manual_seed(77)  # Another process.
        second = make(name, **FAST[way])
        second.load_state_dict(state)
        assert through_json(second.state_dict()) == state
        iterator = iter(second)
        batches = [plain(next(iterator))]
        state = through_json(second.state_dict())
        torch.manual_seed(78)
        third = make(name, **FAST[way])
        third.load_state_dict(state)
        if step == len(expected[epoch]):
            epoch, step = epoch + 1, 0
        if step + 1 < len(expected[epoch]):
            batches += [plain(batch) for batch in third]
        assert batches == expected[epoch][step:]
        for later in range(epoch + 1, EPOCHS):
            assert [plain(batch) for batch in third] == expected[later], (epoch, step, later)


@pytest.mark.parametrize("way", ["processes", "persistent", "pool"])
@pytest.mark.parametrize("step", [0, 2, 6])
def test_processes_go_on_where_a_direct_loader_was(way: str, step: int) -> None:
    def loader(**how: Any) -> DataLoader:
        return DataLoader(OnlyIds(COUNT), 4, shuffle=True, generator=seeded(), **how)

    with_workers = loader(**WAYS[way])
    expected = [[plain(batch) for batch in with_workers] for _ in range(2)]
    with_workers.close()
    first = loader(**WAYS[way])
    iterator = iter(first)
    for _ in range(step):
        next(iterator)
    state = through_json(first.state_dict())
    del iterator
    first.close()
    second = loader()
    second.load_state_dict(state)
    third = loader(**WAYS[way])
    third.load_state_dict(state)
    for each in (second, third):
        if each is second and way == "persistent" and step == 6:
            continue  # Without persistent workers torch draws a seed before this epoch's order.
        rest = [plain(batch) for batch in each]
        assert rest == (expected[0][step:] if step < 6 else expected[1])
        each.close()


@pytest.mark.parametrize("way", ["processes", "pool"])
def test_what_samples_draw_goes_on_as_well(way: str) -> None:
    """The base seed is the epoch's."""
    how = WAYS["processes"] if way == "processes" else {"num_workers": 1}

    def loader() -> DataLoader:
        return DataLoader(Draws(COUNT), 4, shuffle=True, **how)

    torch.manual_seed(1)
    expected = [plain(batch) for batch in loader()]
    torch.manual_seed(1)
    first = loader()
    iterator = iter(first)
    next(iterator)
    state = first.state_dict()
    del iterator
    second = loader()
    second.load_state_dict(state)
    assert [plain(batch) for batch in second] == expected[1:]


@pytest.mark.parametrize("way", FAST)
def test_a_loader_rolls_back_to_its_own_state(way: str) -> None:
    loader = make("generator", **FAST[way])
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [plain(batch) for batch in iterator]
    for _ in range(2):
        loader.load_state_dict(state)
        assert [plain(batch) for batch in loader] == rest
    following = [plain(batch) for batch in loader]
    loader.load_state_dict(state)
    assert [plain(batch) for batch in loader] == rest
    assert [plain(batch) for batch in loader] == following


def test_the_global_generator_that_the_user_restored_is_kept() -> None:
    torch.manual_seed(1)
    loader = make("shuffled")
    iterator = iter(loader)
    next(iterator)
    torch.rand(3)
    state, rng = loader.state_dict(), torch.get_rng_state()
    expected = [plain(batch) for batch in iterator], float(torch.rand(()))
    again = make("shuffled")
    torch.set_rng_state(rng)
    again.load_state_dict(state)
    assert ([plain(batch) for batch in again], float(torch.rand(()))) == expected


def test_a_sampler_drives_the_epoch() -> None:
    def loader(rank: int) -> DataLoader:
        return DataLoader(OnlyIds(COUNT), 4, sampler=DistributedSampler(range(COUNT), 2, rank))

    expected = []
    for epoch in range(4):
        first = loader(1)
        first.set_epoch(epoch)
        expected.append([plain(batch) for batch in first])
    first = loader(1)
    first.set_epoch(2)
    iterator = iter(first)
    next(iterator)
    second = loader(1)
    second.load_state_dict(through_json(first.state_dict()))
    assert second.sampler.epoch == 2  # type: ignore[union-attr]
    second.set_epoch(2)  # The loop sets it again, and keeps the place.
    assert [plain(batch) for batch in second] == expected[2][1:]
    second.set_epoch(3)
    assert [plain(batch) for batch in second] == expected[3]
    second.load_state_dict(first.state_dict())
    second.set_epoch(1)  # Another one: the state is left.
    assert [plain(batch) for batch in second] == expected[1]


@pytest.mark.parametrize("way", FAST)
def test_a_sampler_s_epoch_may_be_set_after_a_restored_iteration_began(way: str) -> None:
    """As Lightning does, where the state is that of the beginning of an epoch."""

    def loader() -> DataLoader:
        sampler = DistributedSampler(range(COUNT), 2, 1)
        return DataLoader(OnlyIds(COUNT), 4, sampler=sampler, **FAST[way])

    expected = []
    for epoch in range(3):
        first = loader()
        first.set_epoch(epoch)
        expected.append([plain(batch) for batch in first])
    first = loader()
    list(first)
    second = loader()
    second.load_state_dict(through_json(first.state_dict()))
    iterator = iter(second)
    assert len(iterator) == len(expected[1])
    second.sampler.set_epoch(1)  # type: ignore[union-attr]
    assert [plain(batch) for batch in iterator] == expected[1]
    assert second.state_dict()["epoch"] == 2
    second.set_epoch(2)
    assert [plain(batch) for batch in second] == expected[2]


def test_a_state_is_refused_by_another_kind_of_sampler() -> None:
    """One that has epochs, or has none: another order would begin from the start, silently."""
    share = DistributedSampler(range(COUNT), 2, 1)
    own = {"sampler": share, "batch_size": 4}
    for one, other in ((own, {"batch_size": 4, "shuffle": True}), ({"batch_size": 4}, own)):
        first, second = DataLoader(OnlyIds(COUNT), **one), DataLoader(OnlyIds(COUNT), **other)
        next(iter(first))
        with pytest.raises(FailedPreconditionError, match="state: saved with a sampler"):
            second.load_state_dict(first.state_dict())


def test_set_epoch_is_refused_where_it_means_nothing() -> None:
    """And a trainer sees that there is nothing to set."""
    with pytest.raises(AttributeError, match="set_epoch: RandomSampler has no set_epoch: its ord"):
        make("generator").set_epoch(3)
    assert not hasattr(make("generator"), "set_epoch")


@pytest.mark.parametrize("way", FAST)
def test_a_batch_that_failed_is_not_counted_until_a_later_one_came(way: str) -> None:
    data = Fails(12, {5: lambda: KeyError("five")})
    loader = DataLoader(data, 4, **FAST[way])
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError):
        next(iterator)
    state = loader.state_dict()
    assert (state["batches"], state["samples"], state["ahead"]) == (1, 4, [])
    assert next(iterator).tolist() == [8, 9, 10, 11]
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)
    again = DataLoader(OnlyIds(12), 4, **FAST[way])
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == [[4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("every", [1, 3])
def test_a_sampler_with_a_state_is_not_drawn_from_the_beginning(every: int) -> None:
    def loader() -> DataLoader:
        return DataLoader(
            OnlyIds(COUNT), batch_sampler=ByState(), snapshot_every_n_steps=every, **FAST["threads"]
        )

    expected = [plain(batch) for batch in loader()]
    for step in range(len(expected)):
        first = loader()
        iterator = iter(first)
        for _ in range(step):
            next(iterator)
        second = loader()
        second.load_state_dict(through_json(first.state_dict()))
        assert [plain(batch) for batch in second] == expected[step:]
        assert second.batch_sampler.asked <= len(expected) - step // every * every  # type: ignore[union-attr]


class ByState(Sampler[list[int]]):
    """Seven batches; counts those asked for."""

    def __init__(self) -> None:
        self.at = self.asked = 0

    def __iter__(self) -> Any:
        while self.at < 7:
            self.at += 1
            self.asked += 1
            yield [self.at, self.at + 1]
        self.at = 0

    def __len__(self) -> int:
        return 7

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Globals(Sampler[int]):
    """Draws from Python's global generator, of which no state is kept."""

    def __iter__(self) -> Any:
        yield from random.sample(range(COUNT), COUNT)

    def __len__(self) -> int:
        return COUNT


def test_a_sampler_that_gives_other_samples_is_refused() -> None:
    first = DataLoader(OnlyIds(COUNT), 4, sampler=Globals())
    iterator = iter(first)
    next(iterator)
    second = DataLoader(OnlyIds(COUNT), 4, sampler=Globals())
    second.load_state_dict(first.state_dict())
    with pytest.raises(FailedPreconditionError, match="restoring epoch 0 after 1 batches: the sam"):
        iter(second)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "state: of version 9, this headrace reads version 1"),
        (
            {"batch_size": 5},
            "saved with batch_size 5, restored in a DataLoader with 4: .*; give it batch_size=5$",
        ),
        (
            {"batch_size": None},
            "saved with batch_size None, restored in a DataLoader with 4: its batches would differ;"
            " give it the batch_sampler= of the run that saved the state, or batch_size=None if "
            "that run had it$",
        ),
        (
            {"length": 3},
            "state: saved with length 3, .* with 23: .*; give it the dataset that the state",
        ),
        ({"epoch": -1}, r"state epoch: got -1, must be in \[0"),
        ({"mark": None}, "state: 'mark' is missing"),
        ({"mark": 7}, "state: mark is 7, must be a text or None"),
        ({"global_now": []}, r"state: global_now is \[\], must be a text or None"),
        ({"base_seed": "x"}, "state base_seed: got 'x'"),
        ({"base_seed": 10**30}, r"state base_seed: got .*, must be in \[0"),
        ({"ahead": None}, "state: ahead is None, must be a list of numbers of batches"),
        ({"ahead": ["x"]}, "state ahead: got 'x'"),
    ],
)
def test_a_state_of_something_else_is_refused(change: dict[str, Any], message: str) -> None:
    loader = make("generator")
    state = loader.state_dict() | change
    state = {name: value for name, value in state.items() if value is not None or name != "mark"}
    with pytest.raises((InvalidArgumentError, FailedPreconditionError), match=message):
        loader.load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match="got list without a version"):
        loader.load_state_dict([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("saved", "restored", "generators"),
    [
        ("generator", "in order", "saved with torch, restored with none"),
        ("in order", "NumPy", "saved with none, restored with NumPy"),
        ("generator", "NumPy", "saved with torch, restored with NumPy"),
    ],
)
def test_a_state_of_other_generators_is_refused(saved: str, restored: str, generators: str) -> None:
    state = make(saved).state_dict() | {"length": make(restored).state_dict()["length"]}
    loader = make(restored)
    loader.load_state_dict(state)
    with pytest.raises(FailedPreconditionError, match=generators + "; give the same shuffle="):
        next(iter(loader))


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("origin", "generators", None, "state: origin generators is None, must be a list"),
        ("origin", "generators", ["x"], "state: origin generators is 'x', must be the state of a"),
        ("origin", "global_state", None, "state: origin global_state is None, must be the state"),
        ("origin", "global_state", "AAAA", "state: origin global_state is 'AAAA', must be the"),
        ("origin", "epoch", "x", "state origin epoch: got 'x', must be an integer"),
        ("origin", "new", 1, "state: origin is .* must have generators, global_state, epoch, samp"),
        (None, "origin", 5, "state: origin is 5, must have generators, global_state"),
        (None, "snapshot", [1], r"state: snapshot is \[1\], must have batches, place, mark, state"),
        (None, "kept_seed", -1, "state kept_seed: got -1"),
    ],
)
def test_a_damaged_state_is_refused_by_name(
    part: str | None, name: str, value: Any, message: str
) -> None:
    loader = make("generator")
    next(iter(loader))
    state = loader.state_dict()
    (state if part is None else state[part])[name] = value
    with pytest.raises(InvalidArgumentError, match=message):
        make("generator").load_state_dict(state)


class Advances(Sampler[int]):
    """Sets its next epoch when a pass ends, as Accelerate's SeedableRandomSampler."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        yield from torch.randperm(COUNT, generator=seeded(self.epoch)).tolist()
        self.set_epoch(self.epoch + 1)

    def __len__(self) -> int:
        return COUNT


@pytest.mark.parametrize("how", FAST.values(), ids=FAST)
@pytest.mark.parametrize("batch_size", [4, 12])
def test_a_sampler_that_sets_its_next_epoch_itself_begins_with_the_first(
    batch_size: int, how: dict[str, Any]
) -> None:
    """Also where the whole pass is read ahead, and at every step of two epochs."""

    def made() -> DataLoader:
        return DataLoader(OnlyIds(COUNT), batch_size, sampler=Advances(), **how)

    sampler = Advances()
    theirs = torch.utils.data.DataLoader(OnlyIds(COUNT), batch_size, sampler=sampler)
    expected = [batch.tolist() for _ in range(2) for batch in theirs]
    loader = made()
    found, states = [], [loader.state_dict()]
    for _ in range(2):
        for batch in loader:
            found.append(batch.tolist())
            states.append(loader.state_dict())
    assert found == expected
    for step, state in enumerate(states[:-1]):
        again = made()
        again.load_state_dict(state)
        rest = [batch.tolist() for batch in again]
        if step < len(theirs):
            rest += [batch.tolist() for batch in again]
        assert rest == expected[step:], step


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, pickled], ids=lambda each: each.__name__
)
def test_a_copy_reads_as_the_loader_that_was_iterated(way: str, copied: Any) -> None:
    loader = DataLoader(OnlyIds(COUNT), 4, **WAYS[way])
    expected = ids(loader)
    iterator = iter(loader)
    next(iterator)
    other = copied(loader)
    assert ids(other) == expected
    assert [batch.tolist() for batch in iterator] == expected[1:]
    assert ids(loader) == expected
    for each in (loader, other):
        each.close()
