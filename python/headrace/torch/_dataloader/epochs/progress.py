"""How far an epoch is, and where a restored one begins."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch

from headrace import _core
from headrace._loading.passes.origins import layers
from headrace.errors import FailedPreconditionError
from headrace.torch._dataloader.epochs.drawing import Drawing, Drawn, Snapshot, Source
from headrace.torch._dataloader.epochs.epoch_sampler import EpochSampler
from headrace.torch._dataloader.epochs.generators import decoded
from headrace.torch._dataloader.epochs.state import Position

_END = "the end of the epoch"


class Here(NamedTuple):
    """A place in an epoch."""

    at: tuple[int, int, str, Snapshot | None]
    """Batches delivered without gaps, their samples, the hash of their keys, a sampler's state."""
    ahead: tuple[int, ...]
    """Batches delivered beyond."""


class Progress:
    """What of one epoch was drawn and delivered.

    Thread safety: none.
    """

    def __init__(self, source: Source, epoch: int, restored: Position | None) -> None:
        """Begins the epoch: draws as torch does, or as in the epoch of a restored position.

        Raises FailedPreconditionError if the sampler gives other keys than were delivered then.
        """
        self.epoch = epoch
        self.has_ended = False
        """Whether it is known that no batch follows. An iteration sets it, and `is_over`."""
        self._at: tuple[int, int, str, Snapshot | None] = (0, 0, "", None)
        self._ahead: dict[int, Drawn] = {}
        self._failed: set[int] = set()
        self._peeked: deque[Drawn] = deque()
        self._skipped: frozenset[int] = frozenset()
        if restored is None:
            self._drawing = Drawing(source)
            return
        before = torch.get_rng_state()
        origin = restored.origin
        torch.set_rng_state(decoded(origin.global_state))
        try:
            self._drawing = self._redraw(source, restored)
        except BaseException:
            torch.set_rng_state(before)
            raise
        if restored.mark is None or hash_of(before) == restored.global_now:
            # Another rank's is not this one's. Or the user restored it: it goes on from there.
            torch.set_rng_state(before)

    def _redraw(self, source: Source, restored: Position) -> Drawing:
        restored.origin.apply(source)
        drawing = Drawing(source, restored.base_seed)
        drawing.origin = restored.origin
        drawing.follows_state = restored.origin.sampler is not None
        snapshot = restored.snapshot
        if snapshot is not None:
            stateful = source.stateful
            stateful.load_state_dict(snapshot.state)
            drawing.restart(snapshot)
        batches, samples, mark = restored.batches, restored.samples, restored.mark
        redrawn = snapshot.mark if snapshot is not None else ""
        for _ in range(batches - (snapshot.batches if snapshot is not None else 0)):
            drawn = drawing.next()
            redrawn = drawn.mark if drawn is not None else _END
            samples = drawn.place_after if drawn is not None and mark is None else samples
        if mark is None and redrawn != _END:
            mark = redrawn
        if redrawn != mark:
            raise FailedPreconditionError(
                f"restoring epoch {restored.epoch} after {batches} batches: the sampler gives "
                f"other samples (hash {redrawn}) than when the state was saved (hash {mark}): "
                "build the sampler with the same arguments; if it draws from Python's or NumPy's "
                "global generator, restore its state before, or draw from a generator= of its own"
            )
        self._at = (batches, samples, mark, snapshot)
        self._skipped = frozenset(restored.ahead)
        # What was read ahead: a sampler may have drawn from the global generator for it.
        while drawing.count < restored.drawn and (drawn := drawing.next()) is not None:
            self._peeked.append(drawn)
        return drawing

    @property
    def base_seed(self) -> int:
        return self._drawing.base_seed

    @property
    def sampler_epoch(self) -> int | None:
        """The sampler's own epoch, as drawing this one left it."""
        return self._drawing.sampler_epoch

    def leave(self, ahead: int) -> None:
        """Another epoch begins. If this one was left early, the generators of its samplers go on as
        after torch's DataLoader, which draws `ahead` batches beyond those that the loop has."""
        if not self.has_ended:
            self._drawing.rewind_to(self._at[0] + len(self._ahead) + ahead)

    def is_spent(self) -> bool:
        """Whether no batch is left to draw: draws one ahead to know it."""
        if not self._peeked and (drawn := self.draw()) is not None:
            self._peeked.append(drawn)
        return not self._peeked

    def is_over(self) -> bool:
        """Whether every batch of the epoch is known to be delivered. If the sampler has given as
        many as it says, this draws its end: RandomSampler draws from its generator there."""
        if self._at[0] == self._drawing.count and self._drawing.is_over and self.is_spent():
            self.has_ended = True
            return True
        return False

    def draw(self) -> Drawn | None:
        """The next batch to read; None at the end. Raises whatever the sampler raises."""
        while (
            drawn := self._peeked.popleft() if self._peeked else self._drawing.next()
        ) is not None:
            if drawn.number not in self._skipped:
                return drawn
            self.deliver(drawn)
        return None

    def deliver(self, drawn: Drawn) -> None:
        """The user gets this batch now."""
        self._ahead[drawn.number] = drawn
        while (coming := self._ahead.pop(self._at[0], None)) is not None:
            self._at = (coming.number + 1, coming.place_after, coming.mark, coming.snapshot)

    def pass_over(self, batches: int) -> None:
        """Draws so many, as if the user got them."""
        for _ in range(batches):
            if (drawn := self.draw()) is not None:
                self.deliver(drawn)

    def skip_failed(self, drawn: Drawn) -> None:
        """The user got an error in place of this batch: it counts when a later one is delivered."""
        self._ahead[drawn.number] = drawn
        self._failed.add(drawn.number)

    def here(self) -> Here:
        """The place now, for `position` later."""
        return Here(self._at, tuple(sorted(self._ahead.keys() - self._failed)))

    def position(self, dataset: object = None, here: Here | None = None) -> Position:
        """Now, or when the training loop was `here`, with what was read ahead since."""
        (batches, samples, mark, snapshot), ahead = self.here() if here is None else here
        return Position(
            epoch=self.epoch,
            batches=batches,
            samples=samples,
            mark=mark,
            ahead=ahead,
            base_seed=self.base_seed,
            global_now=hash_of(torch.get_rng_state()),
            origin=self._drawing.origin,
            snapshot=snapshot,
            drawn=self._drawing.count,
            dataset=dataset,
        )


def finish_restored(source: Source, restored: Position) -> None:
    """Another epoch than the restored one is to begin. A sampler that goes on from one epoch to the
    next draws the restored one to its end."""
    samplers = [sampler for sampler in layers(source.sampler) if isinstance(sampler, EpochSampler)]
    before, now = restored.origin.epoch, source.epoch
    if not samplers or restored.origin.sampler is None or before is None or now is None:
        return
    source.set_epoch(before)
    try:
        Progress(source, restored.epoch, restored)
        for sampler in samplers:
            sampler.finish_loaded()
    finally:
        source.set_epoch(now)


class DrawnAhead:
    """All batches of an epoch, drawn when it begins. Called, it gives the next one, as
    `Progress.draw`: an error of the sampler comes after the batches before it."""

    def __init__(self, progress: Progress) -> None:
        self.batches: deque[Drawn] = deque()
        self._error: Exception | None = None
        try:
            while (drawn := progress.draw()) is not None:
                self.batches.append(drawn)
        except Exception as error:
            self._error = error

    def __call__(self) -> Drawn | None:
        if self.batches:
            return self.batches.popleft()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return None


def between(
    source: Source, epoch: int, dataset: object = None, kept_seed: int | None = None
) -> Position:
    """The position before an epoch that has not begun. `dataset`: an iterable dataset's state."""
    origin = source.origin()
    return Position(epoch, 0, 0, "", (), None, None, origin, None, 0, dataset, kept_seed)


def hash_of(state: torch.Tensor) -> str:
    """Of a state of torch's generator."""
    return f"{_core.hash64(state.numpy().tobytes()):016x}"
