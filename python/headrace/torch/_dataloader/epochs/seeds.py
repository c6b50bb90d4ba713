"""The random numbers of one sample, whoever reads it."""

from __future__ import annotations

import random
import threading

import numpy as np
import torch

from headrace._workers.samples.sample import generator
from headrace.errors import FailedPreconditionError

_MASK = 2**64 - 1


class _Here(threading.local):
    """The sample that this thread reads."""

    seed: int | None = None
    place: int = 0
    rng: np.random.Generator | None = None


_here = _Here()


def begin_sample(base_seed: int, place: int, *, whole_process: bool) -> None:
    """Call it before the sample is read which is number `place` in its epoch.

    With `whole_process` the generators of torch, Python and NumPy are seeded, which all threads of
    a process share.
    """
    _here.seed, _here.place, _here.rng = base_seed, place, None
    if whole_process:
        seed = (base_seed + place) & (2**63 - 1)
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(mixed(seed) & 0xFFFFFFFF)  # It takes 32 bits.


def end_sample() -> None:
    """Call it after a sample was read: `sample_rng` fails until the next one begins."""
    _here.seed = _here.rng = None


def sample_rng() -> np.random.Generator:
    """The random numbers of the sample that a DataLoader of `headrace.torch` is reading.

    Call it in ``__getitem__`` or a transform. They are fixed by the loader's base seed, which torch
    draws for every epoch, or once if workers persist, and by the sample's place in the epoch: for
    any number of workers, processes, threads or none, and after a resume.

    Raises:
        FailedPreconditionError: no such DataLoader is reading a sample in this thread.
    """
    if _here.seed is None:
        raise FailedPreconditionError(
            "sample_rng(): no headrace.torch.DataLoader is reading a sample in this thread; call "
            "it in the dataset's __getitem__ or in a transform there"
        )
    if _here.rng is None:
        _here.rng = generator(_here.seed, 0, _here.place)
    return _here.rng


def mixed(value: int) -> int:
    """SplitMix64: neighbouring seeds become unrelated ones."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31
