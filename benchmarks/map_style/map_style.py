"""A map-style dataset in `headrace.torch.DataLoader` and in torch's.

    python benchmarks/map_style/map_style.py [--rounds 5] [--quick]

Three datasets. `latency`: a sample is a wait of 5 ms, as of a remote store, and a small tensor;
32 fetches in flight in Headrace's loader (32 threads; 2 processes of 16 threads; 32 processes),
torch's with 2 workers. `python`: a sample is a loop of about a millisecond in Python, and an image;
both with two processes. `large rows`: a sample is a crop of an image, resized to 600 KB of float32,
in batches of 256, with two and four processes each. All give the same samples in the same order,
which is checked. Rates of the first two are of the second half of an epoch, when nothing is left of
what was read while workers started; the time until the first batch is given. Those of large rows
are of a whole epoch, with the start of its workers: at its middle up to eight of 16 batches are in
work, which would count for nothing. Memory is what all processes together have beyond the process
without a loader (PSS of /proc). CPU time is that of all processes, until the loader has ended.
Loaders take turns; ratios are of one round, their median is the figure.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _harness
import numpy as np
import torch
import torch.utils.data
from torch.utils.data import Dataset

from headrace.torch import DataLoader

BATCH = 64
LATENCY_SECONDS = 0.005
LOOPS = 20_000
COUNTS = {"torch": 1024, "headrace": 8192}
"""Samples that wait: half of them are more than what is read ahead."""
COMPUTED = 3072
LARGE, LARGE_BATCH = 4096, 256


class Latency(Dataset[Any]):
    """Waits, as for a remote store."""

    def __init__(self, of: str) -> None:
        self._count = COUNTS[of]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        time.sleep(LATENCY_SECONDS)
        return torch.full((256,), float(number)), number


class Computes(Dataset[Any]):
    """Keeps a core busy in Python."""

    def __len__(self) -> int:
        return COMPUTED

    def __getitem__(self, number: int) -> Any:
        total = 0
        for step in range(LOOPS):
            total += step * step
        return torch.full((3, 64, 64), number % 256, dtype=torch.uint8), number


class LargeRows(Dataset[Any]):
    """Crops an image and resizes it."""

    def __init__(self) -> None:
        self._image = np.random.default_rng(0).integers(0, 255, (400, 520, 3), np.uint8)

    def __len__(self) -> int:
        return LARGE

    def __getitem__(self, number: int) -> Any:
        image = torch.from_numpy(self._image).permute(2, 0, 1)
        crop = image[:, number % 100 : number % 100 + 300, :400].to(torch.float32)[None]
        resized = torch.nn.functional.interpolate(crop, (224, 224), mode="bilinear", antialias=True)
        return resized[0].div_(255).sub_(0.45).div_(0.22), number


def loaders() -> dict[str, dict[str, Callable[[], Any]]]:
    torchs: Any = torch.utils.data.DataLoader
    kept = {"num_workers": 2, "persistent_workers": True}
    return {
        "latency": {
            "torch, 2 workers": lambda: torchs(Latency("torch"), BATCH, **kept),
            "headrace, 32 threads": lambda: DataLoader(
                Latency("headrace"), BATCH, num_workers=32, worker_method="thread"
            ),
            "headrace, 2 processes of 16 threads": lambda: DataLoader(
                Latency("headrace"), BATCH, **kept, pool_size=32
            ),
            "headrace, 32 processes": lambda: DataLoader(
                Latency("headrace"),
                BATCH,
                num_workers=32,
                persistent_workers=True,
                prefetch_factor=1,  # 2,048 samples ahead
            ),
        },
        "python": {
            "torch, 2 workers": lambda: torchs(Computes(), BATCH, **kept),
            "headrace, 2 processes": lambda: DataLoader(Computes(), BATCH, **kept),
        },
        "large rows, 2 workers": {
            "torch": lambda: torchs(LargeRows(), LARGE_BATCH, num_workers=2),
            "headrace": lambda: DataLoader(LargeRows(), LARGE_BATCH, num_workers=2),
        },
        "large rows, 4 workers": {
            "torch": lambda: torchs(LargeRows(), LARGE_BATCH, num_workers=4),
            "headrace": lambda: DataLoader(LargeRows(), LARGE_BATCH, num_workers=4),
        },
    }


def memory_bytes() -> int:
    """PSS of this process and its children."""
    total = 0
    children = [each.pid for each in multiprocessing.active_children()]
    for process in (os.getpid(), *children):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def cpu_seconds() -> float:
    """Of this process and those that it has waited for."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run(make: Callable[[], Any]) -> dict[str, float]:
    """An epoch of a new loader, until its processes have ended."""
    begin = cpu_seconds()
    loader = make()
    found = epoch(loader)
    count = len(loader.dataset)
    getattr(loader, "close", lambda: None)()
    del loader
    gc.collect()
    return found | {"cpu_ms_a_sample": 1e3 * (cpu_seconds() - begin) / count}


def epoch(loader: Any) -> dict[str, float]:
    """Seconds until the first batch, samples a second in the second half and as a whole, memory."""
    count = len(loader.dataset)
    before = memory_bytes()
    begin = time.perf_counter()
    iterator = iter(loader)
    ids = next(iterator)[1].tolist()
    first = time.perf_counter() - begin
    memory, half, counted = 0, 0.0, 0
    for step, batch in enumerate(iterator, 2):
        ids += batch[1].tolist()
        if step == len(loader) // 4:
            memory = memory_bytes()
        if step == len(loader) // 2:
            half = time.perf_counter()
            counted = count - len(ids)
    end = time.perf_counter()
    assert ids == list(range(count)), "samples in another order"
    return {
        "first_batch_s": first,
        "samples_s": counted / (end - half),
        "epoch_samples_s": count / (end - begin),
        "memory_bytes": memory - before,
    }


def ratio(ours: list[dict[str, float]], base: list[dict[str, float]], rate: str) -> float:
    """The median of the rounds' ratios."""
    return median(our[rate] / of_base[rate] for our, of_base in zip(ours, base, strict=True))


def measure(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, makers in loaders().items():
        runs: dict[str, list[dict[str, float]]] = {label: [] for label in makers}
        for turn in range(rounds):
            labels = list(makers) if turn % 2 == 0 else list(reversed(makers))
            for label in labels:
                runs[label].append(run(makers[label]))
        rate = "epoch_samples_s" if name.startswith("large rows") else "samples_s"
        base = next(iter(runs.values()))
        found[name] = {
            label: {key: median(one[key] for one in of_label) for key in of_label[0]}
            | {
                "samples_s": median(one[rate] for one in of_label),
                "ratio": ratio(of_label, base, rate),
            }
            for label, of_label in runs.items()
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, no record: to see it work")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")
    found = measure(1 if arguments.quick else arguments.rounds)
    for name, rows in found.items():
        print(name)
        for label, row in rows.items():
            print(
                f"  {label:<36} {row['samples_s']:8.0f} samples/s  {row['ratio']:5.2f} x torch"
                f"  first batch {row['first_batch_s']:.3f} s"
                f"  memory {row['memory_bytes'] / 2**20:.0f} MiB"
                f"  CPU {row['cpu_ms_a_sample']:.2f} ms a sample"
            )
    if not arguments.quick:
        _harness.record("map_style", found)


if __name__ == "__main__":
    main()
