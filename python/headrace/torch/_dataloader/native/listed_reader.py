"""A Loader of one dataset that gives given samples, batch by batch."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from headrace._dataset import Dataset
from headrace._loader import Loader, feed_of
from headrace._observe.stats import Stats
from headrace._options.groups import Output


class _ListedBatches:
    """A batch sampler whose batches are set before each epoch."""

    def __init__(self) -> None:
        self.batches: Sequence[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class ListedReader:
    """Reads lists of samples ahead.

    Thread safety: one thread begins, and takes batches; `close` from any.
    Ownership: the Loader. Shutdown: `close`, or the end of the last reference.
    """

    def __init__(self, base: Dataset, fields: Sequence[str] | None = None) -> None:
        """`fields`: those to read; None: all."""
        self.base = base
        self._batch_sampler = _ListedBatches()
        self._names = tuple(base.fields if fields is None else fields)
        self._loader: Loader[Any] = Loader(
            base, batch_sampler=self._batch_sampler, output=Output("torch", fields=fields)
        )
        self._end = weakref.finalize(self, self._loader.close)

    @property
    def schema(self) -> Sequence[tuple[str, str, tuple[int, ...], bool]]:
        """Of each field: name, dtype, shape of a sample, and whether samples differ in shape."""
        return feed_of(self._loader).delivers.schema

    def begin(self, batches: Sequence[list[int]], epoch: int) -> Iterator[dict[str, Any]]:
        """The fields of these batches, by name. Ends what was begun before."""
        self._batch_sampler.batches = batches
        self._loader.set_epoch(epoch)
        # DataLoader's own draw of the base seed was before.
        return feed_of(self._loader).iterate(self._present, base_seed=False)

    def _present(self, batch: Any) -> dict[str, Any]:
        return dict(zip(self._names, self._loader._present(batch), strict=True))

    def stats(self) -> Stats:
        """Of the Loader."""
        return self._loader.stats()

    def close(self) -> None:
        self._end()


def most_waited(stats: Sequence[Stats]) -> Stats:
    """Of several Loaders, those of the one that the training loop waited for most."""
    return max(stats, key=lambda loader: loader["stall_share"] * loader["seconds"])
