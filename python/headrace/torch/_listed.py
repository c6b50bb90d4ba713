"""A loader's epoch as a list of batches, from which libraries make DataLoaders of torch.

Accelerate's skip_first_batches(), which Hugging Face's Trainer calls to resume, makes a DataLoader
of the dataset of another one and the rest of its batch sampler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset, SequentialSampler

from headrace._loading.cursor import Place
from headrace._loading.feed import EpochFeed, end_pass
from headrace.errors import FailedPreconditionError


class Turn:
    """Counts the times that the list of a loader was begun. The loader keeps it."""

    def __init__(self) -> None:
        self.number = 0
        self.read = 0
        """The newest turn of which a batch was read."""
        self.ended = 0
        """The newest turn whose steps ended."""
        self.batches: Iterator[Any] = iter(())
        """Those that it reads."""


class BatchDataset(Dataset[Any]):
    """A loader's batches: an index is a step of the epoch. Its length is that of the loader's
    dataset, in samples, as Accelerate expects.

    Thread safety: as the loader, which it keeps.
    """

    def __init__(
        self, kind: str, length: int, go_to: Callable[[int], Iterator[Any]], turn: Turn
    ) -> None:
        """`kind`: of the loader. `go_to(step)` gives the batches of its next epoch from a step."""
        self.kind, self._length = kind, length
        self._go_to = go_to
        self._turn = turn
        self._begun = 0  # the turn whose batches it gives
        self._next = 0

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, steps: Sequence[int]) -> Any:
        """The batch of one step."""
        (step,) = steps
        return self[step]

    def __getitem__(self, step: int) -> Any:
        """The batch of a step: the first of the list, which moves the loader there, or the next.

        Raises:
            FailedPreconditionError: it is another one.
        """
        turn = self._turn
        if turn.ended == turn.number:
            raise self.out_of_order(f"step {step} after the end of the steps")
        if self._begun != turn.number:
            turn.batches = self._go_to(step)
            self._begun = turn.read = turn.number
            self._next = step
        if step != self._next:
            raise self.out_of_order(f"step {step} after step {self._next - 1}")
        self._next += 1
        return next(turn.batches)

    def out_of_order(self, what: str) -> FailedPreconditionError:
        """The error of who reads other steps than those of the list."""
        return FailedPreconditionError(
            f"reading batches of a {self.kind} by their steps: {what}: samples would be lost or "
            "repeated: something divides or shuffles the loader's batch sampler; iterate the "
            "loader itself; `headrace docs trainers`"
        )


class BatchList:
    """The steps of an epoch, as a batch sampler. Their end is the end of the loader's epoch, also
    if all of them were skipped."""

    even_batches = True  # Every rank has as many; Accelerator.join_uneven_inputs() reads it.

    def __init__(
        self,
        loader: Any,
        batch_size: int | None,
        drop_last: bool,
        dataset: BatchDataset,
        pass_over: Callable[[], None],
    ) -> None:
        """`pass_over()` makes the epoch after the next one the next."""
        self._loader = loader
        self._dataset = dataset
        self._pass_over = pass_over
        self._turn = turn_of(loader)
        self.sampler = SequentialSampler(dataset)
        self.batch_size, self.drop_last = batch_size, drop_last

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        self._turn.number += 1
        return self._steps()

    def _steps(self) -> Iterator[list[int]]:
        for step in range(len(self._loader)):
            yield [step]
        turn = self._turn
        turn.ended = turn.number
        if turn.read != turn.number:
            self._pass_over()
            return
        for _ in turn.batches:
            raise self._dataset.out_of_order("a batch is left at the end of the steps")

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)


def attribute_of(loader: Any, feed: EpochFeed, name: str) -> Any:
    """What a DataLoader with this loader's batches has as `name`."""

    def go_to(step: int) -> Iterator[Any]:
        epoch, begins, _ = feed.cursor.start()
        check_place("headrace.Loader", step, epoch, begins)
        if feed.source is None and begins != step:
            loader.load_state_dict(feed.state_at(Place(epoch, step)))
            begins = step
        batches: Iterator[Any] = iter(loader)
        for _ in range(begins, step):  # A state with a sampler needs the epoch that it drew.
            next(batches)
        return batches

    def pass_over() -> None:
        epoch, begins, _ = feed.cursor.start()
        check_place("headrace.Loader", len(feed), epoch, begins)
        if feed.cursor.is_restored:
            return  # A state of the end of an epoch is the beginning of the next, where it is.
        if feed.source is None:
            feed.set_epoch(epoch + 1)
            return
        for _ in loader:  # The sampler draws the epoch.
            end_pass(feed)
            break

    dataset = BatchDataset("headrace.Loader", len(feed.dataset), go_to, turn_of(loader))
    options = feed.options
    batches: Any = BatchList(loader, options.batch_size, options.drop_last, dataset, pass_over)
    if name in ("batch_size", "drop_last", "sampler"):
        return getattr(batches, name)
    return getattr(listed(dataset, batches), name)


def check_place(kind: str, step: int, epoch: int, begins: int) -> None:
    """Raises if a loader that goes on after `begins` batches would skip others."""
    if begins and begins != step:
        raise FailedPreconditionError(
            f"skipping the first {step} batches of a {kind}: it goes on after batch "
            f"{begins} of epoch {epoch} already, by load_state_dict(): samples would be lost "
            "or repeated; do one of both; `headrace docs trainers`"
        )


def listed(dataset: BatchDataset, batches: Any, **more: Any) -> DataLoader[Any]:
    """A DataLoader of torch's class with these batches."""
    return DataLoader(dataset, batch_sampler=batches, collate_fn=_unchanged, **more)


def _unchanged(batch: Any) -> Any:
    return batch


def turn_of(loader: Any) -> Turn:
    found: Turn = vars(loader).setdefault("_turn", Turn())
    return found
