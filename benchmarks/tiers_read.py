"""The loader with tiers on cold storage, in a memory control group: bytes and seconds, and torch's.

    python benchmarks/tiers_read.py [--quick] [--data FOLDER]

Needs root, and cgroup v1 with the memory and blkio controllers; elsewhere it says so and measures
nothing. Writes the tables and the figure of docs/tiers-measured.md.

The data are a pack of samples of about 100 KB, raw bytes, cold; the device is limited to 200 MB/s.
Every run is a process of its own in a memory control group of its own: whatever it keeps, page
cache, worker processes and shared memory included, has to fit there. Before each run the pack's
pages are evicted, and that none is left is checked.

Placements: a limit of 25 % of the data, and in it a tier in memory of 15 % and 32 MiB for reads and
batches; five epochs of the exact order. Between them torch's DataLoader: 2 workers, the same
samples in the same order, `pread` of the same pack through a page cache under the same limit. And a
run with the tier in a folder, of which bytes count and seconds do not: it lies on the same device.

A tier of a share of the data has room for that share; samples take whole units there, of 4 KiB.

Sweep: a tier of 5 to 100 % of the data, the default placement. The limit is the tier, the 32 MiB,
and 160 MiB, without which torch's processes do not live; torch has the same.

Bytes are counted twice, of epochs 2 on. What the loader asked of storage: all that it asked for
less the data once, which the first epoch reads, for it reads ahead across the end of an epoch. And
what the control group read from the device between the ends of the first and the last epoch: in
whole blocks, which adds 0.5 %, and without what the first epoch read ahead, 32 MiB at most.

Seconds are of the same epochs, without the first. The ratio is torch's, the mean of the run before
and the run after, to Headrace's: above 1 Headrace is faster.

Nothing is discarded: the device's limit decides where it is busy, and where it is not, ranges show
the noise.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import _data
import _harness
import numpy as np
import torch
from _reports import tiers_report
from _torch_side import Order, make_loader

import headrace as hr
from headrace import _core

SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
SHARE = 0.15  # of the data, that the tier holds
LIMIT = 0.25  # of the data, that the control group may have
SSD = "coordinated, in a folder"
_TIER_COUNTS = ("peak", "entries", "uses", "reuse", "ready", "inserts", "refused", "failed")
_THROTTLE = _harness.Throttle(200 * 10**6)
_BATCH = 32
_FLOW_BYTES = 32 * 2**20
_PROCESS_BYTES = 160 * 2**20  # in the sweep: torch's three processes are killed below it
_WORKERS = 2
_RUNS_BETWEEN = 3  # runs of torch


@dataclass(frozen=True)
class Case:
    """What all runs of a comparison have in common."""

    pack: Path
    data_bytes: int
    kept_bytes: int  # that the data take in a tier, where samples have whole units
    samples: int
    epochs: int
    share: float  # of the data, that the tier holds
    limit_bytes: int  # of the control group
    seed: int = 0

    @property
    def tier_bytes(self) -> int:
        """Capacity of the tier."""
        return int(self.share * self.kept_bytes)

    @property
    def files(self) -> list[Path]:
        """Of the pack."""
        return sorted(path for path in self.pack.rglob("*") if path.is_file())

    def planned_ids(self) -> Iterator[list[int]]:
        """The samples of each epoch, in the order that Headrace gives them in."""
        blocks = _core.Blocks.uniform(self.samples, 1)
        stream = _core.OrderStream(
            "exact", {}, index=blocks, batch_size=_BATCH, seed=self.seed, epochs=self.epochs
        )
        for _ in range(self.epochs):
            yield [int(each) for each in stream.ids(stream.steps_per_epoch)]


class _Meter:
    """Seconds and bytes at the end of each epoch."""

    def __init__(self, device: _harness.DeviceGroup) -> None:
        self._device = device
        self._at_start = device.read_bytes
        self._begin = time.perf_counter()
        self.seconds: list[float] = []
        self.device: list[int] = []

    def end_epoch(self) -> None:
        """Notes them."""
        self.seconds.append(round(time.perf_counter() - self._begin, 4))
        self.device.append(self._device.read_bytes - self._at_start)

    @property
    def seconds_later(self) -> float:
        """Of an epoch after the first."""
        return (self.seconds[-1] - self.seconds[0]) / (len(self.seconds) - 1)


def _run_headrace(
    case: Case,
    groups: tuple[_harness.MemoryGroup, _harness.DeviceGroup],
    placement: str,
    folder: str | None,
) -> dict[str, Any]:
    for group in groups:
        group.join()
    tier = hr.tiers.Ram(case.tier_bytes)
    kept = tier if folder is None else hr.tiers.Ssd(folder, case.tier_bytes)
    read: list[int] = []
    delivered = 0
    meter = _Meter(groups[1])
    with hr.Loader(
        case.pack, _BATCH, output=hr.Output("numpy", fields=["image"]), seed=case.seed,
        epochs=case.epochs, memory=_FLOW_BYTES + (case.tier_bytes if folder is None else 0),
        tiers=hr.Cache(kept, placement=placement),
    ) as loader:  # fmt: skip
        for _ in range(case.epochs):
            for (rows,) in loader:
                delivered += sum(row.nbytes for row in rows)
                del rows
            meter.end_epoch()
            read.append(loader.stats()["bytes"]["read"])
        stats = loader.stats()
    if delivered != case.epochs * case.data_bytes:
        raise RuntimeError(f"{delivered} bytes came, {case.epochs * case.data_bytes} were due")
    later = case.epochs - 1
    return {
        "seconds_later": meter.seconds_later,
        # The first epoch reads the data once; what it read besides is of the second.
        "read_later": (read[-1] - case.data_bytes) / later / case.data_bytes,
        "device_later": (meter.device[-1] - meter.device[0]) / later / case.data_bytes,
        "seconds": meter.seconds,
        "device": meter.device,
        "read": read,
        "sources": stats["sources"],
        "tier": {key: stats["tiers"][0][key] for key in _TIER_COUNTS},
        "page_cache": stats["bytes"]["page_cache"],
        "store": stats["io"]["store"],
    }


def _run_torch(
    case: Case, groups: tuple[_harness.MemoryGroup, _harness.DeviceGroup]
) -> dict[str, Any]:
    for group in groups:
        group.join()
    torch.set_num_threads(1)
    order = Order([])
    plan = list(case.planned_ids())
    order.ids = plan[0]
    delivered = 0
    loader = make_loader("pread", case.pack, False, _BATCH, order, _WORKERS)
    meter = _Meter(groups[1])
    for ids in plan:
        order.ids = ids
        for flat, _, _ in loader:
            delivered += flat.nbytes
            del flat
        meter.end_epoch()
    if delivered != case.epochs * case.data_bytes:
        raise RuntimeError(f"{delivered} bytes came, {case.epochs * case.data_bytes} were due")
    return {
        "seconds_later": meter.seconds_later,
        "device_later": (meter.device[-1] - meter.device[0]) / (case.epochs - 1) / case.data_bytes,
        "seconds": meter.seconds,
        "device": meter.device,
    }


def _run(case: Case, name: str) -> dict[str, Any]:
    """A run of torch, or of a placement, in groups of its own."""
    _harness.make_cold(case.files)
    folder = tempfile.mkdtemp(prefix="tier-", dir=case.pack.parent) if name == SSD else None
    steal = _harness.steal_share()
    try:
        with (
            _harness.MemoryGroup(case.limit_bytes) as memory,
            _harness.DeviceGroup(case.pack, _THROTTLE) as device,
        ):
            if name == "torch":
                run = _harness.in_child(_run_torch, case, (memory, device))
            else:
                placement = name.partition(",")[0]
                run = _harness.in_child(_run_headrace, case, (memory, device), placement, folder)
            run["group_peak"] = memory.peak_bytes
            run["resident_after"] = _harness.resident_bytes(case.files)
    finally:
        if folder is not None:
            shutil.rmtree(folder)
    run["steal"] = steal()
    print(
        f"  {name}, tier {case.share:.0%}, limit {case.limit_bytes / 1e6:.0f} MB: "
        f"{run['seconds_later']:.2f} s an epoch, device {run['device_later']:.3f} of the data"
        + (f", asked {run['read_later']:.4f}" if "read_later" in run else "")
        + f", CPU {run['cpu_s']:.1f} s, resident after {run['resident_after'] / 1e6:.0f} MB, "
        f"steal {run['steal']:.1%}",
        flush=True,
    )
    return run


def _compare(case: Case, names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Runs of each name, in another order every round, a few at a time between two of torch."""
    kept: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    torches = [_run(case, "torch")]
    for number in range(rounds):
        case = replace(case, seed=number)
        waiting = random.Random(number).sample(names, len(names))
        while waiting:
            runs = {name: _run(case, name) for name in waiting[:_RUNS_BETWEEN]}
            torches.append(_run(case, "torch"))
            beside = sum(run["seconds_later"] for run in torches[-2:]) / 2
            for name, run in runs.items():
                run["ratio"] = round(beside / run["seconds_later"], 4)
                kept[name].append(run)
            waiting = waiting[_RUNS_BETWEEN:]
    return {
        "share": case.share,
        "limit_bytes": case.limit_bytes,
        "tier_bytes": case.tier_bytes,
        "epochs": case.epochs,
        "torch": torches,
        "runs": kept,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--size", type=int, default=1000, help="MB of samples")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--sweep-epochs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small, and writes nothing")
    arguments = parser.parse_args()
    shares: Sequence[float] = SHARES
    names = [*(name for name in hr.tiers.PLACEMENTS), SSD]
    if arguments.quick:
        arguments.size, arguments.rounds, arguments.epochs = 60, 1, 3
        shares, names = (0.2, 1.0), ["coordinated", "lru", SSD]
    if not (_harness.can_limit_memory() and _harness.can_throttle()):
        print("skipped: needs root, and cgroup v1 with the memory and blkio controllers")
        return

    warnings.filterwarnings("ignore", message="This DataLoader will create")
    pack = _data.raw_data(arguments.data, arguments.size * 10**6).pack
    index = hr.open(pack).index
    stored, blocks = _core.stored_bytes(index), _core.Blocks.of_index(index, 1)
    data_bytes = int(np.sum(stored, dtype=np.uint64))
    kept_bytes = blocks.unit_bytes * blocks.total_units
    limit_bytes = int(LIMIT * data_bytes)
    case = Case(pack, data_bytes, kept_bytes, len(stored), arguments.epochs, SHARE, limit_bytes)
    del index, blocks
    if arguments.quick:  # 25 % of so little does not hold an interpreter and the flow.
        case = replace(case, limit_bytes=case.tier_bytes + _FLOW_BYTES + _PROCESS_BYTES)
    result: dict[str, Any] = {
        "data_bytes": data_bytes,
        "kept_bytes": kept_bytes,
        "samples": len(stored),
        "batch_size": _BATCH,
        "workers": _WORKERS,
        "limit_MB_per_s": (_THROTTLE.bytes_per_s or 0) / 1e6,
        "flow_bytes": _FLOW_BYTES,
        "process_bytes": _PROCESS_BYTES,
    }
    result["placements"] = _compare(case, names, arguments.rounds)
    result["sweep"] = [
        _compare(
            replace(
                case,
                epochs=arguments.sweep_epochs,
                share=share,
                limit_bytes=int(share * kept_bytes) + _FLOW_BYTES + _PROCESS_BYTES,
            ),
            ["coordinated"],
            arguments.rounds,
        )
        for share in shares
    ]
    print(tiers_report.tables(result))
    if arguments.quick:
        return
    for what, holds in tiers_report.verdicts(result):
        print(f"{what}: {'holds' if holds else 'FALLS SHORT'}")
    tiers_report.write(_harness.record("tiers_read", result))


if __name__ == "__main__":
    main()
