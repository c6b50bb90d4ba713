"""What a run is asked to do and what it reports: plain values that pass between processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["torch", "folder", "pack"]

TITLES: dict[Kind, str] = {
    "torch": "torch DataLoader",
    "folder": "Headrace, folder",
    "pack": "Headrace, pack",
}

EPOCHS_MIN = 2  # of a run; after so many, loaders are compared by loss


@dataclass(frozen=True)
class RunPlan:
    """One training run."""

    kind: Kind
    round: int
    images: Path  # the class folders
    source: Path  # these, or the pack
    index: Path  # of the class folders
    samples: int
    classes: int
    epochs: int | None  # None: the run chooses it, to take about `seconds`
    seconds: float
    batch_size: int
    image_side: int  # pixels that the network sees
    workers: int  # of torch's DataLoader
    trainer_threads: int
    seed: int


@dataclass(frozen=True)
class Ready:
    """Sent when all but the loader is there."""

    epochs: int


@dataclass(frozen=True)
class Progress:
    """Sent after each step."""

    epoch: int
    samples: int  # of the epoch, so far
    loss: float


@dataclass
class Epoch:
    """One of a run's epochs.

    Between epochs the dataset is evicted from the page cache. Headrace may read ahead meanwhile, so
    that pause is on its clock; torch's DataLoader does nothing then, and its clock stands still.
    """

    seconds: float = 0.0
    wait_seconds: float = 0.0  # of these, in next() of the loader
    pause_seconds: float = 0.0  # of these, for eviction
    resident_bytes: int = 0  # of the dataset in the page cache when the epoch began
    loss: float = 0.0  # mean over the epoch
    accuracy: float = 0.0
    once: bool = False  # each sample number was delivered exactly once
    labels: list[int] = field(default_factory=list)  # delivered of each class


@dataclass(frozen=True)
class CoreTime:
    """Seconds of a core that one sample takes when it is in memory and nothing has to be read."""

    training: float  # of the thread that trains
    decoding: float  # by Headrace's decoder, on all cores at once


@dataclass
class Run:
    """One finished training run."""

    kind: Kind
    round: int
    samples: int
    epochs: list[Epoch]
    names_forgotten: bool  # names and inodes were dropped from caches, not only pages
    device_bytes: int | None  # None: the system does not tell
    others_cpu_share: float  # of all cores' time, that other processes took meanwhile
    causes: dict[str, float]  # seconds waited by cause; or of workers' time, for torch
    causes_are: Literal["waited", "workers"]
    core_time: CoreTime  # measured right after the run, by the same process
    clock_began: float  # time.perf_counter(), the same clock in all processes
    clock_ended: float
    memory_peak: int = 0  # bytes, of the process tree
    memory_before: int = 0  # before the loader was made
    memory_series: list[tuple[float, int]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """All epochs together."""
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def wait_seconds(self) -> float:
        """Of them, in next()."""
        return sum(epoch.wait_seconds for epoch in self.epochs)

    @property
    def samples_per_second(self) -> float:
        """Over all epochs, start of the loader included."""
        return self.samples / self.seconds
