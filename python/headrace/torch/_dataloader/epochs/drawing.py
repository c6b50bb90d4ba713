"""One epoch of a sampler: drawn batch by batch, as torch does, and drawn again after a restore."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import torch

from headrace import _core
from headrace._arguments import whole
from headrace._loading.passes.origins import epoch_of, is_torchs, layers, stateful, teller
from headrace.errors import FailedPreconditionError
from headrace.torch._dataloader.epochs import generators
from headrace.torch._dataloader.epochs.epoch_sampler import EpochSampler
from headrace.torch._dataloader.epochs.generators import decoded, encoded
from headrace.torch._dataloader.epochs.seeds import mixed


@dataclass(frozen=True)
class Share:
    """Which part of its samples a sampler gives, as torch's DistributedSampler."""

    kind: str
    """The sampler's type."""
    ranks: int
    rank: int
    seed: int | None
    shuffle: bool | None
    drop_last: bool | None


@dataclass(frozen=True)
class Source:
    """What a loader draws from."""

    sampler: Any
    """Gives keys of a batch, or one key each, without automatic batching."""
    batched: bool
    generator: torch.Generator | None
    asks_twice: bool
    """With workers torch's DataLoader calls ``iter(sampler)`` twice."""
    state_every: int
    """Steps between two states of a sampler that has them."""
    kept_seed: int | None = None
    """The base seed of the epoch before, if workers persist: torch draws one for all epochs, and
    calls ``iter(sampler)`` once in the later ones."""

    @property
    def has_epoch(self) -> bool:
        """Whether the sampler, or one that it wraps, has `set_epoch`."""
        return teller(self.sampler) is not None

    def set_epoch(self, epoch: int) -> None:
        """Calls `set_epoch` of the sampler, or of the first that it wraps, if one has it."""
        if (tell := teller(self.sampler)) is not None:
            tell(epoch)

    @property
    def epoch(self) -> int | None:
        """The sampler's own epoch, if it has `set_epoch` and `epoch`."""
        return epoch_of(self.sampler)

    @property
    def share(self) -> Share | None:
        """That of the first sampler which divides its samples over ranks."""
        for layer in layers(self.sampler):
            ranks, rank = (whole(getattr(layer, name, None)) for name in ("num_replicas", "rank"))
            if ranks is not None and rank is not None:
                kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
                more = (getattr(layer, name, None) for name in ("seed", "shuffle", "drop_last"))
                return Share(kind, ranks, rank, *more)
        return None

    @property
    def stateful(self) -> Any:
        """The sampler with ``state_dict``, if there is one."""
        return stateful(self.sampler)

    def origin(self) -> Origin:
        """What a pass that begins now depends on."""
        states = generators.states(generators.of_sampler(self.sampler, self.generator))
        own = self.stateful
        sampler = own.state_dict() if own is not None else None
        return Origin(states, encoded(torch.get_rng_state()), self.epoch, sampler)


@dataclass(frozen=True)
class Origin:
    """What a pass of a sampler depends on, as plain values; the sampler's state is what it is."""

    generators: list[Any]
    global_state: str
    epoch: int | None
    sampler: Any

    def apply(self, source: Source) -> None:
        """Sets the generators and the sampler's state; not its epoch and torch's global generator.

        Raises: FailedPreconditionError if the samplers have other generators.
        """
        own_generators = generators.of_sampler(source.sampler, source.generator)
        generators.set_states(own_generators, self.generators)
        if self.sampler is not None:
            stateful = source.stateful
            if stateful is None:
                raise FailedPreconditionError(
                    "state: saved with a sampler that has state_dict(), restored with one that has "
                    "none: give the same sampler"
                )
            stateful.load_state_dict(self.sampler)


@dataclass(frozen=True)
class Snapshot:
    """The state of a sampler after some batches of an epoch."""

    batches: int
    place: int
    mark: str
    state: Any


@dataclass(frozen=True)
class Drawn:
    """Keys of one batch, and the position after it."""

    number: int
    keys: Any
    """As the batch sampler gave them: ``__getitems__`` gets them so. Without automatic batching one
    key."""
    place: int
    rows: int
    mark: str
    """A hash of all keys of the epoch until here."""
    snapshot: Snapshot | None
    """The newest one of a sampler that has states."""

    @property
    def place_after(self) -> int:
        return self.place + self.rows


class Drawing:
    """A pass of a source's sampler. Draws from torch's generators in the order of torch's
    DataLoader.

    Thread safety: none.
    """

    def __init__(self, source: Source, base_seed: int | None = None) -> None:
        """Begins a pass; or again one that had this `base_seed`, whether it was drawn or kept."""
        self._source = source
        for layer in layers(source.sampler):
            if isinstance(layer, EpochSampler):
                layer.finish()  # Now: the origin is that of the pass that begins.
        self.origin = source.origin()
        self._iterator = iter(source.sampler)
        if base_seed is None and source.kept_seed is not None:
            self.base_seed, is_drawn = _seed_after(source.kept_seed), False
        else:
            self.base_seed, is_drawn = _draw_seed(source.generator, base_seed)
        if source.asks_twice and is_drawn:
            self._iterator = iter(source.sampler)
        self._count = 0
        self._place = 0
        self._mark = ""
        self._snapshot: Snapshot | None = None
        self._ended = False
        self.follows_state = False
        """Whether a state of the sampler was set. At the end of a pass, as those that torchdata's
        samplers have between two, it gives nothing more: then the next pass is drawn."""
        self._batches = _batches(source.sampler)
        self.sampler_epoch = self.origin.epoch
        """The sampler's own epoch, as this pass left it: some go on to the next when they end,
        before the batch sampler gives their last keys."""

    def next(self) -> Drawn | None:
        """The next batch's keys; None at the end. Raises whatever the sampler raises."""
        if self._ended:
            return None
        try:
            keys = next(self._iterator)
            if self._source.batched and not isinstance(keys, Sized):
                keys = list(keys)
        except StopIteration:
            if self.follows_state and not self._count:
                self.follows_state = False
                self._iterator = iter(self._source.sampler)
                return self.next()
            self._ended = True
            return None
        except Exception as error:
            kind = type(self._source.sampler).__name__
            error.add_note(f"drawing batch {self._count} from a {kind}")
            raise
        finally:
            if self.sampler_epoch is not None:
                self.sampler_epoch = self._source.epoch
        rows = len(keys) if self._source.batched else 1
        self._mark = _marked(self._mark, list(keys) if self._source.batched else keys)
        number, place = self._count, self._place
        self._count += 1
        self._place += rows
        stateful = self._source.stateful
        if stateful is not None and self._count % self._source.state_every == 0:
            self._snapshot = Snapshot(self._count, self._place, self._mark, stateful.state_dict())
        return Drawn(number, keys, place, rows, self._mark, self._snapshot)

    @property
    def is_over(self) -> bool:
        """Whether it is known that no batch follows."""
        return self._ended or self._count >= self._batches

    @property
    def count(self) -> int:
        """Batches drawn until now."""
        return self._count

    @property
    def asked(self) -> int:
        """How often a batch was asked for: one more than `count` after the end."""
        return self._count + self._ended

    def rewind_to(self, asked: int) -> None:
        """Sets the generators that the samplers have to what they are after a batch was asked for
        so often. Not if somebody else has drawn from them; nor those of samplers that are not
        torch's, which may follow more than their generators."""
        source = self._source
        own_generators = generators.of_sampler(source.sampler, source.generator)
        if not own_generators or not is_torchs(source.sampler) or asked == self.asked:
            return
        now, shared = generators.states(own_generators), torch.get_rng_state()
        with contextlib.suppress(Exception):  # The sampler's own, which it raised before.
            generators.set_states(own_generators, self.origin.generators)
            torch.set_rng_state(decoded(self.origin.global_state))
            keys = Drawing(source, self.base_seed)._iterator
            drawn, wanted = None, None
            for number in range(max(asked, self.asked) + 1):
                drawn = generators.states(own_generators) if number == self.asked else drawn
                wanted = generators.states(own_generators) if number == asked else wanted
                next(keys, None)
            if drawn == now and wanted is not None:
                now = wanted
        generators.set_states(own_generators, now)
        torch.set_rng_state(shared)

    def restart(self, snapshot: Snapshot) -> None:
        """The sampler has the state of this snapshot: what comes next follows it."""
        self._iterator = iter(self._source.sampler)
        self._count, self._place = snapshot.batches, snapshot.place
        self._mark, self._snapshot = snapshot.mark, snapshot


def _batches(sampler: Any) -> float:
    """The length of a sampler, if it gives as many batches as it says; else infinity."""
    return len(sampler) if is_torchs(sampler, EpochSampler) else float("inf")


def _draw_seed(generator: torch.Generator | None, known: int | None) -> tuple[int, bool]:
    """Draws a base seed as `torch.utils.data.dataloader._BaseDataLoaderIter.__init__` does.

    If another is `known`, it was kept: then nothing is drawn. Returns it, and whether it is drawn.
    """
    source = torch.default_generator if generator is None else generator
    before = source.get_state()
    drawn = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
    if known is not None and drawn != known:
        source.set_state(before)
        return known, False
    return drawn, True


def _seed_after(seed: int) -> int:
    """The base seed of the next epoch, where none is drawn: samples do not draw the same again."""
    return mixed(seed) >> 1


def _marked(before: str, keys: Any) -> str:
    try:
        data = array("q", keys if isinstance(keys, list) else [keys]).tobytes()
    except (TypeError, OverflowError):
        data = repr(keys).encode()
    return f"{_core.hash64(before.encode() + b'|' + data):016x}"
