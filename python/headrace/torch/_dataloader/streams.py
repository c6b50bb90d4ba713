"""Iterable datasets: iterated by torch's own workers, with a state."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import torch

from headrace._arguments import shown
from headrace._observe.waits import LoopWaits
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch._dataloader.epochs.drawing import Origin, Source
from headrace.torch._dataloader.epochs.generators import decoded
from headrace.torch._dataloader.epochs.progress import hash_of
from headrace.torch._dataloader.epochs.state import Position
from headrace.torch._dataloader.stream_batches import (
    BatchedStream,
    Batching,
    StreamItem,
    StreamStart,
    WorkerInit,
    WorkerState,
)

_END: Any = object()


class _TorchLoader(torch.utils.data.DataLoader[StreamItem]):
    """torch's DataLoader of a `BatchedStream`."""

    def check_worker_number_rationality(self) -> None:
        """The user's loader has warned."""


class StreamReader:
    """Iterates a dataset in this process or in torch's workers, which may last for several epochs.

    Ownership: the workers. Shutdown: `close`, or the end of the last reference, as torch's.
    """

    def __init__(self, dataset: Any, batching: Batching, arguments: Mapping[str, Any]) -> None:
        """`arguments`: of torch's DataLoader, those about workers."""
        self._dataset = dataset
        self._batching = batching
        self._arguments = dict(arguments)
        self.count = self._arguments["num_workers"]
        self.lasts = self.count == 0 or self._arguments["persistent_workers"]
        """Whether the dataset of an epoch is that of the one before, with what it knows."""
        self.in_order = self._arguments.get("in_order", True)
        self._begin = WorkerInit(self._arguments.pop("worker_init_fn"))
        self._stream: BatchedStream | None = None
        self._loader: _TorchLoader | None = None

    def iterate(self, start: StreamStart | None) -> Iterator[StreamItem]:
        if self._loader is None or start is not None or not self.lasts:
            batching = self._batching if self.count else replace(self._batching, every=0)
            self._stream = BatchedStream(self._dataset, batching, start)
            self._loader = _TorchLoader(
                self._stream,
                batch_size=None,
                collate_fn=_unchanged,
                worker_init_fn=self._begin,
                **self._arguments,
            )
        return iter(self._loader)

    def close(self) -> None:
        """Lets go of persistent workers. They end with the iteration that uses them."""
        self._loader = None

    def here(self) -> WorkerState | None:
        """The state of the dataset if it is iterated in this process."""
        stream = self._stream
        batches = stream.batches if stream is not None and not self.count else None
        return None if batches is None else batches.state()


def _unchanged(value: Any) -> Any:
    return value


class StreamProgress:
    """An iteration of an iterable dataset, and how far it is: each worker's place, and the states
    that its dataset has.

    Thread safety: none.
    """

    def __init__(self, reader: StreamReader, epoch: int, origin: Origin) -> None:
        self.epoch = epoch
        self.batches = 0
        self._origin = origin
        self._iterator: Iterator[Any] = iter(())
        self._peeked: list[Any] = []
        self._restored: Position | None = None  # until the first batch
        self._has_ended = False
        self._reader = reader
        count = max(1, reader.count)
        self._states = [WorkerState()] * count
        self._notes: list[bytes | None] = [None] * count  # newer than the states
        self._counts = [0] * count
        self._turn = 0

    def is_over(self) -> bool:
        return self._has_ended

    def begin(self) -> None:
        """Begins the epoch anew."""
        self._iterator = self._open(None)

    def resume(self, position: Position, source: Source) -> bool:
        """Goes on at a position. Whether anything follows in its epoch: reads ahead to know it."""
        before = torch.get_rng_state()
        position.origin.apply(source)
        torch.set_rng_state(decoded(position.origin.global_state))
        self._iterator = self._open(position)
        first = next(self, _END)
        if hash_of(before) == position.global_now:
            torch.set_rng_state(before)
        if first is _END:
            return False
        self._peeked, self._restored = [first], position
        return True

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._peeked:
            self._restored = None
            return self._peeked.pop()
        try:
            batch = self._take()
        except StopIteration:
            self._has_ended = True
            self._iterator = iter(())  # The loader keeps persistent workers, and ends them.
            raise
        self.batches += 1
        return batch

    def close(self) -> None:
        """Drops what iterates, and its workers."""
        if not self._has_ended:
            self._iterator = map(_refuse, itertools.repeat(None))

    def position(self) -> Position:
        if self._restored is not None:
            return self._restored
        now = hash_of(torch.get_rng_state())
        state = self._dataset_state()
        return Position(
            self.epoch, self.batches, 0, "", (), None, now, self._origin, None, 0, state
        )

    def next_epoch(self) -> Any:
        """What of the dataset's state the next epoch begins with; None: it is as it was made."""
        if not self._reader.lasts:
            return None
        states = [WorkerState(dataset=state.dataset) for state in self._worker_states()]
        if all(state.dataset is None for state in states):
            return None
        return _state(states, self._reader.count, 0)

    def _open(self, position: Position | None) -> Iterator[Any]:
        start = None
        if position is not None and position.dataset is not None:
            start = start_of(position.dataset, self._reader.count)
            self._states = list(start.states)
            self._counts = [state.batches for state in start.states]
            self._turn, self.batches = start.turn, position.batches
            if not self._reader.in_order:
                start = StreamStart(start.states)
        return self._reader.iterate(start)

    def _take(self) -> Any:
        while True:
            item: StreamItem = next(self._iterator)
            if item.note is not None:
                self._notes[item.worker] = item.note
            if item.is_batch:
                self._counts[item.worker] += 1
                self._turn = (item.worker + 1) % len(self._counts)
                return item.value

    def _dataset_state(self) -> Any:
        return _state(self._worker_states(), self._reader.count, self._turn)

    def _worker_states(self) -> list[WorkerState]:
        here = self._reader.here()
        if here is not None:
            return [here]
        for worker, note in enumerate(self._notes):
            if note is not None:
                self._states[worker], self._notes[worker] = pickle.loads(note), None
        return [
            replace(state, batches=count)
            for state, count in zip(self._states, self._counts, strict=True)
        ]


def _refuse(_: object) -> NoReturn:
    raise FailedPreconditionError("the DataLoader was closed, with its workers: iterate it again")


def _state(states: list[WorkerState], workers: int, turn: int) -> dict[str, Any]:
    return {"workers": workers, "turn": turn, "parts": [dict(vars(state)) for state in states]}


def start_of(state: Any, workers: int) -> StreamStart:
    """Reads the state of a dataset.

    Raises:
        InvalidArgumentError: it is none.
        FailedPreconditionError: it is of another number of workers.
    """
    try:
        saved, turn = state["workers"], state["turn"]
        states = [WorkerState(**part) for part in state["parts"]]
    except (TypeError, KeyError) as error:
        raise InvalidArgumentError(
            f"state: the part of the dataset, {shown(state)}, must be what state_dict() gave: "
            f"{error!r}"
        ) from None
    if saved != workers:
        raise FailedPreconditionError(
            f"state: saved with num_workers {shown(saved)}, restored in a DataLoader with "
            f"{workers}: the workers divide an iterable dataset, so another number of them "
            f"would get other samples; give it num_workers={shown(saved)}"
        )
    return StreamStart(states, turn)


class StreamIteration(Iterator[Any]):
    """The batches of an iterable dataset."""

    def __init__(
        self, progress: StreamProgress, length: Callable[[], int], waits: LoopWaits
    ) -> None:
        self._progress = progress
        self._length = length
        self._waits = waits

    def __next__(self) -> Any:
        return self._waits.take(self._progress.__next__)

    def __len__(self) -> int:
        return self._length()
