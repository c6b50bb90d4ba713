"""Peak memory of a loader in a control group, less that of a control run without one.

    python benchmarks/memory.py [--data FOLDER] [--budgets 256MiB 1GiB]

Needs the memory controller of cgroup v1 and the right to make a group (root); elsewhere it says so
and measures nothing.

Two peaks are compared with the goal, 1.10 x budget + index. Both are of the whole group, threads
and kernel memory included:
- `anon`: anonymous memory, which nothing can take back: memory.stat's rss, sampled every few
  milliseconds from outside the group.
- `all`: memory.max_usage_in_bytes, kept by the kernel, page cache included. In it the page cache is
  what the kernel leaves there because nobody needs the room: the mapped index, which counts, and
  pages that buffered reads of whole files leave behind, which a limit would reclaim. So this peak
  is taken in a second run, whose group is limited to control + goal: it must end, without failing.

The control imports the same modules and handles arrays of the same shapes, without a loader.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _data
import _harness
import numpy as np

import headrace as hr
from headrace._units import parse_bytes

_GOAL = 1.10
_SAMPLE_S = 0.004
_BATCH = 128


def _run(phase: Callable[[], dict[str, Any]], limit_bytes: int | None = None) -> dict[str, Any]:
    """Runs a phase in a process and a group of its own, and watches it."""
    with _harness.MemoryGroup(limit_bytes) as group:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                group.join()
                phase()
                status = 0
            finally:
                os._exit(status)
        anon = 0
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            anon = max(anon, group.anon_bytes)
            time.sleep(_SAMPLE_S)
        _, status, _ = os.wait4(pid, 0)
        return {
            "ended": os.waitstatus_to_exitcode(status),
            "anon": anon,
            "all": group.peak_bytes,
        }


def _consume(rows: Any, seen: np.ndarray[Any, Any]) -> None:
    for row in rows:
        seen[int(row.reshape(-1)[0])] += 1


def _with_loader(path: Path, budget: int, transform: Any, seconds: float) -> dict[str, Any]:
    seen = np.zeros(256, np.int64)
    with hr.Loader(path, _BATCH, memory=budget, transform=transform, output="numpy") as loader:
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for rows, _ in loader:
                _consume(rows, seen)
                if time.perf_counter() - begin >= seconds:
                    break
    return {}


def _without_loader(transform: Any) -> dict[str, Any]:
    seen = np.zeros(256, np.int64)
    _consume([np.ones(8, np.uint8) for _ in range(_BATCH)], seen)
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--size", type=int, default=2500, help="MB of raw samples")
    parser.add_argument("--budgets", nargs="+", default=["256MiB", "1GiB"])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    arguments = parser.parse_args()
    if not _harness.can_limit_memory():
        print("skipped: needs root, and cgroup v1 with the memory controller")
        return

    raw = _data.raw_data(arguments.data, arguments.size * 10**6)
    images = _data.image_data(arguments.data, 300 * 10**6)
    train = hr.image.train(224)
    results = []
    for name, path, transform in (
        ("raw pack", raw.pack, None),
        ("raw folder", raw.folder, None),
        ("decode pack", images.pack, train),
        ("decode folder", images.folder, train),
    ):
        index_bytes = hr.open(path).index.file_bytes
        control = _run(lambda transform=transform: _without_loader(transform))
        for text in arguments.budgets:
            budget = parse_bytes(text, "--budgets")
            goal = int(_GOAL * budget + index_bytes)
            run = lambda path=path, budget=budget, transform=transform: _with_loader(  # noqa: E731
                path, budget, transform, arguments.seconds
            )
            free = _run(run)
            squeezed = _run(run, control["all"] + goal)
            anon = free["anon"] - control["anon"]
            holds = anon <= goal and free["ended"] == 0 and squeezed["ended"] == 0
            results.append(
                {
                    "case": name,
                    "budget": budget,
                    "index": index_bytes,
                    "goal": goal,
                    "control": control,
                    "free": free,
                    "squeezed": squeezed,
                    "anon_over_control": anon,
                    "of_budget": anon / budget,
                    "holds": holds,
                }
            )
            print(
                f"{name}, memory={text}: anonymous {anon / 2**20:.0f} MiB over control = "
                f"{anon / budget:.3f} x budget; whole peak {free['all'] / 2**20:.0f} MiB free, "
                f"{squeezed['all'] / 2**20:.0f} MiB squeezed into "
                f"{(control['all'] + goal) / 2**20:.0f}: {'holds' if holds else 'FALLS SHORT'}",
                flush=True,
            )
    _harness.record("memory", {"goal": _GOAL, "cases": results})


if __name__ == "__main__":
    main()
