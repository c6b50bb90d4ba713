"""Map-style datasets whose samples say which they are."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from headrace.torch import DataLoader, sample_rng

WAYS: dict[str, dict[str, Any]] = {
    "direct": {},
    "threads": {"num_workers": 3, "worker_method": "thread"},
    "processes": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "pool": {"num_workers": 2, "pool_size": 5},
}
"""Every way to read a dataset."""


class Numbers(Dataset[Any]):
    """Sample i: a tensor of i, an array of 2 i, i, its text, and a dict."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        return (
            torch.full((2, 3), float(number)),
            np.full(4, 2 * number, np.int16),
            number,
            f"sample {number}",
            {"half": number / 2, "even": number % 2 == 0},
        )


class Draws(Numbers):
    """Samples that draw from every generator."""

    def __getitem__(self, number: int) -> Any:
        return number, torch.rand(2), np.random.random(), random.random(), sample_rng().random()


class Ragged(Numbers):
    """Sample i has i % 3 + 1 values."""

    def __getitem__(self, number: int) -> Any:
        return torch.full((number % 3 + 1,), number)


class Fails(Numbers):
    """Some samples raise."""

    def __init__(self, count: int, errors: dict[int, Callable[[], BaseException]]) -> None:
        super().__init__(count)
        self.errors = errors

    def __getitem__(self, number: int) -> Any:
        if number in self.errors:
            raise self.errors[number]()
        return number


class OnlyIds(Numbers):
    def __getitem__(self, number: int) -> int:
        return number


class Batches(OnlyIds):
    """Reads whole batches."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return [(number, len(numbers)) for number in numbers]


class Counting(Sampler[int]):
    """A sampler with a state, as torchdata's, which never ends."""

    def __init__(self, step: int, count: int) -> None:
        self.step, self.count, self.at = step, count, 0

    def __iter__(self) -> Iterator[int]:
        while True:
            number = self.at * self.step % self.count
            self.at += 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def plain(value: Any) -> Any:
    """A batch as values that can be compared, with types and dtypes."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.tolist())
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tolist())
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(each) for each in value])
    return value


def ids(loader: DataLoader | torch.utils.data.DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]
