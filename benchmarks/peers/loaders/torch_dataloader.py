"""torch's DataLoader: a map-style dataset and its own random sampler.

Samples of 100 KB and images are files of a folder, as torchvision's ImageFolder has them; records
are ranges of one file, read by `pread` without read-ahead. Whole batches are fetched at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from loaders import common

FORMAT = "source"  # the generated files themselves


def shuffle(task: common.Task) -> str:
    return "permutation of all samples"


def choices(task: common.Task) -> list[common.Settings]:
    return common.WORKERS


def prepare(source: common.Source, folder: Path) -> None:
    """Nothing to write."""


class _Samples(Dataset[Any]):
    def __init__(self, task: common.Task) -> None:
        self._task = task

    @cached_property
    def _records(self) -> int:
        """The open file, in the process that reads it."""
        fd = os.open(self._task.source.path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def __len__(self) -> int:
        return len(self._task.source)

    def _read(self, sample: int) -> bytes:
        if size := self._task.source.record_bytes:
            return os.pread(self._records, size, sample * size)
        with open(self._task.source.files[sample], "rb", buffering=0) as file:  # type: ignore[attr-defined]
            return file.read()

    def __getitems__(self, samples: list[int]) -> Any:
        return common.to_tensors([self._read(sample) for sample in samples], self._task.images)


def _as_it_is(batch: Any) -> Any:
    return batch


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    torch.set_num_threads(1)
    loader = DataLoader(
        _Samples(task),
        batch_size=task.batch,
        shuffle=True,
        num_workers=task.workers,
        collate_fn=_as_it_is,
        persistent_workers=task.workers > 0,
        prefetch_factor=task.prefetch,
    )
    while True:
        yield (common.of_tensors(batch, task.images) for batch in loader)
