"""The datasets that one is made of by torch's Subset, random_split and ConcatDataset."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.utils.data import ConcatDataset, Subset

PARTS_MAX = 16
"""Datasets that one may be made of, for the engine to read: each has a Loader, with memory and
threads of its own."""
WRONG_KEY = (LookupError, TypeError, ValueError)
"""Errors for keys that name no sample, or are no numbers."""


class LeafPlace(NamedTuple):
    """Where a sample is."""

    leaf: int
    number: int
    """In the leaf; negative ones count from its end."""


class Composition:
    """Which samples of which datasets the keys of a dataset name.

    Thread safety: none needed; it changes nothing.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.leaves: list[Any] = []
        """The datasets that hold samples themselves, each once."""
        _collect(dataset, self.leaves)
        self._leaf_of = {id(leaf): number for number, leaf in enumerate(self.leaves)}

    def places(self, keys: Sequence[int]) -> list[LeafPlace]:
        """Raises one of `WRONG_KEY` for keys that the dataset may refuse."""
        dataset = self._dataset
        while type(dataset) is Subset:
            keys = [dataset.indices[key] for key in keys]
            dataset = dataset.dataset
        if type(dataset) is ConcatDataset:
            return [self._place(dataset, key) for key in keys]
        leaf = self._leaf_of[id(dataset)]
        return [LeafPlace(leaf, _whole(key)) for key in keys]

    def _place(self, dataset: Any, key: int) -> LeafPlace:
        while True:
            if type(dataset) is Subset:
                key, dataset = dataset.indices[key], dataset.dataset
            elif type(dataset) is ConcatDataset:
                dataset, key = _part(dataset, _whole(key))
            else:
                return LeafPlace(self._leaf_of[id(dataset)], _whole(key))


def _whole(key: Any) -> int:
    if isinstance(key, bool):
        raise TypeError(f"key {key}")
    return operator.index(key)


def _part(dataset: ConcatDataset[Any], key: int) -> tuple[Any, int]:
    """The part that has a sample, and its key there."""
    if key < 0:
        if -key > len(dataset):
            raise ValueError("absolute value of index should not exceed dataset length")
        key += len(dataset)
    ends = dataset.cumulative_sizes
    number = bisect.bisect_right(ends, key)
    return dataset.datasets[number], key - (ends[number - 1] if number else 0)


def _collect(dataset: Any, leaves: list[Any]) -> None:
    if type(dataset) is Subset:
        _collect(dataset.dataset, leaves)
    elif type(dataset) is ConcatDataset:
        for part in dataset.datasets:
            _collect(part, leaves)
    elif all(dataset is not leaf for leaf in leaves):
        leaves.append(dataset)
