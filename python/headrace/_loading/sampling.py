"""A user's sampler, list of indices or batch sampler, as the plan of one epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import whole
from headrace.errors import FailedPreconditionError, InvalidArgumentError

Ids = NDArray[np.uint64]


class EpochPlan:
    """The samples of one epoch of one rank, in order, and where each batch of them ends."""

    def __init__(self, ids: Ids, batch_ends: Ids) -> None:
        self.ids = ids
        self.batch_ends = batch_ends
        self.hash = f"{_core.hash64(ids.tobytes() + b'|' + batch_ends.tobytes()):016x}"
        """What a saved state knows the epoch by."""

    @property
    def largest_batch(self) -> int:
        """Samples in it; 0 if there is none."""
        return int(np.diff(self.batch_ends, prepend=np.uint64(0)).max(initial=0))

    def samples_before(self, step: int) -> int:
        """How many samples the first `step` batches hold."""
        return int(self.batch_ends[step - 1]) if step else 0

    def batch(self, step: int) -> list[int]:
        first = int(self.batch_ends[step - 1]) if step else 0
        return [int(sample) for sample in self.ids[first : int(self.batch_ends[step])]]


class SamplerSource:
    """Asks a sampler for an epoch when it is due, and not earlier: as torch does."""

    def __init__(
        self,
        sampler: Iterable[Any] | None,
        batch_sampler: Iterable[Iterable[Any]] | None,
        batch_size: int,
        drop_last: bool,
    ) -> None:
        self._sampler = sampler
        self._batch_sampler = batch_sampler
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._drawn = 0
        self._hashes: dict[int, str] = {}  # of the epochs drawn, by how many were before

    @property
    def _source(self) -> Any:
        return self._sampler if self._batch_sampler is None else self._batch_sampler

    def __len__(self) -> int:
        """Batches of an epoch, as torch counts them."""
        if not isinstance(self._source, Sized):
            raise TypeError(f"{type(self._source).__name__} has no len(), so the loader has none")
        count = len(self._source)
        if self._batch_sampler is not None:
            return count
        full, rest = divmod(count, self._batch_size)
        return full if self._drop_last or rest == 0 else full + 1

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch; None where a batch sampler decides."""
        return self._batch_size if self._batch_sampler is None else None

    @property
    def drop_last(self) -> bool:
        """Whether a last, smaller batch is left out."""
        return self._drop_last

    @property
    def drawn(self) -> int:
        """How many epochs the sampler has given, counted from where a state was restored."""
        return self._drawn

    @property
    def epoch(self) -> int | None:
        """The sampler's own epoch, if it keeps one (DistributedSampler)."""
        epoch = getattr(self._source, "epoch", None)
        return epoch if isinstance(epoch, int) else None

    def set_epoch(self, epoch: int) -> None:
        """Passed on to samplers that have one."""
        set_epoch = getattr(self._source, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)

    def draw(self) -> EpochPlan:
        """The next epoch: iterates the sampler once."""
        batches: list[list[int]]
        if self._batch_sampler is not None:
            batches = [_batch(batch, i) for i, batch in enumerate(self._batch_sampler)]
        else:
            assert self._sampler is not None
            ids = [_id(sample) for sample in self._sampler]
            size = self._batch_size
            batches = [ids[i : i + size] for i in range(0, len(ids), size)]
            if self._drop_last and batches and len(batches[-1]) < size:
                batches.pop()
        flat = [sample for batch in batches for sample in batch]
        ends = np.cumsum([len(batch) for batch in batches], dtype=np.uint64)
        plan = EpochPlan(np.array(flat, dtype=np.uint64), ends.astype(np.uint64))
        self._hashes[self._drawn] = plan.hash
        self._drawn += 1
        return plan

    def draw_again(self, state: Mapping[str, Any]) -> EpochPlan:
        """The epoch that a state was saved in.

        A sampler that counts its epochs itself was told the number when the state was loaded. Any
        other is asked as often as it was: one that draws from a generator gives epoch e when asked
        for the (e + 1)-th time.
        """
        before = state["sampler_draws"]
        wanted = state["sampler_hash"]
        if state["sampler_epoch"] is None:
            while self._drawn < before:
                self.draw()
            wanted = wanted or self._hashes.get(before)
        self._drawn = before
        plan = self.draw()
        if wanted is not None and plan.hash != wanted:
            self._hashes[before] = wanted
            raise FailedPreconditionError(
                f"restoring epoch {state['epoch']}: the sampler gives other samples (hash "
                f"{plan.hash}) than when the state was saved (hash {wanted}); build it with the "
                "same arguments and a generator of the same seed "
                "(generator=torch.Generator().manual_seed(seed)), and load the state before the "
                "first iteration"
            )
        return plan


def _batch(batch: Any, number: int) -> list[int]:
    if isinstance(batch, (str, bytes)) or not hasattr(batch, "__iter__"):
        raise InvalidArgumentError(
            f"batch_sampler: gave {batch!r}, must give batches: lists of numbers of samples"
        )
    ids = [_id(sample) for sample in batch]
    if not ids:
        raise InvalidArgumentError(
            f"batch_sampler: batch {number} of the epoch is empty, must hold a sample or more; "
            "leave empty batches out"
        )
    return ids


def _id(sample: Any) -> int:
    number = whole(sample)
    if number is None:
        raise InvalidArgumentError(
            f"sampler: gave {sample!r}, must give integers: numbers of samples"
        )
    if not 0 <= number < 2**63:
        raise InvalidArgumentError(f"sampler: gave {number}, samples are numbered from 0")
    return number


def sampler_source(
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Iterable[Any]] | None,
    options: _core.LoaderOptions,
    drop_last: bool,
) -> SamplerSource:
    """Where the epochs of a loader with a sampler come from; fits its options to that."""
    source = SamplerSource(sampler, batch_sampler, options.batch_size, drop_last)
    # The loader's own plan is not used; what would refuse it does not matter.
    options.drop_last, options.rank, options.world_size = False, 0, 1
    known = getattr(batch_sampler, "batch_size", None)
    if isinstance(known, int) and 1 <= known <= 2**24:
        options.batch_size = known  # What the memory is divided for.
    return source
