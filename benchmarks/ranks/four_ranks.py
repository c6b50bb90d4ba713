"""Four ranks of one machine: through one node process, and with four loaders of their own.

    python benchmarks/ranks/four_ranks.py [--case NAME ...] [--quick] [--data FOLDER]

Cases:

- `decode warm`: JPEG images in the page cache, decoded to 224 x 224.
- `storage cold, exact` and `epoch`: samples of about 100 KB, no page in the cache; one epoch. Each
  rank reads its share of the same dataset. By `epoch` a block may have samples of several ranks.
- `tier cold`: such samples, with the device limited to 200 MB/s, in a memory control group, with a
  tier in memory that all together hold 40 % of the data; exact order, epochs after the first.
- `page cache`: such samples in the page cache, exact order.

A rank is a process; all begin an epoch when the last has ended the one before. Both ways have the
same budget of memory, tiers and threads in all. Rates are of samples of all ranks, from the moment
when all are let go to the end of the last. CPU is user and system time of all processes, a GB of
what the data have stored. "Asked" is what loaders requested from storage (`stats()`), "device" what
the control group read; both as a share of the data an epoch, less the data once for each epoch
before. A node process asks for all its ranks. With tiers the plan's share is 1 less
the tiers' share: of the node process all together, as they keep samples for whichever rank needs
them; with four loaders a rank's tier serves that rank alone.

Each round has both ways, in random order. Ratios are of one round: the node process's rate to the
four loaders'; medians with a bootstrap 95 % interval.

Discard rule, fixed beforehand: a round while which the host took more than 2 % of the processors is
repeated, twice as often at most as rounds are asked for. With a limited device, where it decides,
nothing is discarded.

Needs root, and cgroup v1 with the memory and blkio controllers; elsewhere it measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness
import numpy as np

import headrace as hr
from headrace import _core

RANKS = 4
WAYS = ("node process", "four loaders")
GOAL = 0.95
BYTES_GOAL = 0.02
_STEAL_MAX = 0.02
_TIER_SHARE = 0.4
_FLOW_BYTES = 32 * 2**20  # of a rank
_PROCESS_BYTES = 80 * 2**20  # of an interpreter with its modules
_THROTTLE = _harness.Throttle(200 * 10**6)
_RANK_SIDE = Path(__file__).parent / "rank_side.py"
_CLOCK_HZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    """What all ranks are asked for."""

    name: str
    order: str
    images: bool
    cold: bool
    tiers: bool
    batch: int  # of a rank
    before: int  # epochs that are not timed
    timed: int

    @property
    def epochs(self) -> int:
        return self.before + self.timed


CASES = (
    Case("decode warm", "exact", True, False, False, 32, 1, 2),
    Case("storage cold, exact", "exact", False, True, False, 32, 0, 1),
    Case("storage cold, epoch", "epoch", False, True, False, 32, 0, 1),
    Case("tier cold", "exact", False, True, True, 32, 1, 3),
    Case("page cache", "exact", False, False, False, 32, 1, 4),
)


@dataclass(frozen=True)
class Facts:
    """Of the pack."""

    pack: Path
    files: list[Path]
    samples: int
    stored_bytes: int
    kept_bytes: int  # that all samples take in a tier

    @classmethod
    def of(cls, pack: Path) -> Facts:
        index = hr.open(pack).index
        stored, blocks = _core.stored_bytes(index), _core.Blocks.of_index(index, 1)
        kept = blocks.unit_bytes * blocks.total_units
        files = sorted(path for path in pack.rglob("*") if path.is_file())
        return cls(pack, files, len(stored), int(np.sum(stored, dtype=np.uint64)), kept)


class Ranks:
    """The processes of all ranks, in the groups that count what they use."""

    def __init__(
        self, case: Case, facts: Facts, way: str, groups: tuple[Any, Any], port: int
    ) -> None:
        self._memory, device = groups

        def join() -> None:
            self._memory.join()
            device.join()

        tier = int(_TIER_SHARE * facts.kept_bytes) // RANKS if case.tiers else 0
        spec = {
            "ranks": RANKS,
            "pack": str(facts.pack),
            "batch": case.batch,
            "order": case.order,
            "images": case.images,
            "epochs": case.epochs,
            "memory": tier + _FLOW_BYTES if case.tiers else "256MiB",
            "tier_bytes": tier,
            "shared": way == WAYS[0],
        }
        self._processes = [
            subprocess.Popen(
                [sys.executable, _RANK_SIDE, json.dumps({**spec, "rank": rank})],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=join,
                env={**os.environ, "MASTER_PORT": str(port)},
            )
            for rank in range(RANKS)
        ]  # fmt: skip

    def answers(self) -> list[dict[str, Any]]:
        """The next line of every rank."""
        lines = [process.stdout.readline() for process in self._processes if process.stdout]
        if not all(lines):
            raise RuntimeError("a rank ended early: see above")
        return [json.loads(line) for line in lines]

    def epoch(self) -> dict[str, Any]:
        """All ranks' next epoch."""
        cpu = self._cpu_seconds()
        begin = time.monotonic()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        found = self.answers()
        return {
            "seconds": max(rank["ended"] for rank in found) - begin,
            "samples": sum(rank["samples"] for rank in found),
            "cpu_s": self._cpu_seconds() - cpu,
            "read": [rank["read"] for rank in found],
            "planned": [rank["planned"] for rank in found],
        }

    def _cpu_seconds(self) -> float:
        ticks = 0
        for pid in self._memory.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _CLOCK_HZ

    def end(self) -> None:
        """Lets the ranks go."""
        for process in self._processes:
            process.communicate("")
            if process.returncode != 0:
                raise RuntimeError(f"a rank ended with {process.returncode}")


def _run(case: Case, facts: Facts, way: str, port: int) -> dict[str, Any]:
    if case.cold:
        _harness.make_cold(facts.files)
    limit = None
    if case.tiers:
        limit = int(_TIER_SHARE * facts.kept_bytes)
        limit += RANKS * _FLOW_BYTES + (RANKS + 1) * _PROCESS_BYTES
    throttle = _THROTTLE if case.tiers else _harness.Throttle()
    steal = _harness.steal_share()
    warm = _harness.resident([] if case.cold else facts.files)
    with (
        warm,
        _harness.MemoryGroup(limit) as memory,
        _harness.DeviceGroup(facts.pack, throttle) as device,
    ):
        ranks = Ranks(case, facts, way, (memory, device), port)
        ranks.answers()
        epochs = [ranks.epoch() for _ in range(case.epochs)]
        peak = memory.peak_bytes
        used = memory.stat("total_rss") + memory.stat("total_shmem")
        device_bytes = device.read_bytes
        ranks.end()
    timed = epochs[case.before :]
    seconds = sum(epoch["seconds"] for epoch in timed)
    samples = sum(epoch["samples"] for epoch in timed)
    gigabytes = len(timed) * facts.stored_bytes / 1e9
    # Reading ahead crosses the end of an epoch, and ends with the last one.
    before, data = case.before * facts.stored_bytes, len(timed) * facts.stored_bytes
    asked = max(epochs[-1]["read"]) if way == WAYS[0] else sum(epochs[-1]["read"])
    run = {
        "way": way,
        "rate": samples / seconds,
        "seconds": seconds,
        "cpu_s_per_gb": sum(epoch["cpu_s"] for epoch in timed) / gigabytes,
        "asked_share": (asked - before) / data,
        "device_share": (device_bytes - (before if case.cold else 0)) / data,
        "group_peak": peak,
        "memory_at_end": used,
        "steal": steal(),
        "epochs": epochs,
    }
    print(
        f"  {case.name}, {way}: {run['rate']:,.0f} samples/s, CPU {run['cpu_s_per_gb']:.2f} s/GB, "
        f"asked {run['asked_share']:.4f}, device {run['device_share']:.4f} of the data, memory "
        f"{used / 2**20:.0f} MiB, steal {run['steal']:.1%}",
        flush=True,
    )
    return run


def _compare(case: Case, facts: Facts, rounds: int, keep_all: bool) -> dict[str, Any]:
    kept: list[dict[str, dict[str, Any]]] = []
    discarded = 0
    while len(kept) < rounds and discarded < 2 * rounds:
        number = len(kept) + discarded
        port = 20_000 + (os.getpid() * 37 + number) % 20_000
        ways = random.Random(number).sample(WAYS, len(WAYS))
        runs = {way: _run(case, facts, way, port) for way in ways}
        if max(run["steal"] for run in runs.values()) > _STEAL_MAX and not (case.tiers or keep_all):
            discarded += 1
            continue
        kept.append(runs)
    if not kept:
        raise SystemExit("every round was discarded: the machine is too busy to measure on")
    found: dict[str, Any] = {
        "case": case.name,
        "samples": facts.samples,
        "stored_bytes": facts.stored_bytes,
        "ratio": _harness.median_and_interval(
            [runs[WAYS[0]]["rate"] / runs[WAYS[1]]["rate"] for runs in kept]
        ),
        "discarded": discarded,
        "rounds": kept,
    }
    if case.tiers:
        found["planned_share"] = 1 - _TIER_SHARE
    return found


def verdicts(result: dict[str, Any]) -> list[tuple[str, bool]]:
    """What the goals are, and whether they hold."""
    found = [
        (f"{result['case']}: at most 5 % slower than four loaders", result["ratio"][0] >= GOAL)
    ]
    if planned := result.get("planned_share"):
        asked = median(runs[WAYS[0]]["asked_share"] for runs in result["rounds"])
        found.append(
            (
                f"{result['case']}: asked of storage {asked:.4f}, planned {planned:.4f}",
                abs(asked - planned) <= BYTES_GOAL * planned,
            )
        )
    return found


def table(results: list[dict[str, Any]]) -> str:
    """All cases."""
    lines = [
        "| case | way | samples/s | CPU s/GB | asked | device | memory | node process to four |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        for way in WAYS:
            runs = [each[way] for each in result["rounds"]]

            def middle(key: str, runs: list[dict[str, Any]] = runs) -> float:
                return median(run[key] for run in runs)

            ratio = "{:.3f} [{:.3f}, {:.3f}]".format(*result["ratio"]) if way == WAYS[0] else ""
            lines.append(
                f"| {result['case']} | {way} | {middle('rate'):,.0f} | "
                f"{middle('cpu_s_per_gb'):.2f} | {middle('asked_share'):.3f} | "
                f"{middle('device_share'):.3f} | {middle('memory_at_end') / 2**20:,.0f} MiB | "
                f"{ratio} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [case.name for case in CASES]
    parser.add_argument("--case", nargs="+", choices=names, default=names)
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="write no results")
    parser.add_argument("--quick", action="store_true", help="small, one round, writes nothing")
    arguments = parser.parse_args()
    if not (_harness.can_limit_memory() and _harness.can_throttle()):
        print("skipped: needs root, and cgroup v1 with the memory and blkio controllers")
        return
    results = []
    for case in (case for case in CASES if case.name in arguments.case):
        total = (300 if case.images else 600 if case.tiers else 3000) * 10**6
        if arguments.quick:
            total = (10 if case.images else 60) * 10**6
        make = _data.image_data if case.images else _data.raw_data
        facts = Facts.of(make(arguments.data, total).pack)
        rounds = 1 if arguments.quick else arguments.rounds
        results.append(_compare(case, facts, rounds, arguments.quick))
        for what, holds in verdicts(results[-1]):
            print(f"{what}: {'holds' if holds else 'FALLS SHORT'}", flush=True)
    print(table(results))
    if not arguments.quick and not arguments.dry:
        command = "python benchmarks/ranks/four_ranks.py"
        _harness.record("four_ranks", {"command": command, "cases": results})


if __name__ == "__main__":
    main()
