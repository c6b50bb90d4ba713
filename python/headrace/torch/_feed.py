"""What `headrace.torch` asks of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from headrace._loading.cursor import Cursor, Place
from headrace._loading.feed import Delivered
from headrace._loading.sampling import EpochPlan


class BatchFeed(Protocol):
    """Batches as the core makes them, and the position; `headrace._loading.feed` has the real one.

    Thread safety: `interrupt` from any thread; the others from one at a time.
    """

    @property
    def cursor(self) -> Cursor[EpochPlan]: ...
    @property
    def delivers(self) -> Delivered: ...
    @property
    def shares(self) -> int:
        """How many ranks the samples are divided over."""

    @property
    def samples(self) -> int:
        """Of an epoch of this rank, as far as that is known."""

    def check_open(self) -> None: ...
    def iterate(self, present: Callable[[Any], Any], base_seed: bool = True) -> Iterator[Any]:
        """The next epoch, as `present` makes of the core's batches."""

    def interrupt(self) -> None:
        """Whoever waits for a batch waits no longer."""

    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def state_at(self, place: Place[EpochPlan]) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
