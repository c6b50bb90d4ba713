"""`headrace trace merge` and `headrace watchdog`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace._observe.merge import write_merged
from headrace.cli._jobs.machines import Machines
from headrace.cli._jobs.nodes import VIA
from headrace.cli._parts import top as _top
from headrace.cli._parts.options import Job, Json, Nodes, Via
from headrace.errors import InvalidArgumentError

_INTERVAL_MIN = 0.1


def merge(
    traces: Annotated[list[Path], typer.Argument(help="Files that loader.trace() wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The merged trace.")] = Path(
        "headrace-trace.json"
    ),
    as_json: Json = False,
) -> None:
    """Merge traces of several ranks, processes and machines into one.

    Each file is a process of the trace, named by its machine. Machines' clocks are brought together
    by the time of day at which the files were written.

    Example: [bold]headrace trace merge rank0.json rank1.json -o job.json[/bold]
    """
    if output.resolve() in [path.resolve() for path in traces]:
        raise InvalidArgumentError(f"--output: {output} is one of the traces; name another file")
    events = write_merged(traces, output)
    if as_json:
        print(json.dumps({"output": str(output), "traces": len(traces), "events": events}))
    else:
        print(f"merged {len(traces)} traces, {events:,} events: {output}")


class Watch:
    """What of a job is worth a line: that it stands still, and who holds it up.

    Pure: the caller passes the time.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._moved_s: float | None = None
        self._taken: int | None = -1
        self._told: list[str] = []

    def look(self, now_s: float, batches: int | None, late: list[str]) -> list[str]:
        """Lines to print now.

        `batches`: that all training loops took so far, None if none runs; `late`: lines of
        `late_rank`.
        """
        if batches is None or batches != self._taken or self._moved_s is None:
            self._taken, self._moved_s = batches, now_s
        lines = list(late)
        still_s = now_s - self._moved_s
        if still_s >= self._after_s:
            lines.insert(0, f"no rank took a batch for {self._after_s:.0f} s or more")
        told, self._told = self._told, lines
        # What changes in a line from look to look is numbers, but for the rank's.
        return lines if [*map(_words, lines)] != [*map(_words, told)] else []


def _words(line: str) -> tuple[str, str]:
    """Whom a line is about, and what it says without numbers."""
    about = re.match(r"rank \d+", line)
    return about[0] if about else "", re.sub(r"[\d,.]", "", line)


def watchdog(
    pids: Annotated[
        list[int] | None, typer.Argument(help="Only these processes; default: all.")
    ] = None,
    after: Annotated[
        float, typer.Option(help="Seconds without a batch after which a job stands still.")
    ] = 30.0,
    interval: Annotated[float, typer.Option(help="Seconds between looks.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, and end.")] = False,
    as_json: Json = False,
    node: Nodes = None,
    job: Job = False,
    via: Via = VIA,
) -> None:
    """Print which rank of a job is late, and for what it waits, until Ctrl-C.

    Looks at the loaders that 'headrace top' shows. Prints a line when something changes: a rank
    falls behind, waits while others do not, gives no answer, or no rank takes a batch.

    Example: [bold]headrace watchdog --job --after 60[/bold]
    """
    for name, value in (("--interval", interval), ("--after", after)):
        if value < _INTERVAL_MIN:
            raise InvalidArgumentError(f"{name}: got {value}, must be {_INTERVAL_MIN} s or more")
    machines = Machines(pids, node or [], job, via)
    board, watch = _top.Board(), Watch(after)
    board.look(*machines.ask())
    try:
        while True:
            time.sleep(interval)
            board.look(*machines.ask(again=True))
            lines = watch.look(time.monotonic(), board.batches(), board.late())
            for line in lines:
                _tell(line, as_json)
            if once:
                if not lines:
                    _tell("no rank is late", as_json)
                return
    except KeyboardInterrupt:  # The normal way to leave.
        return


def _tell(line: str, as_json: bool) -> None:
    when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    told: Mapping[str, Any] = {"time": when, "late": line}
    print(json.dumps(told) if as_json else f"{when} {line}", flush=True)
