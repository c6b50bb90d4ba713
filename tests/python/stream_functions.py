"""What workers of a DataLoader run in tests: at the top of a module, for spawn."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import headrace as hr


def drawn(sample: hr.Sample) -> tuple[int, int, int]:
    return sample.id, int(sample.image[0, 0, 0]), int(sample.rng.integers(1 << 40))


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def encoded(samples: list[Any]) -> list[tuple[bytes, int]]:
    return [(sample.image.numpy().tobytes(), int(sample.label)) for sample in samples]


def labels(samples: list[Any]) -> list[int]:
    return [int(sample.label) for sample in samples]


class FailsAt:
    """Raises, or dies, at one sample."""

    def __init__(self, sample: int, *, kill: bool = False) -> None:
        self.sample = sample
        self.kill = kill

    def __call__(self, sample: hr.Sample) -> int:
        if sample.id == self.sample:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyError("no such thing")
        return sample.id


def leave(sample: hr.Sample) -> int:
    sys.exit(3)


def pid_and_id(sample: hr.Sample) -> tuple[int, int]:
    return os.getpid(), sample.id
