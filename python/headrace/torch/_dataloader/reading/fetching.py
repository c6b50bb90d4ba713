"""Reads the samples of a task and makes a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import Subset, default_collate

from headrace.torch._dataloader.epochs.seeds import begin_sample, end_sample
from headrace.torch._dataloader.reading import failures
from headrace.torch._dataloader.reading.failures import ReadError
from headrace.torch._dataloader.reading.file_contents import FileContent, offered


@dataclass(frozen=True)
class Job:
    """Samples to read together."""

    keys: Any
    """As in `Drawn`, or a list of some of them."""
    batch: int
    first: int
    place: int
    """Of the first of them in the epoch."""
    base_seed: int
    contents: Sequence[FileContent | None] | None = None
    """What files of the samples hold, as far as they were read ahead."""

    def content(self, offset: int) -> FileContent | None:
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
    def has_rows(self) -> bool:
        """Whether batches can be made of parts that are read apart."""
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
        """The samples of a job, with the seeds of each; of a dataset that reads batches, what it
        gives for the job, alone.

        Raises: ReadError.
        """
        if not self.batched:
            return [self._one(job.keys, job, 0, whole_process)]
        if not self.reads_batches:
            return [self._one(key, job, i, whole_process) for i, key in enumerate(job.keys)]
        begin_sample(job.base_seed, job.place, whole_process=whole_process)
        try:
            return [self.dataset.__getitems__(job.keys)]
        except BaseException as error:
            keys = f"{len(job.keys)} samples from {next(iter(job.keys), None)!r} on"
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
            is_alone = not self.batched or self.reads_batches
            return self.collate_fn(samples[0] if is_alone else samples)
        except BaseException as error:
            raise ReadError(error, failures.collating(batch)) from error


def _reads_batches(dataset: Any) -> bool:
    """torch's Subset has ``__getitems__`` for datasets that have none, too."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))
