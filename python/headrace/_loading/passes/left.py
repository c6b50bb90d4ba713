"""Passes that a training loop leaves early: generators go on as after torch's DataLoader."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace._arguments import shown
from headrace._loading.passes.base_seed import untouched
from headrace._loading.passes.origins import Origin, generators_of, set_state, state_of
from headrace.errors import FailedPreconditionError, InvalidArgumentError


def states_of(source: Any) -> list[Any]:
    """The states of the generators that the samplers have."""
    return [state_of(generator) for generator in generators_of(source)]


def go_back(
    source: Any, origin: Origin, end: Sequence[Any], begin: Callable[[], Iterator[Any]], asked: int
) -> bool:
    """Sets the generators of torch's samplers to what they are after `asked` batches of a pass.

    The pass began at `origin`, was taken to its end, and left the states `end`: nothing is done if
    somebody else has drawn since. `begin` begins it again. Returns whether a generator changed.
    """
    generators = [generator for generator, _ in origin.generators]
    if not generators or not _same(states_of(source), end):
        return False
    try:
        with untouched(), origin.rewound():
            batches = begin()
            for _ in range(asked):
                next(batches, None)
            return not _same(states_of(source), end)
    except BaseException:
        for generator, state in zip(generators, end, strict=True):
            set_state(generator, state)
        raise


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    import torch

    return len(left) == len(right) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(left, right, strict=True)
    )


def saved(states: Sequence[Any]) -> list[str]:
    """States of torch's generators as text, for a loader's state."""
    return [base64.b64encode(state.numpy().tobytes()).decode() for state in states]


def check_saved(states: Any) -> None:
    """Raises InvalidArgumentError if `saved` did not give this."""
    with contextlib.suppress(ValueError):
        if isinstance(states, list) and all(
            isinstance(text, str) and base64.b64decode(text, validate=True) for text in states
        ):
            return
    raise InvalidArgumentError(
        f"state: sampler_generators is {shown(states)}, must be a list of texts of base64: give "
        "what state_dict() gave, unchanged"
    )


def restore(source: Any, states: Sequence[str]) -> None:
    """Sets the generators of the samplers to what `saved` gave.

    Raises: FailedPreconditionError if the samplers have another number of them.
    """
    generators = generators_of(source)
    if len(generators) != len(states):
        raise FailedPreconditionError(
            f"state: saved with a sampler that has {len(states)} generators, restored with one "
            f"that has {len(generators)}: build it as before, "
            "with generator=torch.Generator().manual_seed(seed)"
        )
    import torch

    for generator, state in zip(generators, states, strict=True):
        data = bytearray(base64.b64decode(state))
        set_state(generator, torch.frombuffer(data, dtype=torch.uint8))
