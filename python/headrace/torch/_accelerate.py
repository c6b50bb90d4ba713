"""What Accelerate's prepared loaders do with a stream that they read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import FailedPreconditionError

if TYPE_CHECKING:
    from headrace._loader import Loader
    from headrace.torch._server import Server

_DOING = "iterating a DataLoader of Accelerate's"


class Reader(NamedTuple):
    """One of Accelerate's loaders, while it iterates a stream in this process."""

    divides_over: int  # processes; 1: each has all that it reads
    how: str
    skips: int  # batches at the start


def checked_reader(server: Server) -> Reader | None:
    """The loader of Accelerate's that iterates the server's stream, if one does.

    Raises FailedPreconditionError if samples would be lost.
    """
    reader = _reader(server)
    if reader is None:
        return None
    loader = server.loader
    shares = loader._source.shares if loader._source is not None else loader._options.world_size
    if reader.divides_over > 1 and shares > 1:
        raise FailedPreconditionError(
            f"{_DOING}: accelerator.prepare() has it divide what it reads over "
            f"{reader.divides_over} processes ({reader.how}), and this stream is one rank's share "
            f"of {shares} already: samples would be lost; leave the DataLoader out of prepare(), "
            "or make the headrace.Loader with rank=0, world_size=1 on every process, for "
            "Accelerate to divide; `headrace docs trainers`"
        )
    if reader.skips and loader._next is not None and loader._next[1]:
        raise FailedPreconditionError(
            f"{_DOING}: it skips the first {reader.skips} batches, and the stream goes on after "
            f"batch {loader._next[1]} of epoch {loader._next[0]} already, by load_state_dict(): "
            "samples would be lost; do one of both: with Hugging Face's Trainer do not load a "
            "state, or have it skip nothing: TrainingArguments(ignore_data_skip=True)"
        )
    return reader


def check_epoch(server: Server, epoch: int) -> None:
    """Refuses that Accelerate's loader, by counting, undoes set_epoch() of the stream."""
    told = _told_epoch(server.loader)
    if checked_reader(server) is not None and told not in (None, epoch):
        raise FailedPreconditionError(
            f"{_DOING}: it begins epoch {epoch}, but the stream continues in epoch {told}, "
            "by load_state_dict() or set_epoch(): samples would be repeated; tell the prepared "
            f"DataLoader, too: set_epoch({told})"
        )


def _reader(server: Server) -> Reader | None:
    """Accelerate keeps its loaders that are being iterated. Nothing is imported."""
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


def _told_epoch(loader: Loader) -> int | None:
    """The epoch that was set for its next iteration."""
    if loader._next is None or (loader._untouched and not loader._next[1]):
        return None
    return loader._next[0]
