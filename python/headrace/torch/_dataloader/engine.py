"""Datasets of `headrace.open`, and subsets of them, read by the engine in the sampler's order."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Subset, default_collate

from headrace._dataset import Dataset
from headrace._loader import Loader, feed_of
from headrace._observe.stats import Stats
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.epochs.progress import Progress
from headrace.torch._dataloader.iteration import Iteration


def base_of(dataset: Any) -> Dataset | None:
    """The dataset of headrace that this one is, or is a subset of."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset if type(dataset) is Dataset else None


class _Given:
    """A batch sampler whose batches are set before each epoch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class EngineReader:
    """A Loader that gives the batches of a DataLoader.

    Ownership: the Loader. Shutdown: `close`, or the end of the last reference.
    """

    def __init__(self, base: Dataset) -> None:
        self._given = _Given()
        self._names = base.fields
        self._loader: Loader[Any] = Loader(base, batch_sampler=self._given, output="torch")
        self._end = weakref.finalize(self, self._loader.close)

    @classmethod
    def of(cls, dataset: Any, collate_fn: object) -> EngineReader | None:
        """None if the engine does not give exactly what `default_collate` makes of the samples."""
        base = base_of(dataset)
        if base is None or collate_fn is not default_collate or not len(base):
            return None
        if not {base.kind(name) for name in base.fields} <= {"array", "text"}:
            return None
        made = default_collate([base[0]])
        reader = cls(base)
        for name, dtype, shape, is_ragged in feed_of(reader._loader).delivers.schema:
            one = made[name]
            alike = (
                isinstance(one, list)
                if is_ragged
                else isinstance(one, torch.Tensor)
                and (str(one.dtype), tuple(one.shape[1:])) == (f"torch.{dtype}", tuple(shape))
            )
            if not alike:
                reader.close()
                return None
        return reader

    def batches(self, dataset: Any, drawn: Iterable[Drawn], epoch: int) -> Iterator[Any]:
        """The batches of these keys of `dataset`."""
        self._given.batches = [_numbers(dataset, each.keys) for each in drawn]
        self._loader.set_epoch(epoch)
        # DataLoader's own draw of the base seed was before.
        return feed_of(self._loader).iterate(self._present, base_seed=False)

    def stats(self) -> Stats:
        """Of the Loader."""
        return self._loader.stats()

    def _present(self, batch: Any) -> dict[str, Any]:
        return dict(zip(self._names, self._loader._present(batch), strict=True))

    def close(self) -> None:
        self._end()


def _numbers(dataset: Any, keys: Sequence[int]) -> list[int]:
    """The base's numbers of samples of a subset."""
    while type(dataset) is Subset:
        keys = [dataset.indices[key] for key in keys]
        dataset = dataset.dataset
    return [key + len(dataset) if key < 0 else int(key) for key in keys]


class EngineIteration(Iteration):
    """Takes batches from the engine. Draws all keys of the epoch when it begins."""

    def __init__(
        self,
        progress: Progress,
        length: Callable[[], int],
        reader: EngineReader,
        dataset: Any,
        finish: Callable[[Any], Any],
    ) -> None:
        super().__init__(progress, length)
        self._reader = reader
        self._dataset = dataset
        self._finish = finish
        self._drawn: deque[Drawn] = deque()
        while (drawn := progress.draw()) is not None:
            self._drawn.append(drawn)
        self._batches: Iterator[Any] | None = None

    def _next(self) -> Any:
        if not self._drawn:
            raise StopIteration
        if self._batches is None:
            epoch = self.progress.epoch
            self._batches = self._reader.batches(self._dataset, self._drawn, epoch)
        value = self._finish(next(self._batches))
        self.progress.deliver(self._drawn.popleft())
        return value
