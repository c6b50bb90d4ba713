"""Datasets with states, in the ways in which StatefulDataLoader knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

SIZES = (5, 23)
"""Samples of each of two workers: one ends early."""


def part() -> tuple[int, int]:
    """The first number, and the count, of the worker that asks."""
    info = get_worker_info()
    return (0, sum(SIZES)) if info is None else (sum(SIZES[: info.id]), SIZES[info.id])


class Reads:
    """A position that its owner can be asked for. A sample: its number, and how many the owner has
    read in its process."""

    def __init__(self) -> None:
        self.at = self.read = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]

    def sample(self) -> tuple[int, int]:
        first, count = part()
        if self.at >= count:
            raise StopIteration
        self.at += 1
        self.read += 1
        return first + self.at - 1, self.read


class OwnState(Reads, IterableDataset[Any]):
    """The dataset has the state, its iterator is a generator. Counts its passes."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        first, count = part()
        while self.at < count:
            self.at += 1
            self.read += 1
            yield first + self.at - 1, self.read, self.passes
        self.at = 0
        self.passes += 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "passes": self.passes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.passes = state["at"], state["passes"]


class Walk(Reads):
    """An iterator with a state."""

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> tuple[int, int]:
        return self.sample()


class StateOfIterator(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return Walk()


class Itself(Reads, IterableDataset[Any]):
    """A dataset that is its own iterator."""

    def __iter__(self) -> Itself:
        return self

    def __next__(self) -> tuple[int, int]:
        return self.sample()


class NoState(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        first, count = part()
        for number in range(count):
            yield first + number, number


class RandomWalk(Walk):
    """Draws from torch's generator, whose state is part of its own."""

    def __next__(self) -> tuple[int, int]:
        self.sample()
        return int(torch.randint(1000, ())), self.read

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "rng": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]
        torch.set_rng_state(state["rng"])


class RandomState(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return RandomWalk()


class RandomMap(Dataset[Any]):
    """A map-style dataset that draws from torch's generator, and saves it."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, number: int) -> Any:
        return number, int(torch.randint(1000, ()))

    def state_dict(self) -> dict[str, Any]:
        return {"rng": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["rng"])
