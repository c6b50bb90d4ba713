"""Iterable datasets: torch's batches, and a state at every step."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch.utils.data
from torch.utils.data import IterableDataset, get_worker_info

from headrace.errors import FailedPreconditionError
from headrace.torch import DataLoader

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


@pytest.mark.parametrize("is_left", [False, True])
def test_close_ends_persistent_workers(is_left: bool) -> None:
    batches = DataLoader(Plain(), 4, num_workers=2, persistent_workers=True)
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
