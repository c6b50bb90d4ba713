"""A user's sampler, list of indices or batch sampler, as the plan of one epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import whole
from headrace._loading.passes import left
from headrace._loading.passes.base_seed import draw_base_seed, repeating, untouched
from headrace._loading.passes.origins import (
    Origin,
    epoch_of,
    is_torchs,
    layers,
    origin_of,
    sampler_state,
    stateful,
    teller,
)
from headrace.errors import FailedPreconditionError, InvalidArgumentError

Ids = NDArray[np.uint64]

BATCH_MAX = 2**24  # samples
_PASSES_MAX, _MORE_MAX = 64, 2**20  # of the dataset, and samples, that an epoch may have
_ORIGINS_MAX = 64  # epochs that a loader can go back


class Drawn(NamedTuple):
    """The record in a state of an epoch that a sampler gave."""

    hash: str
    epoch: int | None  # the sampler's own number, if it keeps one


class EpochPlan:
    """The samples of one rank's epoch, in order, and the end of each batch."""

    def __init__(self, ids: Ids, batch_ends: Ids, sampler_epoch: int | None) -> None:
        self.ids = ids
        self.batch_ends = batch_ends
        self.sampler_epoch = sampler_epoch
        """The sampler's own epoch when it gave the samples, if it keeps one."""
        self.hash = f"{_core.hash64(ids.tobytes() + b'|' + batch_ends.tobytes()):016x}"
        """A hash by which a saved state recognises the epoch."""

    def __len__(self) -> int:
        """Batches in it."""
        return len(self.batch_ends)

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
    """Iterates a sampler only when its epoch begins, as torch does."""

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
        self._name = "sampler" if batch_sampler is None else "batch_sampler"
        self._drawn = 0
        self._gave_samples = False  # in any epoch
        self._known: dict[int, Drawn] = {}  # the epochs drawn, by their number
        self._origins: dict[int, Origin] = {}  # of the newest epochs drawn, by their number
        self._end: list[Any] = []  # states of the generators after the newest pass
        self._left: int | None = None  # the first pass, of all drawn, that was left early
        self.samples_max = 2**63
        """Of an epoch of a sampler that does not say how many it gives."""
        self.restored: dict[str, Any] | None = None
        """A restored state whose epoch is next and was not drawn again yet."""

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
        """Samples in a batch; None if a batch sampler decides."""
        return self._batch_size if self._batch_sampler is None else None

    @property
    def drop_last(self) -> bool:
        """Whether a last, smaller batch is left out."""
        return self._drop_last

    @property
    def drawn(self) -> int:
        """How many epochs the sampler has given, including those before a restored state."""
        return self._drawn

    @property
    def last(self) -> Drawn | None:
        """The record for a state of the last epoch drawn; None if a restore could not compare it.

        A sampler whose epoch is set but not readable (`set_epoch` without `epoch`) cannot repeat an
        epoch: the epoch's number is unknown.
        """
        last = self._known.get(self._drawn - 1)
        if last is None or (last.epoch is None and teller(self._source) is not None):
            return None
        return last

    @property
    def epoch(self) -> int | None:
        """The sampler's own epoch, if it has `set_epoch` and `epoch` (DistributedSampler)."""
        return epoch_of(self._source)

    @property
    def shares(self) -> int:
        """The number of ranks, if the sampler divides samples over ranks (DistributedSampler)."""
        counts = (whole(getattr(sampler, "num_replicas", None)) for sampler in layers(self._source))
        return next((count for count in counts if count is not None), 1)

    def state_before(self, plan: EpochPlan | None) -> Any:
        """The state of a sampler that has one, before the pass that gave `plan`, the newest; None:
        before the next one."""
        if plan is None:
            return sampler_state(self._source)
        origin = self._origins.get(self._drawn - 1)
        return None if origin is None else origin.sampler

    def generators_before(self, plan: EpochPlan | None) -> list[str] | None:
        """The states of the sampler's generators, as `state_before`. None if no pass before
        was left early: then the number of passes says them."""
        if self._left is None or self._left >= self._drawn - (plan is not None):
            return None
        if plan is None:
            return left.saved(left.states_of(self._source))
        origin = self._origins.get(self._drawn - 1)
        return None if origin is None else left.saved([state for _, state in origin.generators])

    def leave(self, plan: EpochPlan, step: int) -> None:
        """The loop has left `plan` after `step` batches: the generators of torch's samplers go on
        from where torch, which draws batch by batch, would have left them."""
        number = self._drawn - 1
        origin, known = self._origins.get(number), self._known.get(number)
        if origin is None or known is None or known.hash != plan.hash:
            return
        if is_torchs(self._source):
            went_back = left.go_back(self._source, origin, self._end, self._begin, step)
            if went_back and self._left is None:
                self._left = number

    def _begin(self) -> Iterator[Any]:
        """The batches of a pass, drawn as torch draws them."""
        if self._batch_sampler is not None:
            return iter(self._batch_sampler)
        from torch.utils.data import BatchSampler

        assert self._sampler is not None
        batches: Iterable[Any] = BatchSampler(self._sampler, self._batch_size, self._drop_last)
        return iter(batches)

    def set_epoch(self, epoch: int) -> None:
        """Calls `set_epoch` of the sampler, or of the sampler in a batch sampler, if any."""
        self._tell(epoch)
        if self.restored is not None:
            self.restored["sampler_epoch"] = self.epoch

    def _tell(self, epoch: int) -> None:
        if (tell := teller(self._source)) is not None:
            tell(epoch)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Makes the epoch of this state the next one."""
        if state.get("sampler_state") is not None and stateful(self._source) is None:
            raise FailedPreconditionError(
                "state: saved with a sampler that has state_dict(), restored with one that has "
                "none: give the same sampler"
            )
        self.restored = dict(state)
        if state["sampler_epoch"] is not None:
            self._tell(state["sampler_epoch"])  # Now: the user may call set_epoch() again later.

    def next_plan(self, base_seed: bool = True) -> EpochPlan:
        """Draws the next epoch. Iterates the sampler once, or more often after a restore."""
        if self.restored is None:
            return self._draw(base_seed)
        plan = self._draw_again(self.restored, base_seed)
        self.restored = None
        return plan

    def _draw(self, base_seed: bool) -> EpochPlan:
        """Iterates the sampler once.

        torch's DataLoader draws a base seed from the global generator just before it asks for the
        first batch; with `base_seed` this function does, too, so that later draws from it are
        equal.
        """
        origin = origin_of(self._source)
        plan = self._ask(base_seed)
        self._end = left.states_of(self._source)
        self._origins[self._drawn] = origin
        self._origins.pop(self._drawn - _ORIGINS_MAX, None)
        self._known[self._drawn] = Drawn(plan.hash, plan.sampler_epoch)
        self._drawn += 1
        return plan

    def _ask(self, base_seed: bool) -> EpochPlan:
        epoch = self.epoch  # Before iterating: some samplers count when they are iterated.
        batches: list[list[int]]
        if self._batch_sampler is not None:
            asked = iter(self._batch_sampler)
            if base_seed:
                draw_base_seed()
            batches = []
            count = 0
            for batch in asked:
                batches.append(_batch(batch, len(batches)))
                count += len(batches[-1])
                self._check_ends(count)
            self._check_given(bool(batches))
        else:
            assert self._sampler is not None
            if base_seed:
                draw_base_seed()
            ids: list[int] = []
            for sample in self._sampler:
                ids.append(_id("sampler", sample))
                self._check_ends(len(ids))
            self._check_given(bool(ids))
            size = self._batch_size
            batches = [ids[i : i + size] for i in range(0, len(ids), size)]
            if self._drop_last and batches and len(batches[-1]) < size:
                batches.pop()
        flat = [sample for batch in batches for sample in batch]
        ends = np.cumsum([len(batch) for batch in batches], dtype=np.uint64)
        return EpochPlan(np.array(flat, dtype=np.uint64), ends.astype(np.uint64), epoch)

    def _check_ends(self, count: int) -> None:
        """Refuses a sampler that never ends: its epoch is drawn as a whole."""
        if count > self.samples_max and not isinstance(self._source, Sized):
            raise InvalidArgumentError(
                f"{self._name}: {type(self._source).__name__} gave {count:,} samples and has no "
                "end: a loader takes a whole epoch of it; end the epochs in its __iter__, or "
                "give headrace.torch.EpochSampler(sampler, size)"
            )

    def _check_given(self, any_samples: bool) -> None:
        """Refuses an epoch without samples after one that had some."""
        if self._gave_samples and not any_samples:
            raise InvalidArgumentError(
                f"{self._name}: {type(self._source).__name__} gave no samples for epoch "
                f"{self._drawn} of the run, but gave some before: its __iter__ does not begin "
                "anew; make it return a new iterator at each call, over a list if it has only one"
            )
        self._gave_samples = any_samples

    def _draw_again(self, state: Mapping[str, Any], base_seed: bool) -> EpochPlan:
        """Draws again the epoch that a state was saved in, or just before.

        A sampler that keeps its epoch received the number when the state was loaded. One with a
        state of its own gets that. Any other is iterated as often as before: one that draws from a
        generator gives epoch e in its (e + 1)-th pass. If it has gone on since, its generators go
        back to where they were.

        Raises FailedPreconditionError if the sampler gives other samples than the state records for
        its epoch or, if it gave none in that epoch, for the previous one.
        """
        before = state["sampler_draws"]
        wanted = state["sampler_hash"]
        saved = state.get("sampler_state")
        generators = state.get("sampler_generators")
        if generators is None and saved is None and state["sampler_epoch"] is None:
            while self._drawn < before:
                with repeating(base_seed):
                    self._draw(base_seed)
                base_seed = True
            wanted = wanted or (self._known[before].hash if before in self._known else None)
        if state["sampler_hash"] is None:
            self._check_last(state)
        gone_on = self._drawn > before
        self._drawn = before
        if saved is not None:
            plan = self._draw_from(saved, base_seed)
        elif generators is not None:
            left.restore(self._source, generators)
            self._left = -1  # Before the state was saved.
            with repeating(base_seed):
                plan = self._draw(base_seed)
        elif gone_on and before in self._origins:
            with self._origins[before].rewound(), repeating(base_seed):
                plan = self._draw(base_seed)
        elif state["sampler_hash"] is None:
            plan = self._draw(base_seed)
        else:
            with repeating(base_seed):
                plan = self._draw(base_seed)
        if wanted is not None and plan.hash != wanted:
            self._known[before] = Drawn(wanted, plan.sampler_epoch)
            raise _other_samples(state["epoch"], "gives", plan.hash, wanted)
        return plan

    def _draw_from(self, saved: Any, base_seed: bool) -> EpochPlan:
        """Draws the pass that follows a sampler's own state. A state at the end of a pass, as
        torchdata's samplers have between two, gives nothing more: then the next pass."""
        stateful(self._source).load_state_dict(saved)
        self._gave_samples = False
        with repeating(base_seed):
            plan = self._draw(base_seed)
        if not len(plan):
            self._drawn -= 1
            with repeating(False):
                plan = self._draw(base_seed=False)
        self._origins[self._drawn - 1] = self._origins[self._drawn - 1]._replace(sampler=saved)
        return plan

    def _check_last(self, state: Mapping[str, Any]) -> None:
        """Refuses a sampler whose previous epoch differs from the state's previous epoch."""
        wanted = state.get("sampler_last_hash")  # Older states have no such record.
        if wanted is None:
            return
        number = state["sampler_draws"] - 1
        epoch = state["sampler_last_epoch"]
        if epoch is None:
            drawn = self._known.get(number)
            if drawn is not None and drawn.hash != wanted:
                raise _other_samples(state["epoch"], "gave before it", drawn.hash, wanted)
            return
        coming = self.epoch
        if coming is None:
            return
        try:
            self._tell(epoch)
            with untouched():
                plan = self._ask(base_seed=False)
        finally:
            self._tell(coming)
        if plan.sampler_epoch == epoch and plan.hash != wanted:
            raise _other_samples(state["epoch"], f"gives for its epoch {epoch}", plan.hash, wanted)
        self._known[number] = Drawn(wanted, epoch)


def _other_samples(epoch: int, gives: str, now: str, wanted: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"restoring epoch {epoch}: the sampler {gives} other samples (hash {now}) than when the "
        f"state was saved (hash {wanted}); build it with the same arguments and a generator of the "
        "same seed (generator=torch.Generator().manual_seed(seed)), and load the state before the "
        "first iteration; to go on with another sampler call set_epoch() instead of loading a state"
    )


def gives_one_epoch(source: Any) -> Any:
    """The generator or built-in iterator in `source`, empty after its first epoch; None if none.

    Not an iterator whose class has an `__iter__` written in Python, which may begin anew.
    """
    for sampler in layers(source):
        if isinstance(sampler, Iterator) and not isinstance(type(sampler).__iter__, FunctionType):
            return sampler
    return None


def _batch(batch: Any, number: int) -> list[int]:
    if isinstance(batch, (str, bytes)) or not hasattr(batch, "__iter__"):
        raise InvalidArgumentError(
            f"batch_sampler: gave {batch!r}, must give batches: lists of numbers of samples"
        )
    ids = [_id("batch_sampler", sample) for sample in batch]
    if not ids:
        raise InvalidArgumentError(
            f"batch_sampler: batch {number} of the epoch is empty, must hold a sample or more; "
            "leave empty batches out"
        )
    return ids


def _id(name: str, sample: Any) -> int:
    number = whole(sample)
    if number is None:
        raise InvalidArgumentError(
            f"{name}: gave {sample!r}, must give integers: numbers of samples"
        )
    if not 0 <= number < 2**63:
        raise InvalidArgumentError(f"{name}: gave {number}, samples are numbered from 0")
    return number


def planned_batch_size(batch_sampler: Any, batch_size: int) -> int:
    """The samples of a batch for which memory is divided."""
    known = getattr(batch_sampler, "batch_size", None)
    return known if isinstance(known, int) and 1 <= known <= BATCH_MAX else batch_size


def sampler_source(
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Iterable[Any]] | None,
    options: _core.LoaderOptions,
    drop_last: bool,
    samples: int,
) -> SamplerSource:
    """The source of a loader's epochs if it has a sampler. `samples`: of the dataset."""
    source = SamplerSource(sampler, batch_sampler, options.batch_size, drop_last)
    source.samples_max = _MORE_MAX + _PASSES_MAX * samples
    return source
