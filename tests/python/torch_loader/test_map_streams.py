"""Iterable datasets: torch's batches, and a state at every step."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data
from loader_data import FLAT
from torch.utils.data import IterableDataset, get_worker_info

import headrace as hr
from headrace.errors import FailedPreconditionError
from headrace.torch import DataLoader, SampleStream

COUNT = 21


class Plain(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(worker, COUNT, workers)


class Shuffled(IterableDataset[int]):
    """Draws from torch's global generator."""

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(COUNT).tolist()


class WithState(IterableDataset[int]):
    def __init__(self) -> None:
        self.at = self.read = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < COUNT:
            self.at += 1
            self.read += 1
            yield self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Plain, Shuffled, WithState])
def test_batches_are_those_of_torch_and_go_on_at_every_step(
    kind: type[IterableDataset[int]], workers: int
) -> None:
    if kind is Shuffled and workers:
        pytest.skip("torch seeds its workers by the base seed only")

    def loader(own: bool = True) -> Any:
        made = DataLoader if own else torch.utils.data.DataLoader
        return made(kind(), 4, num_workers=workers)  # type: ignore[operator]

    torch.manual_seed(4)
    theirs = loader(own=False)
    expected = [[batch.tolist() for batch in theirs] for _ in range(2)]
    for step in range(0, len(expected[0]) + 1, 1 + 2 * (workers > 0)):
        torch.manual_seed(4)
        first = loader()
        iterator = iter(first)
        taken = [next(iterator).tolist() for _ in range(step)]
        assert taken == expected[0][:step]
        state = first.state_dict()
        del iterator
        torch.manual_seed(99)
        second = loader()
        second.load_state_dict(state)
        rest = [batch.tolist() for batch in second]
        assert rest == (expected[0][step:] or expected[1])
        if kind is WithState and not workers:
            assert second.dataset.read == sum(map(len, rest))  # Nothing is read twice.


def test_a_sample_stream_saves_the_state_of_its_loader(numbered: Path) -> None:
    expected: list[Any] = []
    for step in (0, 3):
        loader = hr.Loader(numbered, 8, transform=FLAT, seed=3)
        batches = DataLoader(SampleStream(loader), 8)
        if not expected:
            expected = [label.tolist() for _, label in DataLoader(SampleStream(loader), 8)]
            loader.set_epoch(0)
        iterator = iter(batches)
        taken = [next(iterator)[1].tolist() for _ in range(step)]
        assert taken == expected[:step]
        state = batches.state_dict()
        del iterator
        other = hr.Loader(numbered, 8, transform=FLAT, seed=3)
        resumed = DataLoader(SampleStream(other), 8)
        resumed.load_state_dict(state)
        assert [label.tolist() for _, label in resumed] == expected[step:]
        loader.close()
        other.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_stream_goes_on_with_the_next_epoch_after_the_end_of_one(
    numbered: Path, workers: int
) -> None:
    """In a new loader, and in the same one."""

    def labels(batches: DataLoader) -> list[Any]:
        return [label.tolist() for _, label in batches]

    def made() -> tuple[hr.Loader, DataLoader]:
        loader = hr.Loader(numbered, 8, transform=FLAT, seed=3)
        return loader, DataLoader(SampleStream(loader), 8, num_workers=workers)

    loader, batches = made()
    expected = [labels(batches)]
    state = batches.state_dict()
    expected += [labels(batches), labels(batches)]
    assert expected[0] != expected[1]
    other, resumed = made()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert labels(resumed) == expected[1]
    batches.load_state_dict(state)
    assert [labels(batches), labels(batches)] == expected[1:]
    loader.close()
    other.close()


def test_the_state_before_the_first_batch_is_that_of_the_stream(numbered: Path) -> None:
    loader = hr.Loader(numbered, 8, transform=FLAT, seed=3)
    stream = SampleStream(loader)
    stream.set_epoch(2)
    state = DataLoader(stream, 8).state_dict()
    expected = [label.tolist() for _, label in DataLoader(stream, 8)]
    with hr.Loader(numbered, 8, transform=FLAT, seed=3) as other:
        resumed = DataLoader(SampleStream(other), 8)
        resumed.load_state_dict(state)
        assert [label.tolist() for _, label in resumed] == expected
    loader.close()


def test_batches_of_a_sample_stream_do_not_overtake(numbered: Path) -> None:
    """Its state is a step."""
    with hr.Loader(numbered, 8, transform=FLAT, seed=3) as loader:
        batches = DataLoader(SampleStream(loader), 8, num_workers=2, in_order=False)
        assert batches.in_order


@pytest.mark.parametrize("is_left", [False, True])
def test_close_ends_persistent_workers_of_a_sample_stream(numbered: Path, is_left: bool) -> None:
    with hr.Loader(numbered, 8, transform=FLAT, seed=3) as loader:
        batches = DataLoader(SampleStream(loader), 8, num_workers=2, persistent_workers=True)
        gc.disable()
        try:
            iterator = iter(batches)
            next(iterator)
            if not is_left:
                list(iterator)
            assert len(multiprocessing.active_children()) >= 2
            batches.close()
            assert multiprocessing.active_children() == []
            with pytest.raises(FailedPreconditionError if is_left else StopIteration):
                next(iterator)
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("batch_size", "arguments", "told"),
    [
        (4, {"batch_size": 8}, "has batch_size 4 and the SampleStream's loader 8: a state is a st"),
        (None, {"batch_size": 8}, "has batch_size None and the SampleStream's loader 8"),
        (8, {"batch_sampler": [[1, 2], [3]]}, "loader batches of any size"),
    ],
)
def test_a_sample_stream_in_other_batches_than_its_loader_s_has_no_state(
    numbered: Path, batch_size: int | None, arguments: dict[str, Any], told: str
) -> None:
    """It would lose or repeat samples."""
    with hr.Loader(numbered, transform=FLAT, **arguments) as loader:
        batches = DataLoader(SampleStream(loader), batch_size)
        iterator = iter(batches)
        next(iterator)
        for _ in range(2):
            with pytest.raises(FailedPreconditionError, match=told):
                batches.state_dict()
            list(iterator)  # Also at the end.


def test_a_batch_sampler_of_one_size_has_states(numbered: Path) -> None:
    sampler = torch.utils.data.BatchSampler(range(20), 8, drop_last=False)
    with hr.Loader(numbered, transform=FLAT, batch_sampler=sampler) as loader:
        batches = DataLoader(SampleStream(loader), 8)
        next(iter(batches))
        assert batches.state_dict()["dataset"]["sampler_step"] == 1
