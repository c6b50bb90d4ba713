"""One training run that ends in the middle, one way or another: the program of test_ends.py.

Arguments: the control socket of its mount (fuse_server.py), and a JSON object:

    how       "SIGINT", "SIGTERM", "exit" or "exception"
    storage   "answers", "slow" or "frozen": what the mount does from step `step` on
    step      batches taken before that
    delay_ms  from then on to the signal
    where     "bare", "with" or "daemon" (a daemon thread that iterates): around the loop
    loader    arguments of the loader; `workers` brings a transform
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import headrace as hr

SIGNALS = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}
SLOW_MS = 150


def as_is(sample: Any) -> Any:
    """What a worker does."""
    return sample.label


def made(plan: dict[str, Any], monitor: bool | None = None) -> hr.Loader:
    """The loader of a plan, which is JSON."""
    arguments = dict(plan)
    if arguments.pop("isolation") == "process":
        arguments["job"] = hr.Job(node=hr.Node())
    if arguments.get("workers"):
        arguments["workers"] = hr.Workers(arguments["workers"], start=arguments.pop("start"))
        arguments["transform"] = as_is
    engine = hr.EngineOptions(prefetch=arguments.pop("prefetch"), monitor=monitor)
    return hr.Loader(output="numpy", engine=engine, **arguments)


class Run:
    """The loop, and its end."""

    def __init__(self, control: int, plan: dict[str, Any]) -> None:
        self._control = control  # a descriptor: an object would be reported as not closed
        self._plan = plan
        self._step = 0
        self._at_end = threading.Event()
        self._loader = made(plan["loader"], monitor=True)

    def run(self) -> None:
        """Returns, or raises, if it is the program that ends the loop."""
        if self._plan["where"] == "daemon":
            threading.Thread(target=self._iterate, daemon=True).start()
            self._at_end.wait()
            self._end()
            return
        with self._loader if self._plan["where"] == "with" else contextlib.nullcontext():
            self._iterate()

    def _iterate(self) -> None:
        if self._reach(0):
            return
        while True:
            for _ in self._loader:
                self._step += 1
                if self._reach(self._step):
                    return

    def _reach(self, step: int) -> bool:
        """Whether the loop is over: at its step the storage changes, and the end is near."""
        if step != self._plan["step"]:
            return False
        storage = {"answers": "answer", "slow": f"slow {SLOW_MS}", "frozen": "freeze"}
        os.write(self._control, f"{storage[self._plan['storage']]}\n".encode())
        assert os.read(self._control, 64) == b"ok\n"
        number = SIGNALS.get(self._plan["how"])
        if number is not None:
            delay_ms = self._plan["delay_ms"]
            os.write(self._control, f"signal {int(number)} {os.getpid()} {delay_ms}\n".encode())
            return False
        if self._plan["where"] == "daemon":
            self._at_end.set()
            return False
        self._end()
        return True

    def _end(self) -> None:
        os.write(1, f"{time.monotonic_ns()}\n".encode())
        if self._plan["how"] == "exception":
            raise ZeroDivisionError


if __name__ == "__main__":
    Run(int(sys.argv[1]), json.loads(sys.argv[2])).run()
