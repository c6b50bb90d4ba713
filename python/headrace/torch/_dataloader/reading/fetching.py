"""Reads the samples of a task and makes a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import Subset, default_collate

from headrace.torch._dataloader.epochs.seeds import begin_sample, end_sample
from headrace.torch._dataloader.reading import failures
from headrace.torch._dataloader.reading.contents import Content, offered
from headrace.torch._dataloader.reading.failures import ReadError


@dataclass(frozen=True)
class Job:
    """Samples to read together. Sent pickled to a process."""

    keys: Any
    """A list; or one key, without automatic batching."""
    batch: int
    first: int
    place: int
    """Of the first of them in the epoch."""
    base_seed: int
    contents: Sequence[Content | None] | None = None
    """What files of the samples hold, as far as they were read ahead."""

    def content(self, offset: int) -> Content | None:
        return None if self.contents is None else self.contents[offset]


@dataclass(frozen=True)
class Fetcher:
    """A user's dataset and collate_fn."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    batched: bool
    """Automatic batching: `collate_fn` gets a list of samples."""

    @property
    def reads_batches(self) -> bool:
        """Whether the dataset reads many samples at once better than one by one."""
        return self.batched and _reads_batches(self.dataset)

    @property
    def has_parts(self) -> bool:
        """Whether batches can be made of collated parts."""
        return self.batched and self.collate_fn is default_collate and not self.reads_batches

    def divided(self, job: Job) -> list[Job]:
        """The job as the smallest ones that can be read at the same time."""
        if not self.batched or self.reads_batches:
            return [job]
        return [
            replace(
                job,
                keys=[key],
                first=job.first + i,
                place=job.place + i,
                contents=job.contents and job.contents[i : i + 1],
            )
            for i, key in enumerate(job.keys)
        ]

    def read(self, job: Job, *, whole_process: bool) -> list[Any]:
        """The samples of a job, with the seeds of each.

        Raises: ReadError.
        """
        if not self.batched:
            return [self._one(job.keys, job, 0, whole_process)]
        if not self.reads_batches:
            return [self._one(key, job, i, whole_process) for i, key in enumerate(job.keys)]
        begin_sample(job.base_seed, job.place, whole_process=whole_process)
        try:
            return list(self.dataset.__getitems__(job.keys))
        except BaseException as error:
            keys = f"{len(job.keys)} samples from {job.keys[0]!r} on"
            raise ReadError(error, f"reading {keys} (batch {job.batch})") from error
        finally:
            end_sample()

    def _one(self, key: Any, job: Job, offset: int, whole_process: bool) -> Any:
        begin_sample(job.base_seed, job.place + offset, whole_process=whole_process)
        try:
            with offered(job.content(offset)):
                return self.dataset[key]
        except BaseException as error:
            doing = failures.reading(key, job.batch, job.first + offset)
            raise ReadError(error, doing) from error
        finally:
            end_sample()

    def collate(self, samples: list[Any], batch: int) -> Any:
        """The batch that the samples make.

        Raises: ReadError.
        """
        try:
            return self.collate_fn(samples if self.batched else samples[0])
        except BaseException as error:
            raise ReadError(error, failures.collating(batch), in_collate=True) from error


def _reads_batches(dataset: Any) -> bool:
    """torch's Subset has ``__getitems__`` for datasets that have none, too."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))


class PartsDifferError(Exception):
    """Parts of a batch have no common structure, dtype or shape, or one that `join` cannot make."""


FAILED: Any = object()
"""In place of a part that could not be collated: the whole batch may fail otherwise, or not."""


def join(parts: Sequence[Any]) -> Any:
    """One batch from parts that `default_collate` made.

    Raises: PartsDifferError.
    """
    first = parts[0]
    if any(part is FAILED for part in parts):
        raise PartsDifferError
    if len(parts) == 1:
        return first
    kind = type(first)
    if any(type(part) is not kind for part in parts):
        raise PartsDifferError
    if isinstance(first, torch.Tensor):
        if any(part.dtype != first.dtype or part.shape[1:] != first.shape[1:] for part in parts):
            raise PartsDifferError
        return torch.cat(list(parts))
    if kind is dict:
        if any(list(part) != list(first) for part in parts):
            raise PartsDifferError
        return {name: join([part[name] for part in parts]) for name in first}
    if kind is list or kind is tuple or hasattr(first, "_fields"):
        if first and all(isinstance(each, (str, bytes)) for part in parts for each in part):
            return kind(each for part in parts for each in part)  # text, one for each sample
        if any(len(part) != len(first) for part in parts):
            raise PartsDifferError
        members = [join(each) for each in zip(*parts, strict=True)]
        return kind(*members) if hasattr(first, "_fields") else kind(members)
    raise PartsDifferError
