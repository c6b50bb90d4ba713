"""What a pass of a sampler depends on: its own state, or the generators that it draws from."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from headrace._arguments import whole

_TORCHS = "torch.utils.data."
_LISTS = (list, tuple, range)
_LAYERS_MAX = 8  # limit of nested samplers, because a sampler may wrap itself


def layers(source: Any) -> Iterator[Any]:
    """Yields a sampler and the samplers that it wraps, as torch's BatchSampler does."""
    for _ in range(_LAYERS_MAX):
        yield source
        inner = getattr(source, "batch_sampler", None)
        source = inner if inner is not None else getattr(source, "sampler", None)
        if source is None:
            return


def teller(source: Any) -> Callable[[int], object] | None:
    """The `set_epoch` of the sampler, or of the first that it wraps which has one."""
    setters = (getattr(sampler, "set_epoch", None) for sampler in layers(source))
    return next((setter for setter in setters if callable(setter)), None)


def epoch_of(source: Any) -> int | None:
    """The sampler's own epoch, if it has `set_epoch` and `epoch` (DistributedSampler)."""
    if teller(source) is None:
        return None
    epochs = (whole(getattr(sampler, "epoch", None)) for sampler in layers(source))
    return next((epoch for epoch in epochs if epoch is not None), None)


def generators_of(source: Any, *others: Any) -> list[Any]:
    """The generators of torch and NumPy that the samplers have as attributes, after `others`; each
    once."""
    generators: list[Any] = list(others)
    for sampler in layers(source):
        for value in list(getattr(sampler, "__dict__", {}).values()):
            if _is_generator(value) and all(value is not known for known in generators):
                generators.append(value)
    return generators


def has_state(sampler: Any) -> bool:
    """Whether it has ``state_dict`` without arguments, and ``load_state_dict``."""
    asked = getattr(sampler, "state_dict", None)
    if not callable(asked) or not callable(getattr(sampler, "load_state_dict", None)):
        return False
    try:
        signature = inspect.signature(asked)
    except (TypeError, ValueError):  # Such as of a compiled class.
        return True
    try:
        signature.bind()
    except TypeError:  # A RedoxSampler needs to know how many batches were taken.
        return False
    return True


def is_torchs(source: Any, *others: type[Any]) -> bool:
    """Whether the sampler and those that it wraps are of torch's classes, lists, or `others`."""
    kinds = [type(sampler) for sampler in layers(source)]
    return all(kind.__module__.startswith(_TORCHS) or kind in (*_LISTS, *others) for kind in kinds)


def stateful(source: Any) -> Any:
    """The outermost sampler with ``state_dict`` and ``load_state_dict``; None if there is none."""
    return next(filter(has_state, layers(source)), None)


def sampler_state(source: Any) -> Any:
    """What its ``state_dict`` gives now; None if it has none."""
    sampler = stateful(source)
    return None if sampler is None else sampler.state_dict()


class Origin(NamedTuple):
    """A sampler before a pass, as this process can repeat it."""

    sampler: Any
    """What its ``state_dict`` gave."""
    generators: list[tuple[Any, Any]]
    """Those that it has, and their states."""
    shared: Any
    """The state of torch's global generator, if torch is imported."""

    @contextlib.contextmanager
    def rewound(self) -> Iterator[None]:
        """The generators are as they were. torch's global one is afterwards as it is now, unless
        the pass draws from it."""
        for generator, state in self.generators:
            set_state(generator, state)
        torch = sys.modules.get("torch")
        if torch is None or self.shared is None:
            yield
            return
        now = torch.get_rng_state()
        torch.set_rng_state(self.shared)
        try:
            yield
        except BaseException:
            torch.set_rng_state(now)
            raise
        if torch.equal(torch.get_rng_state(), self.shared):
            torch.set_rng_state(now)


def origin_of(source: Any) -> Origin:
    """What the next pass of this sampler depends on."""
    generators = [(generator, state_of(generator)) for generator in generators_of(source)]
    torch = sys.modules.get("torch")
    shared = torch.get_rng_state() if torch is not None else None
    return Origin(sampler_state(source), generators, shared)


def _is_generator(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(value, np.random.Generator) or (
        torch is not None and isinstance(value, torch.Generator)
    )


def state_of(generator: Any) -> Any:
    """The state of a generator of torch or NumPy."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state()


def set_state(generator: Any, state: Any) -> None:
    """Sets what `state_of` gave."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
