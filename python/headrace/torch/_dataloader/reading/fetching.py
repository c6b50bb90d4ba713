"""Reads the samples of a task and makes a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.utils.data import Subset, default_collate

from headrace.torch._dataloader.epochs.seeds import begin_sample, end_sample
from headrace.torch._dataloader.reading import failures
from headrace.torch._dataloader.reading.failures import ReadError
from headrace.torch._dataloader.reading.file_contents import FileContent, offered


class ReadRequest(NamedTuple):
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

    def divided(self, request: ReadRequest) -> list[ReadRequest]:
        """The request as the smallest ones that can be read at the same time."""
        if not self.batched or self.reads_batches:
            return [request]
        return [
            ReadRequest(
                [key],
                request.batch,
                request.first + i,
                request.place + i,
                request.base_seed,
                request.contents and request.contents[i : i + 1],
            )
            for i, key in enumerate(request.keys)
        ]

    def read(self, request: ReadRequest, *, whole_process: bool) -> list[Any]:
        """The samples of a request, with the seeds of each; of a dataset that reads batches, only
        what it gives for the request.

        Raises: ReadError.
        """
        if not self.batched:
            return [self._one(request.keys, request, 0, whole_process)]
        if not self.reads_batches:
            return [self._one(key, request, i, whole_process) for i, key in enumerate(request.keys)]
        begin_sample(request.base_seed, request.place, whole_process=whole_process)
        try:
            return [self.dataset.__getitems__(request.keys)]
        except BaseException as error:
            keys = f"{len(request.keys)} samples from {next(iter(request.keys), None)!r} on"
            raise ReadError(error, f"reading {keys} (batch {request.batch})") from error
        finally:
            end_sample()

    def _one(self, key: Any, request: ReadRequest, offset: int, whole_process: bool) -> Any:
        begin_sample(request.base_seed, request.place + offset, whole_process=whole_process)
        try:
            with offered(request.content(offset)):
                return self.dataset[key]
        except BaseException as error:
            doing = failures.reading(key, request.batch, request.first + offset)
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
