"""A trace of the newest batches, for ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from headrace._text import os_reason

Columns = dict[str, Any]
"""Of each batch: what the core's `step_times` gives, arrays or lists; by rank, oldest first."""

CAUSES = ("storage", "decode", "consumer", "ranks")
_PHASES = (("read", "admitted_ns", "read_ns"), ("decode", "read_ns", "done_ns"))


def write_trace(path: Path, steps: Columns, first_rank: int) -> None:
    """Writes make_trace() as JSON."""
    try:
        with path.open("w", encoding="utf-8") as file:
            json.dump(make_trace(steps, first_rank, os.getpid()) | {"clock": _clock()}, file)
    except OSError as error:
        raise OSError(f"writing the trace {path}: {os_reason(error)}") from error


def _clock() -> dict[str, Any]:
    """Whose times these are, and when its clock showed what: for `headrace report --merge`."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = socket.gethostname()
    return {
        "boot": boot,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "monotonic_ns": time.monotonic_ns(),
        "realtime_ns": time.time_ns(),
    }


def make_trace(steps: Columns, first_rank: int, pid: int) -> dict[str, Any]:
    """Tracks of each rank: its training loop, its batches from their plan on, and its queues."""
    events: list[dict[str, Any]] = []
    batches = _rows(steps)
    for lane, of_lane in itertools.groupby(batches, key=lambda row: row["lane"]):
        rows = list(of_lane)
        track = {"pid": pid, "tid": first_rank + lane}
        name = {"name": f"rank {first_rank + lane}"}
        events.append({"ph": "M", "name": "thread_name", "args": name, **track})
        events += _loop(rows, track)
        for row in rows:
            events += _phases(row, track)
        events += _queues(rows, track)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _rows(steps: Columns) -> list[dict[str, int]]:
    columns = {name: [int(value) for value in column] for name, column in steps.items()}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _loop(rows: list[dict[str, int]], track: dict[str, int]) -> list[dict[str, Any]]:
    """What the training loop did: waited, by cause, and between that trained."""
    events = []
    before: dict[str, int] | None = None
    for row in rows:
        waits = {cause: row[f"{cause}_ns"] for cause in CAUSES}
        waited = sum(waits.values())
        begin = row["handed_ns"] - waited if waited else row["taken_ns"]
        if before is not None and before["run"] == row["run"]:
            events.append(_slice("training", before["taken_ns"], begin, track, _args(before)))
        if waited:
            most = max(waits, key=lambda cause: waits[cause])
            args = _args(row) | {f"{cause}_us": ns / 1e3 for cause, ns in waits.items()}
            events.append(_slice(f"waiting: {most}", begin, row["handed_ns"], track, args))
        before = row
    return events


def _slice(
    name: str, begin_ns: int, end_ns: int, track: dict[str, int], args: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": begin_ns / 1e3, "dur": (end_ns - begin_ns) / 1e3}
    return {"ph": "X", "cat": "loop", "name": name, "args": args, **times, **track}


def _phases(row: dict[str, int], track: dict[str, int]) -> list[dict[str, Any]]:
    """A batch's own slices, which overlap those of others: read, decode, ready."""
    of = f"{track['tid']}.{row['run']}.{row['epoch']}.{row['step']}"
    common = {"cat": f"rank {track['tid']} batches", "id": of, **track}
    args = _args(row) | {"samples": row["samples"], "bytes": row["bytes"]}
    events: list[dict[str, Any]] = []
    for name, begin, end in (*_PHASES, ("ready", "handed_ns", "taken_ns")):
        events.append({"ph": "b", "name": name, "ts": row[begin] / 1e3, "args": args, **common})
        events.append({"ph": "e", "name": name, "ts": row[end] / 1e3, **common})
    return events


def _queues(rows: list[dict[str, int]], track: dict[str, int]) -> list[dict[str, Any]]:
    """Counters of the batches in work and of those ready, as far as they were taken since."""
    changes = []
    for row in rows:
        changes.append((row["admitted_ns"], 1, 0))
        changes.append((row["handed_ns"], -1, 1))
        changes.append((row["taken_ns"], 0, -1))
    # At one time what comes goes first: no count is ever negative.
    changes.sort(key=lambda change: (change[0], -change[1] - change[2], -change[1]))
    in_work = ready = 0
    events = []
    for at, to_work, to_ready in changes:
        in_work, ready = in_work + to_work, ready + to_ready
        values = {"in work": in_work, "ready": ready}
        name = f"rank {track['tid']} queues"
        events.append({"ph": "C", "name": name, "ts": at / 1e3, "args": values, **track})
    return events


def _args(row: dict[str, int]) -> dict[str, Any]:
    return {"epoch": row["epoch"], "step": row["step"]}
