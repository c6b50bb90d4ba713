"""The position of a loader in its run. Pure: no file, no thread, no core object."""

from __future__ import annotations

from collections.abc import Sized
from typing import Generic, NamedTuple, TypeVar

Plan = TypeVar("Plan", bound=Sized)


class Place(NamedTuple, Generic[Plan]):
    """The position before a step of an epoch; the step may be one past the epoch's last."""

    epoch: int
    step: int
    plan: Plan | None = None
    """The batches of that epoch, if a sampler gave them."""


class Cursor(Generic[Plan]):
    """The positions of a loader, as its user sees it, and of the core that gives it batches.

    Iterations are numbered; only the newest one gets batches. An iteration that ends before its
    first batch begins no epoch: the next one repeats it, with the same plan.

    Thread safety: none.
    """

    def __init__(self, steps: int) -> None:
        """Starts before the first step of epoch 0. `steps`: of an epoch without a plan."""
        self._steps = steps
        self._at = (0, 0)  # after the newest batch
        self._plan: Plan | None = None  # of that epoch, or of the iteration to be repeated
        self._coming: tuple[int, int] | None = None  # where the next iteration starts, if decided
        self._repeats = False  # the iteration at `_coming` was left before its first batch
        self._restored = False  # `_coming` is of a state
        self._began: tuple[int, int] | None = None  # the iteration in progress
        self._iteration = 0  # number of the newest one
        self._supply: tuple[int, int] | None = None  # the step that the core gives next

    @property
    def at(self) -> Place[Plan]:
        """The position after the newest batch that the user received."""
        return Place(*self._at, self._plan)

    @property
    def iteration(self) -> int:
        """The number of the newest iteration."""
        return self._iteration

    @property
    def decided(self) -> tuple[int, int] | None:
        """Where the next iteration starts, if `go_to` or `restore` decided it."""
        if self._coming is None or (self._repeats and not self._coming[1]):
            return None
        return self._coming

    @property
    def is_restored(self) -> bool:
        """Whether the next iteration starts where `restore` said."""
        return self._restored and self.decided is not None

    def length(self, plan: Plan | None) -> int:
        """Steps of an epoch with this plan."""
        return self._steps if plan is None else len(plan)

    def is_over(self) -> bool:
        """Whether the current epoch has no more batches."""
        return self._at[1] >= self.length(self._plan)

    def start(self) -> Place[Plan]:
        """Where the next iteration starts; has a plan if that iteration repeats one."""
        if self._coming is not None:
            return Place(*self._coming, self._plan if self._repeats else None)
        epoch, step = self._at
        return Place(epoch + 1 if step else epoch, 0)  # An epoch that was left early is over.

    def saved(self) -> Place[Plan]:
        """Where a state continues. `go_to` has effect from the next iteration on."""
        if self._coming is None or self._began is not None:
            return self.at
        return self.start()

    def drew(self, plan: Plan) -> None:
        """Sets the plan of the epoch that `start` names."""
        self._plan = plan

    def continues(self, epoch: int, step: int) -> bool:
        """Whether the core gives this step next without a start."""
        return self._supply == (epoch, step)

    def begin(self, epoch: int, step: int, *, again: bool = False) -> None:
        """Begins an iteration here; the core was started here. With `again` it is the newest
        one, which has given no batch."""
        if not again:
            self.stop()
        self._at = self._supply = self._began = (epoch, step)
        self._coming, self._repeats, self._restored = None, False, False

    def gave(self, epoch: int, step: int, ends_epoch: bool) -> None:
        """The core gave this batch to the current iteration."""
        self._at = (self._at[0], step + 1)
        self._supply = (epoch + 1, 0) if ends_epoch else (epoch, step + 1)

    def lose_supply(self, steps: int | None = None) -> None:
        """The core must be started before it gives more batches. `steps`: an epoch without a plan
        has so many from now on."""
        self._supply = None
        self._steps = self._steps if steps is None else steps

    def end_epoch(self) -> None:
        """The current iteration has reached the end of its epoch."""
        self._at, self._plan, self._began = (self._at[0] + 1, 0), None, None

    def stop(self) -> None:
        """Ends the newest iteration, if there is one: it gets no more batches."""
        self._iteration += 1
        self._began = None

    def leave(self, iteration: int) -> bool:
        """Ends an iteration that was dropped early. Returns whether it was the newest."""
        if iteration != self._iteration:
            return False
        if self._coming is None and self._at == self._began:
            self._coming, self._repeats = self._began, True
        self._began = self._supply = None
        return True

    def go_to(self, epoch: int) -> bool:
        """Makes this epoch the next one. Returns whether a restored position in it is kept."""
        if self._coming is not None and self._coming[0] == epoch:
            return True
        self._coming, self._repeats, self._restored = (epoch, 0), False, False
        return False

    def restore(self, epoch: int, step: int) -> None:
        """Makes the next iteration start here, and ends the current one."""
        self.stop()
        self._coming, self._repeats, self._restored = (epoch, step), False, True
        self._at, self._plan = (epoch, 0), None
