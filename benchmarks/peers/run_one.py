"""One loader, in the environment that has its package. bench.py starts it; prints a line of JSON.

python run_one.py describe|prepare|check|read JSON
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from loaders.common import Batch, Source, Task

_WARM_UP_S = 10.0  # of a first epoch in the page cache, at most


def describe(module: Any, task: Task, spec: dict[str, Any]) -> dict[str, Any]:
    """What bench.py has to know of a module that it cannot import."""
    return {
        "format": module.FORMAT,
        "choices": module.choices(task),
        "shuffle": module.shuffle(task),
        "version": version(spec["package"]),
    }


def prepare(module: Any, task: Task, spec: dict[str, Any]) -> dict[str, Any]:
    """Writes the format."""
    begin = time.monotonic()
    module.prepare(task.source, task.stored)
    return {"seconds": time.monotonic() - begin}


def check(module: Any, task: Task, spec: dict[str, Any]) -> dict[str, Any]:
    """One epoch, and sums of what came: equal sums are equal samples, each as often."""
    found = {"samples": 0, "payload_bytes": 0, "crc_sum": 0, "pixels": 0.0}
    epochs = module.epochs(task)
    for batch in next(epochs):
        found["samples"] += batch.samples
        found["payload_bytes"] += batch.payload_bytes
        for part in batch.parts():
            if task.images:
                found["pixels"] += float(np.asarray(part).mean())
            else:
                found["crc_sum"] += zlib.crc32(part)
    found["pixels"] /= max(1, found["samples"])
    return found


def read(module: Any, task: Task, spec: dict[str, Any]) -> dict[str, Any]:
    """The timed run. Times are of the monotonic clock, which all processes share."""
    count = {"samples": 0, "payload_bytes": 0, "batches": 0}
    starting = time.monotonic()
    epochs = module.epochs(task)
    if not spec["cold"]:
        _some(next(epochs), starting + _WARM_UP_S, {})
    begin = time.monotonic()
    first: float | None = None
    waits: list[float] = []
    whole = True
    passes = 0
    while whole and (passes == 0 or time.monotonic() - begin < spec["seconds"]):
        if spec["cold"] and passes:
            break
        passes += 1
        came = time.monotonic()
        whole = _some(next(epochs), begin + spec["seconds_max"], count, waits)
        if first is None and waits:
            first = came + waits[0]
    if not count["samples"]:
        raise RuntimeError("an epoch delivered no sample")
    return count | {
        "starting": starting,
        "begin": begin,
        "end": time.monotonic(),
        "first_batch_s": (first or begin) - begin,
        "wait_p99_ms": 1e3 * sorted(waits)[int(0.99 * (len(waits) - 1))],
        "epochs": passes,
        "whole": whole,
    }


def _some(
    batches: Iterator[Batch], until: float, count: dict[str, int], waits: list[float] | None = None
) -> bool:
    """Counts the batches of an epoch. Whether it ended before the time did."""
    before = time.monotonic()
    for batch in batches:
        now = time.monotonic()
        if waits is not None:
            waits.append(now - before)
            count["samples"] += batch.samples
            count["payload_bytes"] += batch.payload_bytes
            count["batches"] += 1
        del batch
        if now >= until:
            return False
        before = time.monotonic()
    return True


def main(action: str, text: str) -> None:
    spec = json.loads(text)
    source = Source(Path(spec["source"]), spec["record_bytes"])
    task = Task(
        source,
        Path(spec["stored"]),
        spec["images"],
        spec["batch"],
        spec["window"],
        spec["settings"],
    )
    actions = {"describe": describe, "prepare": prepare, "check": check, "read": read}
    module = importlib.import_module(f"loaders.{spec['module']}")
    print("\n" + json.dumps(actions[action](module, task, spec)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
