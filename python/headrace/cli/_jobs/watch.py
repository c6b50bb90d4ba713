"""`headrace top --watch`: a line when a rank of a job falls behind."""

from __future__ import annotations

import json
import re
import time

from headrace.cli._jobs.machines import Machines
from headrace.cli._parts.top import Board


class Watch:
    """Which lines about a job are worth printing: that it stands still, and who holds it up.

    Pure: the caller passes the time.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._moved_s: float | None = None
        self._taken: int | None = -1
        self._lines: list[str] = []

    def look(self, now_s: float, batches: int | None, late: list[str]) -> list[str]:
        """Lines to print now.

        `batches`: that all training loops took so far, None if none runs; `late`: lines of
        `late_rank` and `Board.unanswered()`.
        """
        if batches is None or batches != self._taken or self._moved_s is None:
            self._taken, self._moved_s = batches, now_s
        lines = list(late)
        still_s = now_s - self._moved_s
        if still_s >= self._after_s:
            lines.insert(0, f"no rank took a batch for {self._after_s:.0f} s or more")
        before, self._lines = self._lines, lines
        # Numbers in a line change with every look, except the rank's.
        return lines if [*map(_words, lines)] != [*map(_words, before)] else []


def _words(line: str) -> tuple[str, str]:
    """The rank or loader that a line names, and its text without numbers."""
    rank = re.match(r"rank \d+|\S+:", line)
    return rank[0] if rank else "", re.sub(r"[\d,.]", "", line)


def watch_ranks(
    machines: Machines, interval_s: float, after_s: float, once: bool, as_json: bool
) -> None:
    """Prints lines until Ctrl-C; `once`: looks twice."""
    board, watch = Board(), Watch(after_s)
    board.look(*machines.ask())
    while True:
        time.sleep(interval_s)
        board.look(*machines.ask(again=True))
        lines = watch.look(time.monotonic(), board.batches(), board.late() + board.unanswered())
        for line in lines:
            _print(line, as_json)
        if once:
            if not lines:
                _print("no rank is late", as_json)
            return


def _print(line: str, as_json: bool) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    print(json.dumps({"time": now, "late": line}) if as_json else f"{now} {line}", flush=True)
