"""The base seed that torch's DataLoader draws from torch's global generator every epoch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


def _torch() -> Any:
    """torch, if something imported it: what draws from its generator did."""
    return sys.modules.get("torch")


def draw_base_seed() -> None:
    """Draws as `torch.utils.data.dataloader._BaseDataLoaderIter.__init__` does."""
    torch = _torch()
    if torch is not None:
        torch.empty((), dtype=torch.int64).random_().item()


@contextlib.contextmanager
def repeating(base_seed: bool) -> Iterator[None]:
    """Around a pass of a sampler that repeats one of an earlier run, with `base_seed` or without.

    The global generator stays where it was if the sampler leaves it alone: whoever restored it
    with the state has it as it was saved. If the sampler draws from it, it moves on: the next
    epoch is drawn from there. If the sampler raises, it stays where it was, too.
    """
    torch = _torch()
    if torch is None:
        yield
        return
    before = torch.get_rng_state()
    try:
        yield
        after = torch.get_rng_state()
    finally:
        torch.set_rng_state(before)
    if base_seed:
        draw_base_seed()
    alone = torch.equal(torch.get_rng_state(), after)
    torch.set_rng_state(before if alone else after)


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Leaves the global generator where it was."""
    torch = _torch()
    state = torch.get_rng_state() if torch is not None else None
    try:
        yield
    finally:
        if torch is not None:
            torch.set_rng_state(state)
