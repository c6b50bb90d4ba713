"""What a process and all its descendants use: memory now, device bytes and cores so far."""

from __future__ import annotations

import os
import resource
from pathlib import Path


def _family(pid: int) -> list[int]:
    """`pid` and its descendants that live."""
    found = [pid]
    for parent in found:  # grows as it goes
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text(encoding="ascii").split())
            except OSError:
                continue  # The thread has ended.
    return found


def _field(path: str, name: str) -> int | None:
    """The number after `name:` in a file of /proc; None if the process or the file is gone."""
    try:
        for line in Path(path).read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def memory_bytes(pid: int) -> int:
    """Proportional set size of the tree: a page that n processes share counts 1/n in each."""
    return sum(_field(f"/proc/{one}/smaps_rollup", "Pss") or 0 for one in _family(pid)) * 1024


def device_read_bytes() -> int | None:
    """That this process, and the children it has waited for, had read by block devices."""
    return _field("/proc/self/io", "read_bytes")


def cpu_seconds() -> tuple[float, float]:
    """That this process and the children it has waited for used; and that the machine was busy."""
    ours = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    busy = user + nice + system + irq + softirq + steal
    return ours, busy / os.sysconf("SC_CLK_TCK")
