"""Datasets whose samples lie where the engine can read them: headrace's own, Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace._dataset import Dataset, open_dataset
from headrace.errors import HeadraceError
from headrace.formats._huggingface import open_datasets


class NativeSource(NamedTuple):
    """A dataset as the engine opens it."""

    base: Dataset
    numbers: Callable[[Sequence[int]], list[int]]
    """The base's numbers of samples. Raises: IndexError."""


def native_source(leaf: Any) -> NativeSource | None:
    """None: the engine cannot read it."""
    if type(leaf) is Dataset:
        return NativeSource(leaf, lambda keys: _counted(keys, len(leaf)))
    if (
        open_datasets.kind_of(leaf) != "Dataset"
        or type(leaf).__module__.partition(".")[0] != "datasets"
    ):
        return None  # Such as a class of the user's, which may give other samples.
    try:
        base = open_dataset(open_datasets.all_rows(leaf))
        mapping = open_datasets.mapping_of(leaf)
    except (HeadraceError, OSError):
        return None
    count = len(leaf)
    if mapping is None:
        return NativeSource(base, lambda keys: _counted(keys, count))
    rows = np.concatenate([*mapping, np.empty(0, np.int64)])
    return NativeSource(base, lambda keys: rows[_counted(keys, count)].tolist())


def leaf_facts(leaf: Any) -> object:
    """What samples of a dataset depend on: other facts, other samples."""
    if open_datasets.kind_of(leaf) != "Dataset":
        return id(leaf)
    return id(leaf), leaf._fingerprint, repr(leaf.format)


def _counted(keys: Sequence[int], count: int) -> list[int]:
    """Numbers from the beginning."""
    numbers = [key + count if key < 0 else key for key in keys]
    if numbers and not 0 <= min(numbers) <= max(numbers) < count:
        wrong = next(key for key in keys if not -count <= key < count)
        raise IndexError(f"sample {wrong}: the dataset has {count:,}")
    return numbers
