"""Epochs of a given size from a sampler of any length."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from headrace._arguments import integer, iterable
from headrace._loading.passes.origins import epoch_of, stateful, teller
from headrace.torch._dataloader.epochs import generators
from headrace.torch._dataloader.epochs.generators import decoded, encoded


class EpochSampler(Sampler[Any]):
    """Each pass gives the next `size` keys of `sampler`, which restarts when it ends.

    A pass that is left early counts as a whole: the next one does not depend on how far it was
    drawn.

    For samplers without an end, and for epochs that are shorter or longer than a pass:

    >>> loader = hr.Loader("images", 64, sampler=headrace.torch.EpochSampler(endless, 10_000))

    A sampler that has a length, and no state of its own, is drawn as a whole when it begins; any
    other key by key. A state holds the sampler's own state; or, if it has none, the generators and
    the sampler's epoch when its pass began, from which a restore draws the pass again.

    Thread safety: none.

    Args:
        size: keys of a pass, at least 1.

    Raises RuntimeError, when iterated, if `sampler` gives no keys at all.
    """

    def __init__(self, sampler: Iterable[Any], size: int) -> None:
        integer("size", size, 1, 2**62)
        iterable("sampler", sampler)
        self.sampler = sampler
        self._size = size
        self._iterator: Iterator[Any] | None = None
        self._taken = 0  # keys of the sampler's pass
        self._began: tuple[list[Any], str, int | None] | None = None
        """Generators, torch's global one, and the sampler's epoch."""
        self._yielded = 0  # keys of this sampler's pass
        self._resumes = False
        self._epoch: int | None = None
        """The sampler's, when this sampler's pass began."""

    def __len__(self) -> int:
        return self._size

    @property
    def generator(self) -> torch.Generator | None:
        """That of a RandomSampler. Accelerate keeps it equal on all processes."""
        made: torch.Generator | None = getattr(self.sampler, "generator")  # noqa: B009
        return made

    @generator.setter
    def generator(self, generator: torch.Generator | None) -> None:
        self.sampler.generator = generator  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Any]:
        self.finish()
        self._resumes = False
        self._epoch = epoch_of(self.sampler)
        while self._yielded < self._size:
            key = self._next()
            self._yielded += 1
            yield key

    def finish(self) -> None:
        """Draws the rest of a pass that was left. One whose state was loaded goes on instead."""
        if not self._resumes:
            self.finish_loaded()

    def finish_loaded(self) -> None:
        """Draws the rest of a pass that was left, or whose state was loaded."""
        self._resumes = False
        if 0 < self._yielded < self._size:
            with self._in_epoch(self._epoch):
                while self._yielded < self._size:
                    self._next()
                    self._yielded += 1
        if self._yielded == self._size:
            self._yielded = 0

    def _next(self) -> Any:
        for _ in range(2):
            if self._iterator is None:
                self._begin()
            assert self._iterator is not None
            for key in self._iterator:
                self._taken += 1
                return key
            self._iterator = None
        raise RuntimeError(
            f"drawing an epoch: {type(self.sampler).__name__} gave no keys: give a sampler that "
            "gives some in each pass"
        )

    def _begin(self) -> None:
        own_generators = generators.of_sampler(self.sampler)
        epoch = epoch_of(self.sampler)
        self._began = generators.states(own_generators), encoded(torch.get_rng_state()), epoch
        self._taken = 0
        self._iterator = iter(self.sampler)
        if isinstance(self.sampler, Sized) and stateful(self.sampler) is None:
            self._iterator = iter(list(self._iterator))

    def state_dict(self) -> dict[str, Any]:
        """The position, and what draws the sampler's pass again."""
        inner = stateful(self.sampler)
        return {
            "given": self._yielded,
            "taken": self._taken if self._iterator is not None else None,
            "began": None if self._began is None else list(self._began),
            "now": generators.states(generators.of_sampler(self.sampler)),
            "global_now": encoded(torch.get_rng_state()),
            "sampler": inner.state_dict() if inner is not None else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues there, with torch's global generator, too."""
        self._yielded, self._resumes = state["given"], True
        self._epoch = epoch_of(self.sampler)
        self._iterator = None
        inner = stateful(self.sampler)
        if inner is not None:
            inner.load_state_dict(state["sampler"])
            return
        own_generators = generators.of_sampler(self.sampler)
        if state["taken"] is not None:
            states, global_state, *epoch = state["began"]  # States did not always have an epoch.
            generators.set_states(own_generators, states)
            torch.set_rng_state(decoded(global_state))
            self._draw_again(state["taken"], epoch[0] if epoch else None)
        generators.set_states(own_generators, state["now"])
        torch.set_rng_state(decoded(state["global_now"]))

    def _draw_again(self, taken: int, epoch: int | None) -> None:
        """Draws so many keys of a pass that began in this epoch, which may be an earlier one."""
        with self._in_epoch(epoch):
            self._begin()
            for _ in range(taken):
                self._next()

    @contextlib.contextmanager
    def _in_epoch(self, epoch: int | None) -> Iterator[None]:
        """The sampler's epoch is this one meanwhile, if it has epochs."""
        now, tell = epoch_of(self.sampler), teller(self.sampler)
        if tell is None or epoch is None:
            yield
            return
        tell(epoch)
        try:
            yield
        finally:
            if now is not None:
                tell(now)


def limit_epochs(arguments: dict[str, Any], size: int) -> None:
    """Replaces the sampler by one that gives `size` keys a pass."""
    sampler = arguments["sampler"]
    if sampler is None:
        dataset = arguments["dataset"]
        if arguments["shuffle"]:
            sampler = RandomSampler(dataset, generator=arguments["generator"])
        else:
            sampler = SequentialSampler(dataset)
    elif arguments["shuffle"]:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    arguments["sampler"], arguments["shuffle"] = EpochSampler(sampler, size), None
