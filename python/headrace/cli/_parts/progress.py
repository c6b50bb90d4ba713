"""How far a command is, on stderr and on a terminal only: stdout is for results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


def _display(*columns: str | ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], object]]:
    """For work of unknown length: files found."""
    with _display(
        SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,} files")
    ) as shown:
        task = shown.add_task(what, total=None)
        yield lambda files: shown.update(task, completed=files)


@contextmanager
def bar(what: str, in_bytes: bool) -> Iterator[Callable[[int, int], object]]:
    """For work of known length: samples, files or bytes."""
    amount: list[ProgressColumn] = (
        [DownloadColumn(binary_units=True), TransferSpeedColumn()]
        if in_bytes
        else [MofNCompleteColumn()]
    )
    with _display(
        TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn()
    ) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextmanager
def parts(what: str) -> Iterator[Callable[[str], object]]:
    """For work of several parts, each shown by its name."""
    with _display(SpinnerColumn(), TextColumn("{task.description}")) as shown:
        task = shown.add_task(what, total=None)
        yield lambda name: shown.update(task, description=f"{what} {name}")
