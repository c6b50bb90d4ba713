"""What a run and all its processes use, sampled while it lasts: memory, processor, storage.

Memory is anonymous and shared memory of the whole tree, not the page cache: the kernel's own count
of a memory control group where there is one (root, cgroup v1), elsewhere the sum of the processes'
proportional shares.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import _harness

_TICK_S = 0.005
_MEMORY_TICKS = 10
_SHARES_TICKS = 100  # without a control group: reading them walks the page tables
_DATA_BYTES = 2**20  # read since the start: indexes are smaller
_CLOCK_HZ = os.sysconf("SC_CLK_TCK")

Samples = list[tuple[float, float]]
"""Times of the monotonic clock, and values."""


class Monitor:
    """Watches the processes of a session from its thread until `stop`."""

    def __init__(self, leader: int, group: _harness.MemoryGroup | None) -> None:
        self._leader = leader
        self._group = group
        self._read: dict[int, int] = {}
        self._cpu: dict[int, float] = {}
        self._reads: Samples = []
        self._cpus: Samples = []
        self._memory: Samples = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stopped.set()
        self._thread.join()

    def result(self, starting: float, begin: float, end: float) -> dict[str, Any]:
        """Memory before `starting` and its peak until `end`. From `begin` to `end`: processor
        seconds, bytes read, and when reading began; None: nothing was read."""
        reads = [(at, size) for at, size in self._reads if begin <= at <= end + _TICK_S]
        base = reads[0][1] if reads else 0
        begun = [at for at, size in reads if size - base > _DATA_BYTES]
        return {
            "peak_bytes": max((size for at, size in self._memory if at <= end), default=0),
            "before_bytes": _last(self._memory, starting),
            "cpu_s": _last(self._cpus, end) - _last(self._cpus, begin),
            "read_bytes": reads[-1][1] - base if reads else 0,
            "reading_from": begun[0] - _TICK_S if begun else None,
        }

    def _watch(self) -> None:
        tick = 0
        every = _MEMORY_TICKS if self._group is not None else _SHARES_TICKS
        while not self._stopped.wait(_TICK_S):
            pids = self._pids() if self._group is not None or tick % every == 0 else [*self._read]
            for pid in pids:
                self._read[pid] = _read_bytes(pid) or self._read.get(pid, 0)
            self._reads.append((time.monotonic(), sum(self._read.values())))
            if tick % every == 0:
                for pid in pids:
                    self._cpu[pid] = _cpu_seconds(pid) or self._cpu.get(pid, 0.0)
                now = time.monotonic()
                self._cpus.append((now, sum(self._cpu.values())))
                self._memory.append((now, self._used(pids)))
            tick += 1

    def _pids(self) -> list[int]:
        if self._group is not None:
            return self._group.pids
        found, left = [], [self._leader]
        while left:
            pid = left.pop()
            found.append(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                left += map(int, _text(children).split())
        return found

    def _used(self, pids: list[int]) -> int:
        if self._group is not None:
            return self._group.stat("total_rss") + self._group.stat("total_shmem")
        return sum(map(_proportional_bytes, pids))


def _last(samples: Samples, at: float) -> float:
    """The last value before a time."""
    return next((value for time_, value in reversed(samples) if time_ <= at), 0)


def _text(path: Path) -> str:
    """Empty if the process is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _read_bytes(pid: int) -> int:
    for line in _text(Path(f"/proc/{pid}/io")).splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


def _cpu_seconds(pid: int) -> float:
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_HZ if fields else 0.0


def _proportional_bytes(pid: int) -> int:
    kibibytes = 0
    for line in _text(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
            kibibytes += int(line.split()[1])
    return kibibytes * 1024
