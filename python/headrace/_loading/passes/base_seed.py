"""The base seed that torch's DataLoader draws from torch's global generator every epoch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


def _torch() -> Any:
    """torch, if it was imported: without the import nothing draws from its generator."""
    return sys.modules.get("torch")


def draw_base_seed() -> None:
    """Draws as `torch.utils.data.dataloader._BaseDataLoaderIter.__init__` does."""
    torch = _torch()
    if torch is not None:
        torch.empty((), dtype=torch.int64).random_().item()


@contextlib.contextmanager
def repeating(base_seed: bool) -> Iterator[None]:
    """Wraps a pass of a sampler that repeats a pass of an earlier run, with or without `base_seed`.

    If the sampler does not draw from the global generator, the generator keeps its state: a user
    who restored it has the saved state. If the sampler draws from it, its state advances, and the
    next epoch is drawn from there. If the sampler raises, the generator keeps its state, too.
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
    """Restores the global generator's state at exit."""
    torch = _torch()
    state = torch.get_rng_state() if torch is not None else None
    try:
        yield
    finally:
        if torch is not None:
            torch.set_rng_state(state)
