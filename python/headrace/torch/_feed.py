"""The interface of a loader that `headrace.torch` uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from headrace._loading.cursor import Cursor, Place
from headrace._loading.feed import Delivered
from headrace._loading.sampling import EpochPlan


class BatchFeed(Protocol):
    """The core's batches and the position; `headrace._loading.feed` implements it.

    Thread safety: `interrupt` from any thread; the other methods from one thread at a time.
    """

    @property
    def cursor(self) -> Cursor[EpochPlan]: ...
    @property
    def delivers(self) -> Delivered: ...
    @property
    def shares(self) -> int:
        """The number of ranks that share the samples."""

    @property
    def samples(self) -> int:
        """Samples of this rank's epoch, as far as known."""

    def check_open(self) -> None: ...
    def iterate(self, present: Callable[[Any], Any], base_seed: bool = True) -> Iterator[Any]:
        """Begins the next epoch. `present` converts the core's batches."""

    def interrupt(self) -> None:
        """Ends waits for a batch."""

    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def state_at(self, place: Place[EpochPlan]) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None: ...
