"""A loader's epoch as a list of batches, from which libraries make DataLoaders of torch.

Accelerate's skip_first_batches(), which Hugging Face's Trainer calls to resume, makes a DataLoader
of the dataset of another one and the rest of its batch sampler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset, DistributedSampler

from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch._trainers.divided import DividedBatches
from headrace.torch._trainers.loader_batches import LoaderBatches

TrainerSource = LoaderBatches | DividedBatches
"""The epochs of a loader, as a TrainerLoader gives them."""


class StepDataset(Dataset[Any]):
    """A loader's batches: an index is a step of the epoch. Its length is that of the loader's
    dataset, in samples, as Accelerate expects.

    Thread safety: as the loader.
    """

    def __init__(self, source: TrainerSource) -> None:
        self._source = source
        self._lists = 0  # how often the list of steps was begun
        self._read = 0  # the newest of them of which a batch was read
        self._ended = 0  # the newest of them whose steps ended
        self._batches: Iterator[Any] = iter(())
        self._next = 0

    def __len__(self) -> int:
        return self._source.facts.samples

    def __getitem__(self, step: int) -> Any:
        """The batch of a step: the first of the list, which moves the loader there, or the next.

        Raises:
            FailedPreconditionError: it is another one.
        """
        if self._ended == self._lists:
            raise self._out_of_order(f"step {step} after the end of the steps")
        if self._read != self._lists:
            self._batches = self._source.go_to(step)
            self._read, self._next = self._lists, step
        if step != self._next:
            raise self._out_of_order(f"step {step} after step {self._next - 1}")
        self._next += 1
        return next(self._batches)

    def begin(self) -> None:
        """The list of steps begins."""
        self._lists += 1

    def end(self) -> None:
        """It ends, and the epoch with it, also if all batches were skipped."""
        self._ended = self._lists
        if self._read != self._lists:
            self._source.pass_over()
            return
        for _ in self._batches:
            raise self._out_of_order("a batch is left at the end of the steps")

    def _out_of_order(self, what: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"reading batches of a {self._source.facts.kind} by their steps: {what}: samples would "
            "be lost or repeated: something divides or shuffles the loader's batch sampler; "
            "iterate the loader itself; `headrace docs trainers`"
        )


class StepSampler(DistributedSampler[Any]):
    """The steps of an epoch of this rank. Lightning puts no other sampler in place of one of this
    class, and sets its epoch: it loads no state from a checkpoint of the end of an epoch, so a new
    loader must begin with the next."""

    def __init__(self, source: TrainerSource, dataset: StepDataset) -> None:
        super().__init__(dataset, source.facts.ranks, source.facts.rank, shuffle=False)
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._source)))

    def set_epoch(self, epoch: int) -> None:
        """A loader that has given nothing yet begins with it; any other counts its epochs
        itself."""
        self._source.set_first_epoch(epoch)


class StepList:
    """The steps of an epoch, as a batch sampler."""

    def __init__(
        self,
        source: TrainerSource,
        dataset: StepDataset | None = None,
        sampler: StepSampler | None = None,
        *,
        batch_size: int | None = None,
        drop_last: bool | None = None,
    ) -> None:
        """Raises InvalidArgumentError if Lightning makes another list, of a sampler, `batch_size`
        and `drop_last`."""
        if dataset is None or sampler is None:
            raise InvalidArgumentError(
                "making another DataLoader of a headrace.torch.TrainerLoader, as Lightning does "
                f"for predict() and overfit_batches=, with batch_size={batch_size} and drop_last="
                f"{drop_last}: its loader has decided the batches: give Lightning the "
                "headrace.Loader itself; `headrace docs trainers`"
            )
        self._source, self._dataset, self.sampler = source, dataset, sampler
        self.batch_size, self.drop_last = source.facts.batch_size, source.facts.drop_last

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[list[int]]:
        self._dataset.begin()
        return self._steps()

    def _steps(self) -> Iterator[list[int]]:
        for step in range(len(self._source)):
            yield [step]
        self._dataset.end()

    def set_epoch(self, epoch: int) -> None:
        self._source.set_epoch(epoch)

    @property
    def even_batches(self) -> bool:
        """Whether every rank has as many batches. Accelerator.join_uneven_inputs() sets it."""
        return bool(getattr(self._source.pads, "even_batches", True))

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        self._source.pads.even_batches = even
