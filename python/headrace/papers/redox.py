"""Redox's and Brand's place in PyTorch (arXiv 2505.16280): training scripts keep torch's
DataLoader, "we only replace the underlying module" that fetches data.

>>> loader = hr.Loader("/data/pack", batch_size=256, order=hr.orders.Redox(), seed=1)
>>> fetcher = RedoxFetcher(loader, transform=prepare)
>>> batches = DataLoader(fetcher, batch_sampler=fetcher.sampler)

The fetcher is the papers' client: it receives the numbers of a batch and asks the server for its
samples; the loader, in this process or in its node process, is the server. In the papers each
worker of DataLoader's is a client; here `num_workers` is 0. The numbers are those of the samples
that the order answers with, not those that the papers' sampler requests: so they fit any dataset,
and a batch's labels are its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info
from torch.utils.data import Sampler as TorchSampler

from headrace import _core
from headrace._arguments import flag, integer, shown
from headrace._loader import Loader, feed_of
from headrace._loading.cursor import Cursor, Place
from headrace._loading.feed import BatchFeed
from headrace._loading.options import EPOCHS_MAX
from headrace._signature import named_arguments
from headrace._workers import Sample, batch_type, dict_type
from headrace._workers._options import check_was_made, for_function
from headrace._workers._output import SAMPLE_ID
from headrace._workers.samples.batch import BatchSamples
from headrace._workers.samples.sample import sample_hint
from headrace.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    TransformError,
    UnavailableError,
)

__all__ = ["RedoxFetcher", "RedoxSampler", "Requests"]


class Requests(list[int]):
    """The numbers of one batch's samples, and its place. To a map-style dataset it is a list."""

    epoch: int
    step: int
    iteration: int
    """the sampler's, counted from 1"""
    first: int
    """the step at which that iteration began"""
    ends_epoch: bool


class RedoxSampler(TorchSampler[list[int]]):
    """The batches of a loader's order, as numbers of samples, for torch's DataLoader.

    >>> sampler = RedoxSampler(loader)
    >>> batches = DataLoader(dataset, batch_sampler=sampler, num_workers=4)

    `dataset` is any map-style dataset with the same samples under the same numbers, as an
    ImageFolder of the folder that the loader reads. The loader reads nothing then. It may have any
    order, rank and node process, but no sampler. Each ``iter()`` is an epoch, as with a loader.

    Thread safety: none.
    """

    @named_arguments
    def __init__(self, loader: Loader[Any]) -> None:
        if not isinstance(loader, Loader):
            raise InvalidArgumentError(f"loader: got {shown(loader)}, must be a headrace.Loader")
        feed = feed_of(loader)
        if feed.source is not None:
            raise InvalidArgumentError(
                "loader: it has a sampler, which says the order; give that one to DataLoader"
            )
        self._loader = loader
        self._feed = feed
        self._cursor: Cursor[Any] = Cursor(feed.order.steps)
        self._begun: Place[Any] | None = None  # None: no iteration since the position was set
        self._iterations = 0
        self._follow: Callable[[Place[Any]], None] = lambda place: None
        self._take_place()

    def __iter__(self) -> Iterator[list[int]]:
        self._feed.check_open()
        cursor = self._cursor
        cursor.leave(cursor.iteration)
        start = cursor.start()
        epochs = self._feed.options.epochs
        if start.epoch >= epochs:
            raise FailedPreconditionError(
                f"iterating epoch {start.epoch}: the loader was made for epochs={epochs}; raise "
                "it, leave it out, or go back with set_epoch()"
            )
        self._follow(start)
        cursor.begin(start.epoch, start.step)
        self._begun = start
        self._iterations += 1
        return self._batches(start, cursor.iteration, self._iterations)

    def _batches(self, start: Place[Any], iteration: int, number: int) -> Iterator[list[int]]:
        planned = self._planned(start)
        while (batch := planned.next()) is not None:
            if iteration != self._cursor.iteration:
                raise FailedPreconditionError(
                    "this iteration of the sampler is over: a newer one was begun, or the "
                    "position was set; go on with that"
                )
            requests = Requests(batch[3])
            requests.epoch, requests.step, requests.ends_epoch = batch[:3]
            requests.iteration, requests.first = number, start.step
            self._cursor.gave(requests.epoch, requests.step, requests.ends_epoch)
            if requests.ends_epoch:
                self._cursor.end_epoch()
                yield requests
                return
            yield requests

    def _planned(self, start: Place[Any]) -> _core.RankBatches:
        options, place = self._feed.options, self._feed.order.place
        lane = (0, 1)  # A rank's batches do not depend on which ranks share its engine.
        if place is not None and options.order.exchanging_nodes > 1:  # Here they do.
            lane = (place.lane, place.seats.positions)
        return _core.RankBatches(
            self._feed.dataset.index,
            options,
            self._feed.order.parameters,
            lane,
            (start.epoch, start.step),
        )

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._feed.order.steps

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._cursor.start().epoch

    @named_arguments
    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self._cursor.go_to(integer("epoch", epoch, 0, EPOCHS_MAX - 1))
        self._begun = None

    @named_arguments
    def state_dict(self, batches: int) -> dict[str, Any]:
        """The training loop's position: a state of the Loader, for a Loader or a sampler.

        Args:
            batches: how many batches DataLoader returned in this iteration. DataLoader reads ahead,
                so only the loop knows.
        """
        begun = self._begun
        if begun is None:
            integer("batches, as no iteration has begun", batches, 0, 0)
            return self._feed.state_at(self._cursor.start())
        most = len(self) - begun.step
        step = begun.step + integer("batches", batches, 0, most)
        return self._feed.state_at(begun._replace(step=step))

    @named_arguments
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues at `state`, of a sampler or a Loader."""
        self._feed.load_state_dict(state)
        self._take_place()

    def _take_place(self) -> None:
        """Continues where the loader is."""
        place = self._feed.cursor.start()
        self._cursor = Cursor(self._feed.order.steps)
        self._cursor.restore(place.epoch, place.step)
        self._begun = None


class RedoxFetcher(Dataset[Any]):
    """Samples of a loader for torch's DataLoader, which asks for them by number, batch by batch.

    >>> fetcher = RedoxFetcher(loader, transform=prepare)
    >>> batches = DataLoader(fetcher, batch_sampler=fetcher.sampler)

    Batches are those of the loader, which reads ahead. DataLoader's `collate_fn` and `pin_memory`
    work as usual. The fetcher serves the training loop's process only: DataLoader has no workers,
    ``num_workers=0``. Positions and states are those of `sampler`; do not iterate the loader.

    Thread safety: as the loader, which it keeps.

    Args:
        loader: a Loader of any order, without a sampler and a Python transform.
        transform: gets one `headrace.Sample`, and returns whatever DataLoader's `collate_fn` takes.
            What it draws from ``sample.rng`` is fixed by seed, epoch and sample. Images are
            decoded; or it is a transform of torchvision or Albumentations: as the Loader's,
            `headrace docs workers`. Default: a sample is a named tuple of the loader's fields,
            tensors and numbers, with `sample_id` if it has ``Output(ids=True)``; a dict if its
            `fields` are one.
        decode: False: `transform` gets encoded bytes.

    Raises:
        InvalidArgumentError: names the invalid argument.
    """

    @named_arguments
    def __init__(
        self,
        loader: Loader[Any],
        transform: Callable[[Sample], Any] | None = None,
        *,
        decode: bool = True,
    ) -> None:
        sampler = RedoxSampler(loader)
        self._feed = feed_of(loader)
        self._make = _maker(self._feed, transform, decode=decode)
        sampler._follow = self._go_to
        self.sampler = sampler
        """The sampler for DataLoader's `batch_sampler`."""
        self._batches: Iterator[Any] = iter(())
        self._iteration = 0  # the sampler's, of `_batches`; 0: none
        self._closed = 0  # the newest that `close` ended
        self._next = 0  # step

    def __len__(self) -> int:
        """Samples of the dataset."""
        return len(self._feed.dataset)

    def __getitem__(self, number: int) -> Any:
        raise InvalidArgumentError(
            f"asking a RedoxFetcher for sample {shown(number)} alone: it gives whole batches of "
            "its own order: use DataLoader(fetcher, batch_sampler=fetcher.sampler)"
        )

    def __getitems__(self, requests: list[int]) -> list[Any]:
        """The samples of the next batch of `sampler`.

        Raises:
            InvalidArgumentError: `requests` are not the sampler's.
            FailedPreconditionError: they are not the next ones; the loader has other samples, or
                the iteration was closed; or a worker asks.
            UnavailableError: an error ended the iteration.
        """
        if get_worker_info() is not None:
            raise _not_for_workers("asking a RedoxFetcher for samples in a worker of DataLoader's")
        if not isinstance(requests, Requests):
            raise InvalidArgumentError(
                "asking a RedoxFetcher for a batch of another sampler: give DataLoader "
                "batch_sampler=fetcher.sampler, without shuffle, sampler and batch_size"
            )
        where = f"epoch {requests.epoch} step {requests.step}"
        if requests.iteration == self._closed:
            raise FailedPreconditionError(
                f"fetching {where}: this iteration was closed; iterate the DataLoader again"
            )
        begins = requests.iteration != self._iteration
        if begins:
            self._next = requests.first
        if requests.step != self._next:
            raise FailedPreconditionError(
                f"asking a RedoxFetcher for the batch of {where}, must be step {self._next}: it "
                "gives the sampler's batches in turn: to skip some, restore a place with "
                "sampler.load_state_dict()"
            )
        if begins:
            self._batches, self._iteration = self._feed.iterate(_unchanged), requests.iteration
        self._next += 1
        batch = next(self._batches, None)
        if batch is None:
            raise UnavailableError(
                f"fetching {where}: an error ended this iteration; iterate the DataLoader again"
            )
        if batch.samples().tolist() != list(requests):
            raise FailedPreconditionError(
                f"fetching {where}: the loader gave other samples: its position was set beside the "
                "sampler's; use sampler.set_epoch() or sampler.load_state_dict()"
            )
        if requests.ends_epoch:
            next(self._batches, None)  # The end: whoever leaves before it leaves early.
        return self._make(batch)

    def close(self) -> None:
        """Ends the iteration. The loader stays open."""
        self._closed = self._iteration or self._closed
        self._batches, self._iteration = iter(()), 0

    def _go_to(self, place: Place[Any]) -> None:
        """Makes the loader's next iteration begin here, if it would not anyway: it reads on at the
        end of an epoch."""
        at = self._feed.cursor.start()
        if (at.epoch, at.step) == (place.epoch, place.step):
            return
        if place.step == 0:
            self._feed.set_epoch(place.epoch)
        else:
            self._feed.load_state_dict(self._feed.state_at(place))

    def __reduce__(self) -> NoReturn:
        raise _not_for_workers("pickling a RedoxFetcher, as for a worker of DataLoader's")


def _not_for_workers(doing: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{doing}: the loader's batches come in the process that made it: give DataLoader "
        "num_workers=0; to run Python code in worker processes use "
        "hr.Loader(path, 256, transform=prepare, workers=4)"
    )


def _unchanged(batch: Any) -> Any:
    return batch


def _maker(
    feed: BatchFeed, transform: Callable[[Sample], Any] | None, *, decode: bool
) -> Callable[[Any], list[Any]]:
    """A function that makes the samples of a batch of the core. Checks the arguments."""
    delivers = feed.delivers
    if delivers.python:
        raise InvalidArgumentError(
            "loader: it has a Python transform or a collate_fn; give the transform here, and "
            "collate_fn to DataLoader"
        )
    check_was_made("transform", transform)
    if transform is not None and not callable(transform):
        raise InvalidArgumentError(f"transform: got {shown(transform)}, must be callable")
    flag("decode", decode)
    feed.check_open()
    library, decoded = for_function(transform, delivers.native, delivers.kinds, decode)
    samples = BatchSamples(delivers.schema, decoded, delivers.seed)
    function = library or transform
    if function is not None:
        return functools.partial(_transformed, samples, function)
    ids = [SAMPLE_ID] if delivers.ids else []
    if delivers.keys is None:
        made = batch_type([*samples.names, *ids])
    else:
        made = dict_type([*delivers.keys, *ids])
    return functools.partial(_plain, samples, made, with_ids=delivers.ids)


def _plain(
    samples: BatchSamples, made: Callable[..., Any], batch: Any, *, with_ids: bool
) -> list[Any]:
    """Samples without a transform."""
    columns = samples.columns(batch)
    if with_ids:
        columns.append(batch.samples().astype(np.int64))
    return [made(*map(_to_torch, values)) for values in zip(*columns, strict=True)]


def _to_torch(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_torch(entry) for entry in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _transformed(
    samples: BatchSamples, transform: Callable[[Sample], Any], batch: Any
) -> list[Any]:
    """Samples with a transform, whose error names the sample."""
    results: list[Any] = []
    inputs = samples.samples(batch)
    try:
        results.extend(map(transform, inputs))
    except (Exception, SystemExit) as error:
        slot = len(results)
        number = int(batch.samples()[slot])
        where = f"transforming epoch {batch.epoch} step {batch.step} slot {slot} sample {number}"
        if isinstance(error, SystemExit):  # It would end this process without a message.
            raise TransformError(f"{where}: SystemExit: {error}") from error
        error.add_note(where)
        hint = sample_hint(error)
        if hint is not None:
            error.add_note(hint)
        raise
    return results
