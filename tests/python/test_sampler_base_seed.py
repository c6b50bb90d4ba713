"""torch's global generator: a Loader with a sampler draws from it what torch's DataLoader does."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_data import COUNT, FLAT, payload_ids, run_python
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import headrace as hr
from headrace import errors

NUMBERS: Any = range(COUNT)
EPOCHS = 3


class DrawsAtOnce:
    """A batch sampler that draws when `iter()` is called, not when its first batch is wanted."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([part.tolist() for part in torch.randperm(COUNT).split(20)])


def random(generator: torch.Generator | None = None) -> RandomSampler:
    return RandomSampler(NUMBERS, generator=generator)


SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "random": lambda: {"sampler": random(), "batch_size": 20},
    "with replacement": lambda: {
        "sampler": RandomSampler(NUMBERS, replacement=True, num_samples=70),
        "batch_size": 20,
    },
    "subset": lambda: {"sampler": SubsetRandomSampler(range(50)), "batch_size": 20},
    "weighted": lambda: {
        "sampler": WeightedRandomSampler(torch.ones(COUNT), 70),
        "batch_size": 20,
    },
    "batch sampler as a sampler's": lambda: {"batch_sampler": BatchSampler(random(), 20, False)},
    "batch sampler that draws at once": lambda: {"batch_sampler": DrawsAtOnce()},
    "generator of its own": lambda: {
        "sampler": random(torch.Generator().manual_seed(3)),
        "batch_size": 20,
    },
    "sequential": lambda: {"sampler": SequentialSampler(NUMBERS), "batch_size": 20},
    "list": lambda: {"sampler": [3, 1, 2], "batch_size": 2},
}


@pytest.fixture
def dataset(numbered: Path) -> hr.Dataset:
    return hr.open(numbered)


def of_torch(name: str, **options: Any) -> DataLoader[Any]:
    return DataLoader(NUMBERS, **SAMPLERS[name](), **options)


def of_headrace(dataset: hr.Dataset, name: str) -> hr.Loader:
    return hr.Loader(dataset, transform=FLAT, **SAMPLERS[name]())


def ids_and_draws(
    loader: Iterable[Any], ids: Callable[[Any], list[int]], epochs: int = EPOCHS
) -> list[list[int] | float]:
    """Ids of every batch, and between them what a training loop draws."""
    seen: list[list[int] | float] = []
    for _ in range(epochs):
        seen.append(torch.rand(()).item())
        for batch in loader:
            seen.append(ids(batch))
            seen.append(torch.rand(()).item())
    return seen


def numbers(batch: torch.Tensor) -> list[int]:
    return [int(number) for number in batch.tolist()]


@pytest.mark.parametrize("name", SAMPLERS)
def test_ids_and_the_users_own_draws_are_those_with_torchs_loader(
    dataset: hr.Dataset, name: str
) -> None:
    torch.manual_seed(11)
    theirs = ids_and_draws(of_torch(name), numbers)
    torch.manual_seed(11)
    with of_headrace(dataset, name) as loader:
        assert ids_and_draws(loader, payload_ids) == theirs


def test_they_are_those_with_workers_of_torch(dataset: hr.Dataset) -> None:
    torch.manual_seed(11)
    theirs = ids_and_draws(of_torch("random", num_workers=1), numbers, 2)
    gc.collect()  # Its workers have ended.
    torch.manual_seed(11)
    with of_headrace(dataset, "random") as loader:
        assert ids_and_draws(loader, payload_ids, 2) == theirs


def number(sample: hr.Sample) -> int:
    torch.rand(())  # In a worker: not the loop's generator.
    return sample.id


def test_they_are_those_with_a_python_transform_in_workers(dataset: hr.Dataset) -> None:
    torch.manual_seed(11)
    theirs = ids_and_draws(of_torch("random"), numbers)
    torch.manual_seed(11)
    with hr.Loader(dataset, transform=number, workers=1, **SAMPLERS["random"]()) as loader:
        assert ids_and_draws(loader, numbers) == theirs


def test_a_loader_without_a_sampler_draws_nothing(dataset: hr.Dataset) -> None:
    before = torch.get_rng_state()
    with hr.Loader(dataset, batch_size=20, transform=FLAT) as loader:
        list(loader)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_torch_imported_nothing_is_drawn(numbered: Path) -> None:
    run_python(
        "import sys\n"
        "import headrace as hr\n"
        "output = hr.Output('numpy', fields=['label'])\n"
        "with hr.Loader(sys.argv[1], sampler=[3, 1], output=output) as loader:\n"
        "    state = loader.state_dict()\n"
        "    assert len(list(loader)) == 2\n"
        "    after = loader.state_dict()\n"
        "with hr.Loader(sys.argv[1], sampler=[3, 1], output=output) as loader:\n"
        "    loader.load_state_dict(after)\n"
        "    assert len(list(loader)) == 2\n"
        "assert 'torch' not in sys.modules\n",
        numbered,
    )


# State.


def states_of(loader: hr.Loader, epochs: int) -> tuple[list[list[int]], list[dict[str, Any]]]:
    batches, states = [], []
    for _ in range(epochs):
        for batch in loader:
            batches.append(payload_ids(batch))
            states.append(json.loads(json.dumps(loader.state_dict())))
    return batches, states


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_run_that_begins_with_the_same_seed_restores_any_sampler(
    dataset: hr.Dataset, name: str
) -> None:
    torch.manual_seed(11)
    with of_headrace(dataset, name) as loader:
        batches, states = states_of(loader, EPOCHS)
    for done, state in enumerate(states, 1):
        torch.manual_seed(11)
        with of_headrace(dataset, name) as again:
            again.load_state_dict(state)
            rest = []
            while again.epoch < EPOCHS:
                rest += [payload_ids(batch) for batch in again]
            assert rest == batches[done:], done


@pytest.mark.parametrize(
    "name", ["random", "subset", "weighted", "batch sampler that draws at once"]
)
def test_what_the_global_generator_does_not_give_again_is_refused(
    dataset: hr.Dataset, name: str
) -> None:
    torch.manual_seed(11)
    with of_headrace(dataset, name) as loader:
        _, states = states_of(loader, 2)
    for state in states:
        torch.manual_seed(12)
        with of_headrace(dataset, name) as again:
            again.load_state_dict(state)
            with pytest.raises(errors.FailedPreconditionError, match="other samples"):
                iter(again)


def test_a_restore_leaves_a_generator_that_the_sampler_does_not_use_as_it_was_restored(
    dataset: hr.Dataset,
) -> None:
    name = "generator of its own"
    torch.manual_seed(11)
    with of_headrace(dataset, name) as loader:
        list(loader)
        iteration = iter(loader)
        next(iteration)
        state, generator = loader.state_dict(), torch.get_rng_state()
        list(iteration)
        list(loader)
        expected = torch.rand(())
    torch.manual_seed(12)
    with of_headrace(dataset, name) as again:
        again.load_state_dict(state)
        torch.set_rng_state(generator)
        list(again)
        list(again)
        assert torch.rand(()) == expected
