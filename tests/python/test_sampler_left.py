"""An epoch of a sampler that is left early: later epochs are torch's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import headrace as hr
from headrace import errors

COUNT = 50
DATA: Any = range(COUNT)
SIZE = 4


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(20)


def batched(drop_last: bool) -> BatchSampler:
    return BatchSampler(RandomSampler(DATA, True, 130, generator=seeded()), SIZE, drop_last)


Given = dict[str, Any]
SAMPLERS: dict[str, Callable[[], Given]] = {
    "permutation": lambda: {"sampler": RandomSampler(DATA, generator=seeded())},
    "replacement": lambda: {"sampler": RandomSampler(DATA, True, 130, generator=seeded())},
    "longer": lambda: {"sampler": RandomSampler(DATA, num_samples=130, generator=seeded())},
    "weighted": lambda: {
        "sampler": WeightedRandomSampler(torch.arange(50.0), 30, generator=seeded())
    },
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, 40), generator=seeded())},
    "global": lambda: {"sampler": RandomSampler(DATA)},
    "distributed": lambda: {"sampler": DistributedSampler(DATA, 2, 1, seed=3)},  # type: ignore[arg-type]
    "batches": lambda: {"batch_sampler": batched(drop_last=False)},
    "full batches": lambda: {"batch_sampler": batched(drop_last=True)},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> hr.Dataset:
    path = tmp_path_factory.mktemp("left") / "a.npy"
    np.save(path, np.arange(COUNT)[:, None])
    return hr.open(path)


def made(dataset: hr.Dataset, given: Given) -> hr.Loader[Any]:
    sized = {} if "batch_sampler" in given else {"batch_size": SIZE}
    return hr.Loader(dataset, output=hr.Output(ids=True), **sized, **given)


def theirs(given: Given) -> DataLoader[Any]:
    return DataLoader(DATA, **({} if "batch_sampler" in given else {"batch_size": SIZE}), **given)


def ids(batch: Any) -> list[int]:
    found: list[int] = (batch if isinstance(batch, torch.Tensor) else batch.sample_id).tolist()
    return found


def run(loader: Any, counts: Iterable[int | None]) -> list[list[list[int]]]:
    """The ids of epochs, each left after so many batches."""
    told = []
    for count in counts:
        told.append([])
        for batch in loader:
            told[-1].append(ids(batch))
            if len(told[-1]) == count:
                break
    return told


@pytest.mark.parametrize("count", [1, 3, 9, 13])
@pytest.mark.parametrize("name", SAMPLERS)
def test_later_epochs_are_torchs(dataset: hr.Dataset, name: str, count: int) -> None:
    counts = [None, count, None, count, 2, None]
    torch.manual_seed(1)
    expected = run(theirs(SAMPLERS[name]()), counts), torch.rand(1)
    torch.manual_seed(1)
    with made(dataset, SAMPLERS[name]()) as loader:
        assert (run(loader, counts), torch.rand(1)) == expected


def test_an_iteration_that_is_still_held_was_left_when_the_next_begins(dataset: hr.Dataset) -> None:
    told = []
    for make in (theirs, lambda given: made(dataset, given)):
        loader: Any = make(SAMPLERS["replacement"]())
        held = iter(loader)
        told.append([[ids(next(held)) for _ in range(5)], *run(loader, [None])])
    assert told[0] == told[1]


def test_two_loaders_that_share_a_generator_draw_in_the_order_of_torchs(
    dataset: hr.Dataset,
) -> None:
    told = []
    for make in (theirs, lambda given: made(dataset, given)):
        own = seeded()
        train, valid = (make({"sampler": RandomSampler(DATA, generator=own)}) for _ in range(2))
        told.append([run(each, [count]) for each in (train, valid) * 2 for count in (2, None)])
    assert told[0] == told[1]


def test_a_generator_that_others_draw_from_is_left_alone(dataset: hr.Dataset) -> None:
    own = seeded()
    with made(dataset, {"sampler": RandomSampler(DATA, generator=own)}) as loader:
        held = iter(loader)
        next(held)
        own.manual_seed(77)
        seen = run(loader, [None])
    again = RandomSampler(DATA, generator=torch.Generator().manual_seed(77))
    assert seen == run(theirs({"sampler": again}), [None])


@pytest.mark.parametrize("counts", [[2], [None, 5, 3], [1, None]])
@pytest.mark.parametrize("name", ["permutation", "replacement", "weighted", "batches"])
def test_a_state_after_it_goes_on(dataset: hr.Dataset, name: str, counts: list[int | None]) -> None:
    """In a new loader and in the same one, in an epoch and after it."""
    with made(dataset, SAMPLERS[name]()) as loader:
        run(loader, counts)
        held = iter(loader)
        next(held)
        within = json.loads(json.dumps(loader.state_dict()))
        rest = [ids(batch) for batch in held]
        between = json.loads(json.dumps(loader.state_dict()))
        later = run(loader, [2, None])
        for other in (loader, made(dataset, SAMPLERS[name]())):
            other.load_state_dict(within)
            assert run(other, [None, 2, None]) == [rest, *later]
            other.load_state_dict(between)
            assert run(other, [2, None]) == later


def test_a_state_of_other_generators_is_refused(dataset: hr.Dataset) -> None:
    with made(dataset, SAMPLERS["permutation"]()) as loader:
        run(loader, [2, None])
        state = loader.state_dict()
    assert len(state["sampler_generators"]) == 1
    with made(dataset, {"sampler": RandomSampler(DATA)}) as other:
        other.load_state_dict(state)
        with pytest.raises(
            errors.FailedPreconditionError,
            match="sampler that has 1 generators, restored with one that has 0: build it as before",
        ):
            next(iter(other))
    with made(dataset, SAMPLERS["permutation"]()) as other:
        for wrong in (5, ["?"], [7]):
            with pytest.raises(
                errors.InvalidArgumentError,
                match="must be a list of texts of base64",
            ):
                other.load_state_dict({**state, "sampler_generators": wrong})


def test_a_state_names_no_generators_if_no_epoch_was_left(dataset: hr.Dataset) -> None:
    """It stays as small as before."""
    with made(dataset, SAMPLERS["permutation"]()) as loader:
        run(loader, [None, None])
        assert "sampler_generators" not in loader.state_dict()
