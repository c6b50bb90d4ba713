"""What Accelerator.prepare() makes of a Loader."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from headrace._loading.feed import EpochFeed
from headrace.errors import InvalidArgumentError
from headrace.torch._device import DeviceBatches


class PreparedBatches:
    """A loader's batches on Accelerate's device. Accelerate learns which one is the last.

    Thread safety: as the loader, which owns it.

    Raises:
        InvalidArgumentError: samples would be lost or repeated, as the loader has other ranks than
            Accelerate.
    """

    remainder = -1  # Accelerate's "unknown": it would take padding for the end of what it gathers.

    def __init__(self, loader: Any, feed: EpochFeed, plain: Any) -> None:
        """`plain(loader)` begins an iteration without Accelerate."""
        self._feed = feed
        state: Any = sys.modules["accelerate.state"]
        now = state.AcceleratorState()
        _check_shares(self._feed, now)
        self._told: Any = state.GradientState()
        self._batches = DeviceBatches(_Source(loader, self._feed, plain), now.device)
        self.end_of_dataloader = False
        """Whether the batch in the loop is the last of its epoch. Accelerate reads it."""
        self.epoch: int | None = None
        """The epoch in the loop, if one is."""

    def iterate(self) -> Iterator[Any]:
        """Begins the next epoch."""
        taken = iter(self._batches)
        begun = self._feed.cursor.at
        count = self._feed.cursor.length(begun.plan) - begun.step
        return self._noted(taken, begun.epoch, count)

    def _noted(self, taken: Iterator[Any], epoch: int, count: int) -> Iterator[Any]:
        self.end_of_dataloader, self.epoch = False, epoch
        self._told._add_dataloader(self)
        try:
            for number, batch in enumerate(taken, 1):
                self.end_of_dataloader = number == count
                yield batch
        finally:
            self.epoch = None
            self._told._remove_dataloader(self)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch that the loop received."""
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        self._batches.load_state_dict(state, strict)

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)


class _Source:
    """The loader as `DeviceBatches` reads it. Keeps no loader alive."""

    def __init__(self, loader: Any, feed: EpochFeed, plain: Any) -> None:
        self._loader = weakref.ref(loader)
        self._feed, self._plain = feed, plain
        self.state_dict = feed.state_dict
        self.load_state_dict = feed.load_state_dict
        self.set_epoch = feed.set_epoch

    def __len__(self) -> int:
        return len(self._feed)

    def __iter__(self) -> Iterator[Any]:
        made: Iterator[Any] = self._plain(self._loader())
        return made


def processes_of(state: Any) -> tuple[int, int]:
    """The data-parallel processes of Accelerate's state, and how many get the same batches."""
    parallel = getattr(state, "parallelism_config", None)
    same = int(parallel.non_data_parallel_size) if parallel is not None else 1
    return int(state.num_processes) // same, same


def _check_shares(feed: EpochFeed, state: Any) -> None:
    shares, same = processes_of(state)
    if feed.shares == shares:
        return
    remedy = (
        "give a sampler that divides them, as torch's DistributedSampler"
        if feed.source is not None
        else "make the loader after Accelerator(), without rank= and world_size=, and with "
        f"hr.Sharding(tensor={same}) for its tensor and context parallel ranks"
        if same > 1
        else "make the loader after Accelerator(), and leave out sharding="
    )
    raise InvalidArgumentError(
        f"accelerator.prepare(): this headrace.Loader divides the samples by {feed.shares}, but "
        f"Accelerate has {shares} data-parallel processes, and leaves it to the loader: samples "
        f"would be lost or repeated; {remedy}; or leave it out of prepare(); "
        "`headrace docs trainers`"
    )
