"""Traces of several processes, and machines, in one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace._arguments import refuse_url
from headrace._text import os_reason
from headrace.errors import InvalidArgumentError

_TRACE_BYTES_MAX = 2**30


def merge_traces(paths: Sequence[Path]) -> dict[str, Any]:
    """One trace, in which each file is a process with its machine's name.

    Times of files of one machine have one clock. Of other machines they are moved to the clock of
    the first file's machine, by the time of day at which the files were written.

    Raises:
        InvalidArgumentError: a file is no trace of ours, or there is none.
        OSError: a file cannot be read.
    """
    if not paths:
        raise InvalidArgumentError("merging traces: give one file or more")
    traces = [(path, _read(path)) for path in paths]
    first = traces[0][1]["clock"]
    events: list[dict[str, Any]] = []
    processes = Counter((trace["clock"]["boot"], trace["clock"]["pid"]) for _, trace in traces)
    for pid, (path, trace) in enumerate(traces, start=1):
        clock = trace["clock"]
        # What the first machine's monotonic clock showed when the other's showed zero.
        moved_us = 0.0
        if clock["boot"] != first["boot"]:
            moved_us = (_zero_ns(clock) - _zero_ns(first)) / 1e3
        name = f"{clock['host']}, process {clock['pid']}"
        if processes[clock["boot"], clock["pid"]] > 1:  # Of several loaders.
            name += f", {path}"
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        for event in trace["traceEvents"]:
            try:
                moved = {**event, "pid": pid}
                if "ts" in event:
                    moved["ts"] = event["ts"] + moved_us
                if "id" in event:  # Slices of one id are one track, in whatever process.
                    moved["id"] = f"{pid}.{event['id']}"
            except (TypeError, KeyError) as error:
                raise InvalidArgumentError(
                    f"merging traces: {path} has a bad event; write it again with loader.trace()"
                ) from error
            events.append(moved)
    return {"displayTimeUnit": "ms", "traceEvents": events, "clock": first}


def write_merged(paths: Sequence[Path], output: Path) -> int:
    """Writes merge_traces() as JSON; returns the number of events."""
    refuse_url("writing the trace", output)
    merged = merge_traces(paths)
    try:
        with output.open("w", encoding="utf-8") as file:
            json.dump(merged, file)
    except OSError as error:
        raise OSError(f"writing the trace {output}: {os_reason(error)}") from error
    return len(merged["traceEvents"])


def _zero_ns(clock: dict[str, Any]) -> int:
    """The time of day at which the machine's monotonic clock showed zero."""
    return int(clock["realtime_ns"]) - int(clock["monotonic_ns"])


def _read(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > _TRACE_BYTES_MAX:
            raise InvalidArgumentError(
                f"merging traces: {path} has {size:,} bytes, limit {_TRACE_BYTES_MAX:,}"
            )
        trace: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OSError(f"reading the trace {path}: {os_reason(error)}") from error
    except ValueError as error:
        raise InvalidArgumentError(
            f"merging traces: {path} is no JSON: {error}; write it again with loader.trace()"
        ) from error
    if not isinstance(trace, dict):
        trace = {}
    clock = trace.get("clock")
    wanted = {"boot": str, "host": str, "pid": int, "monotonic_ns": int, "realtime_ns": int}
    if (
        not isinstance(clock, dict)
        or not all(isinstance(clock.get(name), kind) for name, kind in wanted.items())
        or not isinstance(trace.get("traceEvents"), list)
    ):
        raise InvalidArgumentError(
            f"merging traces: {path} is not from loader.trace() of this version; write it again"
        )
    return dict(trace)
