"""Checks that loaders which Accelerate prepared lose no samples of a stream."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from headrace.errors import FailedPreconditionError
from headrace.torch._feed import BatchFeed

_DOING = "iterating a DataLoader of Accelerate's"


class Reader(NamedTuple):
    """One of Accelerate's loaders, while it iterates a stream in this process."""

    divides_over: int  # number of processes; 1: each keeps everything that it reads
    how: str
    skips: int  # batches at the start


def checked_reader(server: object, feed: BatchFeed) -> Reader | None:
    """Accelerate's loader that iterates the stream of this server and feed, if there is one.

    Raises FailedPreconditionError if samples would be lost.
    """
    reader = _reader(server)
    if reader is None:
        return None
    if reader.divides_over > 1 and feed.shares > 1:
        raise FailedPreconditionError(
            f"{_DOING}: accelerator.prepare() has it divide what it reads over "
            f"{reader.divides_over} processes ({reader.how}), and this stream is one rank's share "
            f"of {feed.shares} already: samples would be lost; leave the DataLoader out of "
            "prepare(), or make the headrace.Loader with hr.Sharding(rank=0, world_size=1) on "
            "every process, for Accelerate to divide; `headrace docs trainers`"
        )
    epoch, step = feed.cursor.told or (0, 0)
    if reader.skips and step:
        raise FailedPreconditionError(
            f"{_DOING}: it skips the first {reader.skips} batches, and the stream goes on after "
            f"batch {step} of epoch {epoch} already, by load_state_dict(): "
            "samples would be lost; do one of both: with Hugging Face's Trainer do not load a "
            "state, or have it skip nothing: TrainingArguments(ignore_data_skip=True)"
        )
    return reader


def check_epoch(server: object, feed: BatchFeed, epoch: int) -> None:
    """Raises if Accelerate's loader counts epochs itself and so undoes the stream's set_epoch()."""
    told = feed.cursor.told[0] if feed.cursor.told is not None else epoch
    if checked_reader(server, feed) is not None and told != epoch:
        raise FailedPreconditionError(
            f"{_DOING}: it begins epoch {epoch}, but the stream continues in epoch {told}, "
            "by load_state_dict() or set_epoch(): samples would be repeated; tell the prepared "
            f"DataLoader, too: set_epoch({told})"
        )


def _reader(server: object) -> Reader | None:
    """The loaders being iterated, which Accelerate keeps. Imports nothing."""
    state: Any = sys.modules.get("accelerate.state")
    gradient: Any = getattr(state, "GradientState", None)
    if gradient is None or not getattr(gradient, "_shared_state", None):
        return None
    loader = gradient().active_dataloader
    skips = int(getattr(loader, "skip_batches", 0))
    dataset = getattr(loader, "dataset", None)
    if getattr(dataset, "_server", None) is server:
        if type(loader).__name__ != "DataLoaderDispatcher":
            return Reader(1, "", skips)
        return Reader(int(loader.state.num_processes), "process 0 reads for all", skips)
    if getattr(getattr(dataset, "dataset", None), "_server", None) is server:
        divides_over = int(getattr(dataset, "num_processes", 1))
        return Reader(divides_over, "each process keeps a part", skips)
    return None
