"""Redox's and Brand's place in PyTorch (arXiv 2505.16280): training scripts keep torch's DataLoader
and its workers, "we only replace the underlying module" that fetches data.

>>> loader = hr.Loader("/data/pack", batch_size=256, order=hr.orders.Redox(), seed=1)
>>> fetcher = RedoxFetcher(loader, transform=prepare)
>>> batches = DataLoader(fetcher, batch_sampler=fetcher.sampler, num_workers=4)

A worker is the papers' client: it receives the numbers of a batch and asks the server for its
samples; the loader, in this process or in its node process, is the server. The numbers are those of
the samples that the order answers with, not those that the papers' sampler requests: so they fit
any dataset, and a batch's labels are its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset, get_worker_info
from torch.utils.data import Sampler as TorchSampler

from headrace import _core
from headrace._arguments import integer, shown
from headrace._loader import Loader, feed_of
from headrace._loading.cursor import Cursor, Place
from headrace._loading.options import EPOCHS_MAX
from headrace._signature import named_arguments
from headrace._workers import Sample
from headrace.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from headrace.torch import SampleStream

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
        self._restore: Callable[[Mapping[str, Any]], None] = feed.load_state_dict
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
        self._restore(state)
        self._take_place()

    def _take_place(self) -> None:
        """Continues where the loader is."""
        place = self._feed.cursor.start()
        self._cursor = Cursor(self._feed.order.steps)
        self._cursor.restore(place.epoch, place.step)
        self._begun = None


@dataclass
class _Progress:
    """One process's part of an iteration."""

    iteration: int
    step: int
    """of its next batch"""
    samples: Iterator[Any]


class RedoxFetcher(Dataset[Any]):
    """Samples of a loader for torch's DataLoader, which asks for them by number, batch by batch.

    >>> fetcher = RedoxFetcher(loader, transform=prepare)
    >>> batches = DataLoader(fetcher, batch_sampler=fetcher.sampler, num_workers=4)

    Batches are those of the loader, for any number of workers. DataLoader's `collate_fn`,
    `pin_memory`, `persistent_workers`, ... are as ever; `in_order=False` is refused. Positions and
    states are those of `sampler`; do not iterate the loader.

    Args:
        loader: a Loader of any order, without a sampler and a Python transform.
        transform, decode: as of `headrace.torch.SampleStream`.
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
        self._stream = SampleStream(loader, transform, decode=decode)
        self._feed: Any = feed_of(loader)
        self._count = len(loader.dataset)
        sampler._follow, sampler._restore = self._go_to, self._stream.load_state_dict
        self._sampler: RedoxSampler | None = sampler
        # By process: a forked worker must not end the iteration of the process that it copies.
        self._progress: dict[int, _Progress] = {}

    @property
    def sampler(self) -> RedoxSampler:
        """The sampler for DataLoader's `batch_sampler`."""
        if self._sampler is None:
            raise FailedPreconditionError(
                "a RedoxFetcher in a worker has no sampler; ask for it in the process that made it"
            )
        return self._sampler

    def __len__(self) -> int:
        """Samples of the dataset."""
        return self._count

    def __getitem__(self, number: int) -> Any:
        raise InvalidArgumentError(
            f"asking a RedoxFetcher for sample {shown(number)} alone: it gives whole batches of "
            "its own order: use DataLoader(fetcher, batch_sampler=fetcher.sampler)"
        )

    def __getitems__(self, requests: list[int]) -> list[Any]:
        """The samples of a batch of `sampler`."""
        if not isinstance(requests, Requests):
            raise InvalidArgumentError(
                "asking a RedoxFetcher for a batch of another sampler: give DataLoader "
                "batch_sampler=fetcher.sampler, without shuffle, sampler and batch_size"
            )
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        progress = self._progress.get(os.getpid())
        if progress is None or progress.iteration != requests.iteration:
            progress = _Progress(requests.iteration, requests.first + number, iter(self._stream))
            self._progress[os.getpid()] = progress
        if requests.step != progress.step:
            raise FailedPreconditionError(
                f"worker {number} of {workers} was asked for the batch of epoch {requests.epoch} "
                f"step {requests.step}, must be step {progress.step}: DataLoader has to ask its "
                "workers in turn: leave out in_order=False"
            )
        progress.step += workers
        samples = list(itertools.islice(progress.samples, len(requests)))
        if len(samples) < len(requests):
            raise UnavailableError(
                f"fetching epoch {requests.epoch} step {requests.step}: got {len(samples)} of "
                f"{len(requests)} samples: this iteration has ended, by an error or by a newer "
                "one; iterate it again"
            )
        if requests.ends_epoch:
            next(progress.samples, None)  # The end: whoever leaves before it leaves early.
        return samples

    def close(self) -> None:
        """Ends the workers' connections. The loader stays open."""
        self._stream.close()

    def _go_to(self, place: Place[Any]) -> None:
        """Makes the loader's next iteration begin here, if it would not anyway: it reads on at the
        end of an epoch."""
        at = self._feed.cursor.start()
        if (at.epoch, at.step) == (place.epoch, place.step):
            return
        if place.step == 0:
            self._stream.set_epoch(place.epoch)
        else:
            self._stream.load_state_dict(self._feed.state_at(place))

    def __getstate__(self) -> dict[str, Any]:
        """For a worker: what connects to the loader, not the loader."""
        return {
            "_stream": self._stream,
            "_feed": None,
            "_count": self._count,
            "_sampler": None,
            "_progress": {},
        }
