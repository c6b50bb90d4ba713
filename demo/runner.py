"""Starts training runs one after another, shows how they go, and watches their memory."""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

import process_tree
from records import TITLES, Progress, Ready, Run, RunPlan

_STOP_SECONDS = 10.0
_MEMORY_PERIOD_SECONDS = 0.25  # A look costs a millisecond or two.


class _Display:
    """A bar for each epoch on a terminal; a line for each elsewhere."""

    def __init__(self, plan: RunPlan, rounds: int, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._title = TITLES[plan.kind] + (f", round {plan.round + 1}" if rounds > 1 else "")
        self._bars = Bars(
            TextColumn("{task.description:<42}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]:>6,.0f} samples/s  loss {task.fields[loss]:.2f}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._epochs = 0
        self._epoch = -1
        self._epoch_began = 0.0

    def __enter__(self) -> _Display:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, epochs: int) -> None:
        """The run's clock starts."""
        self._epochs = epochs
        self._begin_epoch(0)

    def _begin_epoch(self, number: int) -> None:
        self._epoch, self._epoch_began = number, time.perf_counter()
        name = f"{self._title}, epoch {number + 1} of {self._epochs}"
        self._task = self._bars.add_task(name, total=self._plan.samples, rate=0.0, loss=0.0)

    def step(self, progress: Progress) -> None:
        """A step was made."""
        if progress.epoch != self._epoch:
            self._begin_epoch(progress.epoch)
        rate = progress.samples / (time.perf_counter() - self._epoch_began)
        self._bars.update(self._task, completed=progress.samples, rate=rate, loss=progress.loss)

    def end(self, run: Run) -> None:
        """All epochs are over."""
        if not self._console.is_terminal:
            self._console.print(
                f"{self._title}: {len(run.epochs)} epochs in {run.seconds:.1f} s, "
                f"{run.samples_per_second:,.0f} samples/s"
            )


class _MemoryWatch:
    """Samples the memory of a process tree, from outside of it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._next = 0.0
        self.series: list[tuple[float, int]] = []

    def look(self) -> None:
        """Takes a sample if one is due."""
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + _MEMORY_PERIOD_SECONDS
            size = process_tree.memory_bytes(self._pid)
            # When it was taken: one that takes until workers end is then known as too late.
            self.series.append((time.perf_counter(), size))


def run(plan: RunPlan, rounds: int, console: Console) -> Run:
    """Runs `plan` in a process of its own, which is gone when this returns or raises."""
    # Not forked: the run's memory is to be its own, and torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_main, args=(plan, theirs), name=f"demo-{plan.kind}")
    process.start()
    theirs.close()
    try:
        with _Display(plan, rounds, console) as display:
            finished = _follow(process, ours, display)
            display.end(finished)
        process.join()
        return finished
    finally:
        ours.close()  # Which a run that is still at work takes as the end; so its workers end too.
        process.join(_STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _main(plan: RunPlan, connection: Connection) -> None:
    from training import train  # Imports torch: in this process only.

    train(plan, connection)


def _follow(process: BaseProcess, connection: Connection, display: _Display) -> Run:
    assert process.pid is not None
    watch = _MemoryWatch(process.pid)
    memory_before = 0
    while True:
        if connection.poll(_MEMORY_PERIOD_SECONDS):
            try:
                message = connection.recv()
            except EOFError:
                process.join()
                raise SystemExit(f"demo: the run died, exit code {process.exitcode}") from None
            if isinstance(message, Ready):
                memory_before = process_tree.memory_bytes(process.pid)
                connection.send("go")
                display.begin(message.epochs)
            elif isinstance(message, Progress):
                display.step(message)
            elif isinstance(message, Run):
                message.memory_before = memory_before
                message.memory_series = [
                    (when - message.clock_began, size)
                    for when, size in watch.series
                    if message.clock_began <= when <= message.clock_ended
                ]
                message.memory_peak = max((size for _, size in message.memory_series), default=0)
                return message
            else:
                raise SystemExit(f"demo: the run failed:\n{message}")
        if memory_before:
            watch.look()


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
