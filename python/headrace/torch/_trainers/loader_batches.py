"""A `headrace.Loader` as the source of a TrainerLoader: it divides the samples itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from headrace._dataset import epoch_samples
from headrace._loader import Loader, feed_of, mark_wrapped
from headrace._loading.cursor import Place
from headrace._loading.feed import BatchFeed
from headrace._loading.not_torchs import accelerate_state
from headrace.errors import InvalidArgumentError
from headrace.torch._devices.batches import DeviceBatches
from headrace.torch._trainers.facts import StepFacts, check_place, processes_of

_KIND = "headrace.Loader"


class LoaderBatches:
    """A loader's epochs. Where Accelerate runs, batches are on its device, and it knows the last.

    Thread safety: as the loader. Raises: as TrainerLoader.
    """

    remainder = -1  # Accelerate's "unknown": it would take padding for the end of what it gathers.

    def __init__(self, loader: Loader[Any], accelerator: Any) -> None:
        self.loader = loader
        self._feed = feed = feed_of(loader)
        options, size = feed.options, feed.options.batch_size
        place = (options.world_size, options.rank)
        self.facts = StepFacts(
            _KIND, epoch_samples(feed.dataset), size, size * feed.shares, options.drop_last, *place
        )
        self._batches: Any = loader
        self.device: torch.device | None = None
        self.pads: Any = SimpleNamespace(even_batches=True)  # The loader does, whatever is set.
        self._gradient_state: Any = None  # Accelerate's GradientState
        self._looping: int | None = None
        self.end_of_dataloader = False  # Accelerate reads it.
        self._accelerator = accelerator
        self._meet_accelerate()

    def _meet_accelerate(self) -> None:
        """Has batches put on Accelerate's device, from the time on when it runs."""
        state = accelerate_state() if self._accelerator is None else self._accelerator.state
        if self._gradient_state is not None or state is None:
            return
        if self._accelerator is not None or self._feed.source is None:
            _check_shares(self._feed, state)
        if self._accelerator is None or self._accelerator.device_placement:
            self.device = state.device
            self._batches = DeviceBatches(self.loader, state.device)
        mark_wrapped(self.loader)
        self._gradient_state = sys.modules["accelerate.state"].GradientState()

    def __len__(self) -> int:
        return len(self._feed)

    @property
    def epoch(self) -> int:
        return self.loader.epoch if self._looping is None else self._looping

    def iterate(self) -> Iterator[Any]:
        self._meet_accelerate()
        taken = iter(self._batches)
        begun = self._feed.cursor.at
        count = self._feed.cursor.length(begun.plan) - begun.step
        return taken if self._gradient_state is None else self._noted(taken, begun.epoch, count)

    def _noted(self, taken: Iterator[Any], epoch: int, count: int) -> Iterator[Any]:
        self.end_of_dataloader, self._looping = False, epoch
        self._gradient_state._add_dataloader(self)
        try:
            for number, batch in enumerate(taken, 1):
                self.end_of_dataloader = number == count
                yield batch
        finally:
            self._looping = None
            self._gradient_state._remove_dataloader(self)

    def go_to(self, step: int) -> Iterator[Any]:
        """The batches of the next epoch from a step."""
        feed = self._feed
        epoch, begins, _ = feed.cursor.start()
        check_place(_KIND, step, epoch, begins)
        if feed.source is None and begins != step:
            self.load_state_dict(feed.state_at(Place(epoch, step)))
            begins = step
        batches = self.iterate()
        for _ in range(begins, step):  # A state with a sampler needs the epoch that it drew.
            next(batches)
        return batches

    def pass_over(self) -> None:
        """Makes the epoch after the next one the next."""
        feed = self._feed
        epoch, begins, _ = feed.cursor.start()
        check_place(_KIND, len(feed), epoch, begins)
        if feed.cursor.is_restored:
            return  # A state of the end of an epoch is the beginning of the next, where it is.
        if feed.source is None:
            self.set_epoch(epoch + 1)
            return
        for _ in self.iterate():  # The sampler draws the epoch.
            feed.end_pass()
            break

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)

    def set_first_epoch(self, epoch: int) -> None:
        """As `set_epoch`, unless a batch was given or a state was loaded."""
        self._feed.set_epoch(epoch, of_new_loader=True)

    def state_dict(self) -> dict[str, Any]:
        return self._batches.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._batches.load_state_dict(state)


def _check_shares(feed: BatchFeed, state: Any) -> None:
    shares, same = processes_of(state)
    if feed.shares == shares:
        return
    remedy = (
        "give a sampler that divides them, as torch's DistributedSampler"
        if feed.source is not None
        else "make the loader after Accelerator(), without rank= and world_size=, and with "
        f"hr.Job(tensor={same}) for its tensor and context parallel ranks"
        if same > 1
        else "make the loader after Accelerator(), and leave rank= and world_size= out of job="
    )
    raise InvalidArgumentError(
        f"making a TrainerLoader: this headrace.Loader divides the samples by {feed.shares}, but "
        f"Accelerate has {shares} data-parallel processes, and leaves it to the loader: samples "
        f"would be lost or repeated; {remedy}; or iterate the headrace.Loader itself; "
        "`headrace docs trainers`"
    )
