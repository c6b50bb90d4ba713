"""What a Python transform in worker processes costs: Headrace beside torch's DataLoader.

    python benchmarks/workers_bench.py [--rounds 7] [--samples 200000] [--json FILE]

Records of one size, from a pack, in the page cache. The transform does nothing, so that what is
measured is everything else: reading, handing a sample to Python in a worker, and making batches.
Both have two workers, batches of 256, a shuffle, and tensors of (record, label). torch's dataset
takes records out of the memory-mapped pack, once with `__getitem__` and the default collate_fn, as
it is written most often, and once fetching and collating a whole batch at once (`__getitems__`);
the second is no per-sample transform any more, and stands here as the limit of what its processes
can do. Epochs of all run in turn, in alternating order; ratios are of one round, their median is
the figure.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import headrace as hr
from headrace import _core
from headrace.pack import PackParameters, write_pack

BATCH = 256
WORKERS = 2
RECORD_FLOATS = 32


def write_source(root: Path, count: int) -> hr.Dataset:
    """Records of float32 in one file, with labels, as a pack."""
    values = np.random.Generator(np.random.PCG64(1)).random((count, RECORD_FLOATS), np.float32)
    values.tofile(root / "records.bin")
    size = 4 * RECORD_FLOATS
    stat = (root / "records.bin").stat()
    contents = _core.IndexContents(count, str(root))
    contents.add_objects(
        ["records.bin"], np.array([stat.st_size], np.uint64), np.array([stat.st_mtime_ns])
    )
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(size)
    extents = (np.zeros(count, np.uint64), offsets, np.full(count, size, np.uint64))
    contents.add_extent_field("record", ("array", "float32", (RECORD_FLOATS,)), extents)
    contents.add_inline_field("label", ("array", "int64", ()), np.arange(count))
    contents.set_attribute("format", "records")
    _core.write_index(contents, str(root / "records.hri"))
    write_pack(hr.open(root / "records.hri"), root / "pack", PackParameters())
    return hr.open(root / "pack")


def as_it_is(sample: Any) -> Any:
    """The transform, in either loader."""
    return sample[0], sample[1]


class Records(Dataset[Any]):
    """The samples of a pack, as a careful user of torch would read them."""

    def __init__(self, path: str, transform: Callable[[Any], Any]) -> None:
        self._path = path
        self._transform = transform
        index = hr.open(path).index
        self._count = index.sample_count

    def _open(self) -> None:
        index = hr.open(self._path).index
        names = [field.name for field in index.fields]
        objects, offsets, _ = index.extents(names.index("record"))
        self._labels = np.asarray(index.inline_values(names.index("label"))).reshape(-1)
        files = [
            np.memmap(os.path.join(index.root, index.object(i)[0]), np.uint8, "c")
            for i in range(int(objects.max()) + 1)
        ]
        self._maps, self._objects, self._offsets = files, objects, offsets

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, sample: int) -> Any:
        if not hasattr(self, "_maps"):
            self._open()
        begin = int(self._offsets[sample])
        data = self._maps[self._objects[sample]][begin : begin + 4 * RECORD_FLOATS]
        record = torch.from_numpy(data.view(np.float32))
        return self._transform((record, int(self._labels[sample])))


class WholeBatches(Records):
    """The same, a batch at a time."""

    def __getitems__(self, samples: list[int]) -> Any:
        if not hasattr(self, "_maps"):
            self._open()
        out = torch.empty((len(samples), RECORD_FLOATS))
        rows = out.numpy().view(np.uint8).reshape(len(samples), -1)
        for row, sample in zip(rows, samples, strict=True):
            begin = int(self._offsets[sample])
            row[:] = self._maps[self._objects[sample]][begin : begin + row.size]
        return out, torch.from_numpy(self._labels[samples])


def _given(batch: Any) -> Any:
    return batch


def seconds(loader: Iterable[Any]) -> float:
    """Of one epoch; every batch is touched."""
    begin = time.perf_counter()
    labels = 0
    for _, label in loader:
        labels += int(label[0])
    return time.perf_counter() - begin


def torch_loader(path: str, whole: bool) -> DataLoader[Any]:
    kind = WholeBatches if whole else Records
    return DataLoader(
        kind(path, as_it_is),
        batch_size=BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        prefetch_factor=4,
        collate_fn=_given if whole else None,
    )


def measure(dataset: hr.Dataset, rounds: int) -> dict[str, list[float]]:
    """Seconds of an epoch of each, by round."""
    options: dict[str, Any] = {"transform": as_it_is, "workers": WORKERS}
    blocks = hr.Loader(dataset, BATCH, order="epoch", **options)
    exact = hr.Loader(dataset, BATCH, order="exact", **options)
    loaders: dict[str, Iterable[Any]] = {
        "headrace": blocks,
        "headrace, exact order": exact,
        "torch": torch_loader(dataset.path, whole=False),
        "torch, whole batches": torch_loader(dataset.path, whole=True),
    }
    found: dict[str, list[float]] = {name: [] for name in loaders}
    for name in loaders:
        seconds(loaders[name])  # Workers start, pages are there.
    for number in range(rounds):
        names = list(loaders) if number % 2 == 0 else list(reversed(loaders))
        for name in names:
            found[name].append(seconds(loaders[name]))
    blocks.close()
    exact.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_source(Path(folder), options.samples)
        found = measure(dataset, options.rounds)
    report: dict[str, Any] = {}
    for name, times in found.items():
        rate = round(options.samples / median(times))
        report[name] = {"samples_per_second": rate}
        print(f"{name:22} {rate:>10,} samples/s")
    for own in (name for name in found if name.startswith("headrace")):
        for other in (name for name in found if name.startswith("torch")):
            ratios = sorted(b / a for a, b in zip(found[own], found[other], strict=True))
            report[own][f"times {other}"] = [round(ratio, 2) for ratio in ratios]
            print(
                f"{own} is {median(ratios):.2f} times as fast as {other} "
                f"(from {ratios[0]:.2f} to {ratios[-1]:.2f})"
            )
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
