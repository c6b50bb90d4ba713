"""Batches of arrays and texts, made by the engine as `default_collate` would."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import default_collate

from headrace._observe.stats import Stats
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.epochs.progress import DrawnAhead, Progress
from headrace.torch._dataloader.iterations.iteration import Failed, Iteration, read_now
from headrace.torch._dataloader.native.composition import (
    PARTS_MAX,
    WRONG_KEY,
    Composition,
    LeafPlace,
)
from headrace.torch._dataloader.native.listed_reader import ListedReader, most_waited
from headrace.torch._dataloader.native.sources import NativeSource, leaf_facts, native_source
from headrace.torch._dataloader.reading.fetching import Fetcher


class ArrayReader:
    """Gives the batches of a DataLoader, without a call of Python for a sample.

    Thread safety: as a Loader. Ownership: a Loader for each part. Shutdown: `close`.
    """

    def __init__(
        self, dataset: Any, composition: Composition, parts: Sequence[NativeSource]
    ) -> None:
        self._composition = composition
        self._sources = parts
        self._readers = [ListedReader(part.base) for part in parts]
        self._facts = facts_of(dataset)
        self.is_busy = False
        """Whether an iteration has it."""

    @classmethod
    def of(cls, dataset: Any) -> ArrayReader | None:
        """None if the engine does not give exactly what `default_collate` makes of the samples."""
        composition = Composition(dataset)
        if len(composition.leaves) > PARTS_MAX:
            return None
        parts = []
        for leaf in composition.leaves:
            part = native_source(leaf) if len(leaf) else None
            if part is None or not _same_samples(leaf, part):
                return None
            parts.append(part)
        reader = cls(dataset, composition, parts)
        if reader._collates_alike():
            return reader
        reader.close()
        return None

    def reads(self, dataset: Any) -> bool:
        """Whether it still gives the samples of `dataset`, which may have changed since."""
        return facts_of(dataset) == self._facts

    def _collates_alike(self) -> bool:
        first = self._readers[0].schema
        for leaf, reader in zip(self._composition.leaves, self._readers, strict=True):
            made = default_collate([leaf[0]])
            if reader.schema != first or not _is_alike(made, reader.schema):
                return False
        return True

    def places(self, keys: Sequence[Any]) -> list[LeafPlace]:
        """Where a batch's samples lie in the parts' bases. Empty: the dataset is to read it, such
        as keys that are wrong, for its own error."""
        try:
            places = self._composition.places(keys)
            for leaf in {place.leaf for place in places}:
                rows = [row for row, place in enumerate(places) if place.leaf == leaf]
                numbers = self._sources[leaf].numbers([places[row].number for row in rows])
                for row, number in zip(rows, numbers, strict=True):
                    places[row] = LeafPlace(leaf, number)
        except WRONG_KEY:
            return []
        return places

    def batches(self, batches: Sequence[list[LeafPlace]], epoch: int) -> Iterator[dict[str, Any]]:
        """The batches of the samples that lie there."""
        if len(self._sources) == 1:
            lists = [[place.number for place in places] for places in batches]
            return self._readers[0].begin(lists, epoch)
        return self._joined(batches, epoch)

    def _joined(self, batches: Sequence[list[LeafPlace]], epoch: int) -> Iterator[dict[str, Any]]:
        rows: list[list[list[int]]] = []  # by part and batch
        taken: list[Iterator[dict[str, Any]]] = []
        for leaf, reader in enumerate(self._readers):
            rows.append(
                [
                    [row for row, place in enumerate(places) if place.leaf == leaf]
                    for places in batches
                ]
            )
            lists = [
                [places[row].number for row in part_rows]
                for places, part_rows in zip(batches, rows[-1], strict=True)
                if part_rows
            ]
            taken.append(reader.begin(lists, epoch) if lists else iter(()))
        parts = list(zip(rows, taken, strict=True))
        for number in range(len(batches)):
            yield _join(
                [(part[number], next(iterator)) for part, iterator in parts if part[number]]
            )
        for iterator in taken:
            next(iterator, None)  # Its end: one that was left is stopped when it is dropped.

    def stats(self) -> Stats:
        """Of the Loader; of several, of the one that the loop waited for most."""
        return most_waited([reader.stats() for reader in self._readers])

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


def facts_of(dataset: Any) -> object:
    """What the samples of a dataset depend on: other facts, other samples."""
    return id(dataset), [leaf_facts(leaf) for leaf in Composition(dataset).leaves]


def _same_samples(leaf: Any, part: NativeSource) -> bool:
    """Whether the engine's samples are those of the dataset, by the first and the last one: one
    by one, and as a batch, for which Hugging Face's formats may have other dtypes."""
    base = part.base
    if not {base.kind(name) for name in base.fields} <= {"array", "text"}:
        return False
    if leaf is base:
        return True
    ends = [0, len(leaf) - 1]
    with contextlib.suppress(Exception):  # Such as of samples that default_collate does not take.
        read = default_collate([base[number] for number in part.numbers(ends)])
        for samples in ([leaf[key] for key in ends], leaf.__getitems__(ends)):
            made = default_collate(samples)
            if list(made) != list(base.fields):
                return False
            if not all(_equal(made[name], read[name]) for name in base.fields):
                return False
        return True
    return False


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        return same and one.numpy().tobytes() == other.numpy().tobytes()
    # NumPy's format has texts of a type of its own.
    return list(map(type, one)) == list(map(type, other)) and bool(one == other)


def _is_alike(made: Any, schema: Sequence[tuple[str, str, tuple[int, ...], bool]]) -> bool:
    """Whether what `default_collate` made of a sample has the form of the engine's batches."""
    for name, dtype, shape, is_ragged in schema:
        one = made[name]
        alike = (
            isinstance(one, list)
            if is_ragged
            else isinstance(one, torch.Tensor)
            and (str(one.dtype), tuple(one.shape[1:])) == (f"torch.{dtype}", tuple(shape))
        )
        if not alike:
            return False
    return True


def _join(parts: Sequence[tuple[list[int], dict[str, Any]]]) -> dict[str, Any]:
    """One batch of parts, each with the rows that it has there."""
    if len(parts) == 1:
        return parts[0][1]
    count = sum(len(rows) for rows, _ in parts)
    joined: dict[str, Any] = {}
    for name, first in parts[0][1].items():
        if isinstance(first, torch.Tensor):
            made: Any = first.new_empty((count, *first.shape[1:]))
            for rows, part in parts:
                made[rows] = part[name]
        else:
            made = [None] * count
            for rows, part in parts:
                for row, value in zip(rows, part[name], strict=True):
                    made[row] = value
        joined[name] = made
    return joined


class ArrayIteration(Iteration):
    """Takes batches from the engine. Draws all keys of the epoch when it begins to read."""

    def __init__(
        self,
        progress: Progress,
        length: Callable[[], int],
        reader: ArrayReader,
        fetcher: Fetcher,
        finish: Callable[[Any], Any],
    ) -> None:
        super().__init__(progress, length)
        self._reader = reader
        self._fetcher = fetcher
        self._finish = finish
        self._drawn: DrawnAhead | None = None
        self._places: deque[list[LeafPlace]] = deque()  # of the batches that are left
        self._batches: Iterator[Any] | None = None
        reader.is_busy = True
        self._end = weakref.finalize(self, _leave, reader)

    def draw(self) -> DrawnAhead:
        """The batches that are left."""
        if self._drawn is None:
            self._drawn = DrawnAhead(self.progress)
            self._places.extend(self._reader.places(batch.keys) for batch in self._drawn.batches)
        return self._drawn

    def _next(self) -> Any:
        drawn = self.draw()
        left = drawn.batches
        if not self._end.alive:
            left.clear()
        if not left:
            self.close()
            drawn()  # Raises the sampler's error, if it had one.
            raise StopIteration
        value = self._read(left[0], self._places[0])
        left.popleft()
        self._places.popleft()
        if not left:  # The next iteration may have the engine.
            if self._batches is not None:
                next(self._batches, None)  # Its end: dropped before, it would wait for the engine.
            self._batches = None
            self._end()
        return value

    def _read(self, drawn: Drawn, places: list[LeafPlace]) -> Any:
        if not places:
            return read_now(drawn, None, self.progress, self._fetcher, self._finish)
        try:
            batches = self._batches
            if batches is None:
                readable = list(filter(None, self._places))
                batches = self._batches = self._reader.batches(readable, self.progress.epoch)
            value = self._finish(next(batches))
        except BaseException as error:
            self._batches = None  # The next begins after this one; after Ctrl-C, with it.
            if not isinstance(error, Exception):
                raise
            self.progress.skip_failed(drawn)
            return Failed(error.with_traceback(None))
        self.progress.deliver(drawn)
        return value

    def close(self) -> None:
        self._batches = None  # `_next`, which may run in another thread, has its own reference.
        self._end()


def _leave(reader: ArrayReader) -> None:
    reader.is_busy = False
