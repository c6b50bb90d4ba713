"""What one worker gives of an iterable dataset: batches, with the dataset's state after each."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch.utils.data._utils.worker as torch_worker
from torch.utils.data import IterableDataset, get_worker_info

from headrace._loading.passes.origins import has_state
from headrace.formats._huggingface.open_datasets import kind_of


@dataclass(frozen=True)
class WorkerState:
    """Where one worker is."""

    batches: int = 0
    """Given in this epoch."""
    at: int = 0
    """How many of them when the states were taken."""
    dataset: Any = None
    """What the dataset's `state_dict` gave; None if it has none."""
    iterator: Any = None
    """The same of its iterator, unless that is the dataset itself."""
    ended: bool = False
    """Whether it has nothing more in this epoch."""


class StreamItem(NamedTuple):
    """What a worker sends."""

    worker: int
    note: bytes | None
    """A pickled WorkerState, every some batches. As bytes, pinned memory gets no tensors of it."""
    value: Any
    is_batch: bool
    """False: this is no batch, only a note, or the turn of a worker that has given it before."""


@dataclass(frozen=True)
class Batching:
    """How samples become batches."""

    batch_size: int | None
    """None: each sample is given alone."""
    drop_last: bool
    collate_fn: Callable[[Any], Any]
    every: int
    """Batches between two states; 0: none is taken."""


@dataclass(frozen=True)
class StreamStart:
    """Where a restored epoch goes on."""

    states: Sequence[WorkerState]
    """By worker."""
    turn: int = 0
    """The worker whose batch is next: torch asks worker 0 first."""


class BatchedStream(IterableDataset[StreamItem]):
    """An iterable dataset by batches, for torch's DataLoader without automatic batching.

    Each process that iterates has a copy of it; `start` is for the first iteration of each.
    """

    def __init__(self, dataset: Any, batching: Batching, start: StreamStart | None) -> None:
        self.dataset = dataset
        self.batches: WorkerBatches | None = None  # of the newest iteration in this process
        self._batching = batching
        self._start = start
        self._was_loaded = False

    def __iter__(self) -> WorkerBatches:
        info = get_worker_info()
        start, self._start = self._start, None
        if start is None and self._was_loaded and kind_of(self.dataset) == "IterableDataset":
            # Hugging Face's: each of its passes begins where a state was loaded.
            self.dataset.load_state_dict(None)
        self._was_loaded = self._was_loaded or start is not None
        self.batches = WorkerBatches(
            self.dataset, self._batching, 0 if info is None else info.id, start
        )
        return self.batches


class WorkerBatches(Iterator[StreamItem]):
    """The batches of one worker. It is no generator, as the loop may go on after an error."""

    def __init__(
        self, dataset: Any, batching: Batching, worker: int, start: StreamStart | None
    ) -> None:
        state = WorkerState() if start is None else start.states[worker]
        self._dataset = dataset
        self._batching = batching
        self._worker = worker
        self._waits = start is not None and worker < start.turn
        # One without states is read again to its end: it may draw random numbers.
        self._ended = state.ended and state.at == state.batches
        self._ends = False  # The note of the end was given.
        self._skip = state.batches
        self._count = state.at
        if state.dataset is not None:
            dataset.load_state_dict(state.dataset)
        left: Any = () if self._ended else dataset
        self._iterator = iter(left)
        if state.iterator is not None and not self._ended:
            self._iterator.load_state_dict(state.iterator)

    def __next__(self) -> StreamItem:
        if self._waits:
            self._waits = False
            return StreamItem(self._worker, None, None, is_batch=False)
        while self._count < self._skip and not self._ended:
            self._batch()  # With collate_fn, which may draw random numbers.
        if not self._ended:
            value, is_batch = self._batch()
            if is_batch:
                note = self.note() if self._is_due() else None
                return StreamItem(self._worker, note, value, is_batch=True)
        if self._ends:
            raise StopIteration
        self._ends = True
        note = self.note() if self._batching.every else None
        return StreamItem(self._worker, note, None, is_batch=False)

    def _batch(self) -> tuple[Any, bool]:
        """The next batch, and whether there is one."""
        batching = self._batching
        samples: list[Any] = []
        for _ in range(batching.batch_size or 1):
            try:
                samples.append(next(self._iterator))
            except StopIteration:
                self._ended = True
                break
        if not samples or (batching.drop_last and len(samples) < (batching.batch_size or 1)):
            return None, False
        self._count += 1
        return batching.collate_fn(samples[0] if batching.batch_size is None else samples), True

    def _is_due(self) -> bool:
        every = self._batching.every
        return every > 0 and (self._ended or self._count % every == 0)

    def state(self) -> WorkerState:
        """Where this worker is now."""
        dataset = self._dataset.state_dict() if has_state(self._dataset) else None
        asks_iterator = self._iterator is not self._dataset and has_state(self._iterator)
        iterator = self._iterator.state_dict() if asks_iterator and not self._ended else None
        at = self._count if dataset is not None or asks_iterator else 0
        return WorkerState(self._count, at, dataset, iterator, self._ended)

    def note(self) -> bytes:
        return pickle.dumps(self.state())


@dataclass(frozen=True)
class WorkerInit:
    """The `worker_init_fn` of these workers: `get_worker_info` tells them of the user's dataset."""

    user_fn: Callable[[int], object] | None

    def __call__(self, worker: int) -> None:
        info: Any = torch_worker._worker_info
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=info.dataset.dataset
        )
        if self.user_fn is not None:
            self.user_fn(worker)
