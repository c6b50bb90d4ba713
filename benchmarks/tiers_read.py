"""The loader with tiers on cold storage, in a memory control group: bytes and seconds, and torch's.

    python benchmarks/tiers_read.py [--quick] [--data FOLDER]

Needs root, and cgroup v1 with the memory and blkio controllers; elsewhere it says so and measures
nothing. Writes the tables and the figure of docs/tiers-measured.md.

The data are a pack of samples of about 100 KB, raw bytes, cold; the device is limited to 350 MB/s.
Every run is a process of its own in a memory control group of its own: whatever it keeps, page
cache, worker processes and shared memory included, has to fit there. Before each run the pack's
pages are evicted, and that none is left is checked.

Placements: a limit of 25 % of the data, and in it a tier in memory of 20 % and 64 MiB for reads and
batches; five epochs of the exact order. Between them torch's DataLoader: 2 workers, the same
samples in the same order, `pread` of the same pack through a page cache under the same limit. And a
run with the tier in a folder, of which bytes count and seconds do not: it lies on the same device.

Sweep: a tier of 5 to 100 % of the data, the default placement. The limit is the tier, the 64 MiB,
and what the interpreter takes, and torch has the same.

Bytes are counted twice: what the loader asked of storage, and what the control group read from the
device, whole blocks. Both are of epochs 2 on; the loader reads ahead across their ends, so what it
had read of the second when the first was over, which is all beyond the data once, is added to them.

Seconds are of the same epochs, without the first. The ratio is torch's, the mean of the run before
and the run after, to Headrace's: above 1 Headrace is faster.

Discard rule, fixed beforehand: runs between two of torch that differ by more than 15 %, or while
which the host took more than 2 % of the processors, are repeated, twice as often at most as rounds
are asked for.
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
import _tiers_report
import numpy as np
import torch
from _torch_side import Order, make_loader

import headrace as hr
from headrace import _core

SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
SHARE = 0.15  # of the data, that the tier holds
LIMIT = 0.25  # of the data, that the control group may have
SSD = "coordinated, in a folder"
_THROTTLE = _harness.Throttle(200 * 10**6)
_BATCH = 64
_FLOW_BYTES = 32 * 2**20
_PROCESS_BYTES = 64 * 2**20  # of interpreters and their modules, in the sweep
_WORKERS = 2
_RUNS_BETWEEN = 3  # runs of torch
_TORCH_SPREAD_MAX = 1.15
_STEAL_MAX = 0.02


@dataclass(frozen=True)
class Case:
    """What all runs of a comparison have in common."""

    pack: Path
    data_bytes: int
    samples: int
    epochs: int
    share: float  # of the data, that the tier holds
    limit_bytes: int  # of the control group
    seed: int = 0

    @property
    def tier_bytes(self) -> int:
        """Capacity of the tier."""
        return int(self.share * self.data_bytes)

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
        self.seconds.append(time.perf_counter() - self._begin)
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
    tiers = [tier if folder is None else hr.tiers.Ssd(folder, case.tier_bytes)]
    read: list[int] = []
    delivered = 0
    meter = _Meter(groups[1])
    with hr.Loader(
        case.pack, _BATCH, output="numpy", fields=["image"], seed=case.seed, epochs=case.epochs,
        memory=_FLOW_BYTES + (case.tier_bytes if folder is None else 0),
        tiers=tiers, placement=placement,
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
    ahead = read[0] - case.data_bytes  # of the second epoch, when the first was over
    blocks = meter.device[0] / read[0]  # whole ones, to bytes
    later = case.epochs - 1
    return {
        "seconds_later": meter.seconds_later,
        "read_later": (read[-1] - read[0] + ahead) / later / case.data_bytes,
        "device_later": (meter.device[-1] - meter.device[0] + ahead * blocks)
        / later
        / (case.data_bytes * blocks),
        "blocks": blocks,
        "seconds": meter.seconds,
        "device": meter.device,
        "read": read,
        "stall": stats["stall"],
        "bytes": stats["bytes"],
        "memory": stats["memory"],
        "sources": stats["sources"],
        "tiers": stats["tiers"],
        "io": stats["io"],
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
    discarded = 0
    for number in range(rounds):
        case = replace(case, seed=number)
        waiting = random.Random(number).sample(names, len(names))
        while waiting:
            runs = {name: _run(case, name) for name in waiting[:_RUNS_BETWEEN]}
            torches.append(_run(case, "torch"))
            ends = [run["seconds_later"] for run in torches[-2:]]
            steal = max(run["steal"] for run in (*torches[-2:], *runs.values()))
            if max(ends) > _TORCH_SPREAD_MAX * min(ends) or steal > _STEAL_MAX:
                print(f"  discarded: torch {ends[0]:.2f} and {ends[1]:.2f} s, steal {steal:.1%}")
                discarded += 1
                if discarded > 2 * rounds:
                    raise SystemExit("too much was discarded: the machine is too busy")
                continue
            waiting = waiting[_RUNS_BETWEEN:]
            for name, run in runs.items():
                run["ratio"] = sum(ends) / 2 / run["seconds_later"]
                kept[name].append(run)
    return {
        "share": case.share,
        "limit_bytes": case.limit_bytes,
        "epochs": case.epochs,
        "discarded": discarded,
        "torch": torches,
        "runs": kept,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--size", type=int, default=2500, help="MB of samples")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--sweep-epochs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small, and writes nothing")
    arguments = parser.parse_args()
    shares: Sequence[float] = SHARES
    names = [*(name for name in hr.tiers.PLACEMENTS), SSD]
    if arguments.quick:
        arguments.size, arguments.rounds, arguments.epochs = 500, 1, 3
        shares, names = (0.2, 0.6), ["coordinated", "lru", SSD]
    if not (_harness.can_limit_memory() and _harness.can_throttle()):
        print("skipped: needs root, and cgroup v1 with the memory and blkio controllers")
        return

    warnings.filterwarnings("ignore", message="This DataLoader will create")
    pack = _data.raw_data(arguments.data, arguments.size * 10**6).pack
    index = hr.open(pack).index
    stored = _core.stored_bytes(index)
    data_bytes, samples = int(np.sum(stored, dtype=np.uint64)), len(stored)
    del index
    case = Case(pack, data_bytes, samples, arguments.epochs, SHARE, int(LIMIT * data_bytes))
    if arguments.quick:  # 25 % of so little does not hold an interpreter and the flow.
        case = replace(case, limit_bytes=case.tier_bytes + _FLOW_BYTES + _PROCESS_BYTES)
    result: dict[str, Any] = {
        "data_bytes": data_bytes, "samples": samples, "batch_size": _BATCH, "workers": _WORKERS,
        "limit_MB_per_s": (_THROTTLE.bytes_per_s or 0) / 1e6, "flow_bytes": _FLOW_BYTES,
        "process_bytes": _PROCESS_BYTES,
    }  # fmt: skip
    result["placements"] = _compare(case, names, arguments.rounds)
    result["sweep"] = [
        _compare(
            replace(
                case,
                epochs=arguments.sweep_epochs,
                share=share,
                limit_bytes=int(share * data_bytes) + _FLOW_BYTES + _PROCESS_BYTES,
            ),
            ["coordinated"],
            arguments.rounds,
        )
        for share in shares
    ]
    verdicts = _tiers_report.verdicts(result)
    print(_tiers_report.tables(result))
    for what, holds in verdicts:
        print(f"{what}: {'holds' if holds else 'FALLS SHORT'}")
    if not arguments.quick:
        recorded = _harness.record("tiers_read", result)
        _tiers_report.write(recorded)


if __name__ == "__main__":
    main()
