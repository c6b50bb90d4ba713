"""Batches on a torch device, copied there ahead of the training loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headrace._arguments import integer
from headrace._loader import Loader, feed_of, mark_wrapped
from headrace._loading.not_torchs import NotADataLoader
from headrace._signature import named_arguments
from headrace.errors import FailedPreconditionError, InvalidArgumentError, TransformError
from headrace.torch._devices.copies import copies_to

DEPTH_MAX = 64

Prepare = Callable[[Any], Any]


class DeviceBatches(NotADataLoader):
    """The batches of a loader, copied to a device and prepared there.

    >>> batches = DeviceBatches(loader, "cuda", prepare={"image": Normalize(dtype=torch.float16)})
    >>> for image, label in batches:
    ...     ...

    On CUDA, copies and `prepare` run on a separate stream. The loop's operations on a batch wait
    for it on the device, not on the CPU. Pageable memory is first copied to torch's pinned memory.
    On the CPU everything is done at once.

    A batch may be a tensor or an array, or tuples, lists and dicts of them; other members are not
    changed. An error of the loader is raised in its turn, after the batches before it. So is the
    TransformError of a failed `prepare`, which names the field and the batch.

    Thread safety: for one thread, as a Loader. The loop ends the iteration; the loader stays open.

    Args:
        batches: a `headrace.Loader`, or any iterable of batches; one iteration at a time.
        device: "cpu", "cuda", "cuda:1", or a torch.device of these.
        depth: batches being copied or ready on the device, besides the one that the loop has.
        prepare: for some fields, by name or position, a function that runs on the device:
            `Normalize`, or any function of a tensor.

    Raises:
        InvalidArgumentError: names the invalid argument.
    """

    @named_arguments
    def __init__(
        self,
        batches: Iterable[Any],
        device: torch.device | str,
        *,
        depth: int = 2,
        prepare: Mapping[str | int, Prepare] | None = None,
    ) -> None:
        source: Any = batches
        if not isinstance(source, Iterable) or isinstance(source, str | bytes):
            raise InvalidArgumentError(f"batches: got {batches!r}, must be an iterable of batches")
        functions: Any = {} if prepare is None else prepare
        if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
            raise InvalidArgumentError(f"prepare: got {prepare!r}, must be functions by field")
        self.batches = batches
        """The argument `batches`. Its ``stats()`` count all batches taken, also those ahead of the
        loop."""
        if isinstance(source, Loader):
            mark_wrapped(source)
        self._copies = copies_to(_parsed(device))
        self._depth = integer("depth", depth, 1, DEPTH_MAX)
        self._prepare: dict[str | int, Prepare] = dict(functions)
        self._iteration = 0
        self._iterating = False
        self._epoch_was_set = False  # of an epoch, during the iteration
        self._state: dict[str, Any] | None = None  # None: as the loader says
        self._has_state = hasattr(batches, "state_dict")

    def __len__(self) -> int:
        """Number of batches in an epoch, if `batches` has a length."""
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        self._iteration += 1
        taken = iter(self.batches)
        self._state = self._snapshot()
        self._iterating, self._epoch_was_set = True, False
        return self._moved(taken, self._iteration)

    def state_dict(self) -> dict[str, Any]:
        """The loader's state after the last batch that the loop received, without those read
        ahead."""
        if not self._has_state:
            raise FailedPreconditionError(
                f"asking {type(self.batches).__name__} for its state: it has no state_dict()"
            )
        return dict(self._state) if self._state is not None else self._snapshot() or {}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """As the loader's `load_state_dict`: continues after the last batch before the save."""
        options = {} if strict else {"strict": False}
        self.batches.load_state_dict(state, **options)  # type: ignore[attr-defined]
        self._iteration += 1
        self._iterating, self._state = False, None

    def set_epoch(self, epoch: int) -> None:
        """As the loader's `set_epoch`: sets the epoch of the next iteration."""
        self.batches.set_epoch(epoch)  # type: ignore[attr-defined]
        if self._iterating:  # Has effect from the next iteration on.
            self._epoch_was_set = True
        else:
            self._state = None

    def _snapshot(self) -> dict[str, Any] | None:
        return self.batches.state_dict() if self._has_state else None  # type: ignore[attr-defined]

    def _moved(self, taken: Iterator[Any], iteration: int) -> Iterator[Any]:
        ahead: deque[_Sent] = deque()
        sent = 0
        # Marks, and the memory that copies may read until they are done.
        handed_over: deque[tuple[Any, Any]] = deque()
        failure: Exception | None = None
        ended = False
        try:
            while True:
                while not ended and len(ahead) <= self._depth:
                    try:
                        ahead.append(self._send(next(taken), sent))
                        sent += 1
                    except StopIteration:
                        ended = True
                    except Exception as error:  # After the batches before it.
                        failure, ended = error, True
                if not ahead:
                    break
                handed_over.append((ahead[0].mark, ahead[0].source))
                while handed_over and (
                    len(handed_over) > self._depth or self._copies.is_done(handed_over[0][0])
                ):
                    self._copies.wait(handed_over.popleft()[0])
                yield self._give(ahead.popleft(), iteration)  # And keeps no reference.
            if failure is not None:
                raise failure
            if iteration == self._iteration:
                self._state = None  # The loader's state: no batch is ahead.
        finally:
            if iteration == self._iteration:
                self._iterating = False
                if self._epoch_was_set:
                    self._state = None
            for mark in (*(mark for mark, _ in handed_over), *(batch.mark for batch in ahead)):
                self._copies.wait(mark)

    def _send(self, source: Any, number: int) -> _Sent:
        """Starts the copy of batch `number` of the iteration, counted from 0."""
        with self._copies.queue():
            batch = self._move(source, self._prepare, number)
            return _Sent(source, batch, self._copies.mark(), self._snapshot())

    def _give(self, sent: _Sent, iteration: int) -> Any:
        self._copies.hand_over(sent.mark, list(_tensors(sent.batch)))
        if iteration == self._iteration:
            self._state = sent.state
        return sent.batch

    def _move(self, value: Any, prepare: Mapping[str | int, Prepare], number: int) -> Any:
        """`value` on the device, with its members copied and prepared."""
        members, names = _members(value)
        for asked in prepare:
            if asked not in names and asked not in range(len(members)):
                has = ", ".join(map(str, names)) or "no fields"
                raise InvalidArgumentError(f"prepare: names field {asked!r}, a batch has {has}")
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            value = torch.from_numpy(value)
        if isinstance(value, torch.Tensor):
            return self._copies.move(value)
        if not members:
            return value
        made = []
        for position, (name, member) in enumerate(zip(names, members, strict=True)):
            moved = self._move(member, {}, number)
            function = prepare.get(name, prepare.get(position))
            try:
                made.append(moved if function is None else function(moved))
            except (Exception, SystemExit) as error:
                raise self._failed(name, number, error) from error
        if isinstance(value, Mapping):
            return dict(zip(names, made, strict=True))
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)

    def _failed(self, field: Any, number: int, cause: BaseException) -> TransformError:
        """The error for an exception of `prepare`. A Loader knows epoch and step of the batch."""
        epoch: int | None = None
        step: int | None = None
        if isinstance(self.batches, Loader):
            at = feed_of(self.batches).cursor.at
            epoch, step = at.epoch, at.step - 1
        where = f"batch {number} of the iteration" if step is None else f"epoch {epoch} step {step}"
        error = TransformError(
            f"preparing field {field!r} of {where}: {type(cause).__name__}: {cause}"
        )
        error.epoch, error.step = epoch, step
        return error


@dataclass(slots=True)
class _Sent:
    """A batch that is being copied."""

    source: Any  # memory that the copy reads
    batch: Any
    mark: Any  # done when the batch is on the device
    state: dict[str, Any] | None  # the loader's state after this batch


def _members(value: Any) -> tuple[list[Any], list[Any]]:
    """The members of a batch, or of a part of it, and their names."""
    if isinstance(value, Mapping):
        return list(value.values()), list(value)
    if isinstance(value, (tuple, list)):
        return list(value), list(getattr(value, "_fields", range(len(value))))
    return [], []


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    for member in _members(value)[0]:
        yield from _tensors(member)


def _parsed(device: Any) -> torch.device:
    try:
        if isinstance(device, torch.device | str):
            return torch.device(device)
        why = "must be a torch.device or its name"
    except RuntimeError as error:
        why = str(error).partition("\n")[0]
    raise InvalidArgumentError(f"device: got {device!r}: {why}")
