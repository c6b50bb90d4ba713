"""Work on many items by Ray tasks, whose results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.errors import HeadraceError, UnavailableError

RETRIES = 8
"""How often Ray starts a task again: its worker or its node died, or storage was unavailable."""

_AHEAD = 4  # items begun and not yet yielded, for each task that can run
_AHEAD_MIN = 16
_LOOK_S = 0.2  # between two calls of `waiting`
_END_S = 10.0  # seconds that tasks may take to stop

Result = TypeVar("Result")


def slots(ray: Any) -> int:
    """The tasks of one processor each that the cluster has room for."""
    return max(1, int(ray.cluster_resources().get("CPU", 0)))


@dataclass(frozen=True)
class Tasks(Generic[Result]):
    """Items of work, each for a task of one processor."""

    work: Callable[..., Result]
    count: int
    arguments: Callable[[int], tuple[Any, ...]]
    """Those of `work` for an item, by its number."""
    name: Callable[[int], str]
    """What an item does, for messages."""
    at_once: int | None = None
    """Tasks that are begun and not done; None: what the cluster has room for, and some that
    wait for it."""


def by_tasks(
    ray: Any,
    tasks: Tasks[Result],
    finished: Callable[[int, Result], object],
    waiting: Callable[[], object],
) -> Generator[Result, None, None]:
    """Yields the results in the order of the items.

    `finished(number, result)` is called when an item is done, in any order. `waiting()` is called
    meanwhile; it may raise, to stop. An exception of the work is raised in the item's turn, so it
    is always that of the first item in order. When the iterator ends or is closed, tasks that
    still run are cancelled.

    Results that wait for their turn are few: an item is begun only when those in front of it, but
    for some, were yielded.

    Raises:
        UnavailableError: Ray could not finish an item, though it tried again.
    """
    remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=[UnavailableError])(
        tasks.work
    )
    ahead = max(_AHEAD_MIN, _AHEAD * slots(ray), tasks.at_once or 0)
    most = tasks.at_once or ahead
    running: dict[Any, int] = {}  # numbers of items, by Ray's reference
    done: dict[int, Result | Exception] = {}
    order: deque[int] = deque()
    begun = 0
    try:
        while begun < tasks.count or order:
            while begun < tasks.count and len(order) < ahead and len(running) < most:
                running[remote.remote(*tasks.arguments(begun))] = begun
                order.append(begun)
                begun += 1
            if order[0] not in done:
                ready, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK_S)
                waiting()
                for reference in ready:
                    number = running.pop(reference)
                    done[number] = _result(ray, tasks.name(number), reference)
                    result = done[number]
                    if not isinstance(result, Exception):
                        finished(number, result)
                continue
            result = done.pop(order.popleft())
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        for reference in running:
            ray.cancel(reference)
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=_END_S)


def _result(ray: Any, name: str, reference: Any) -> Any:
    """What a task returned, or its exception, as it would be without Ray."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, (HeadraceError, OSError, ImportError)):
            return cause
        return error
    except ray.exceptions.RayError as error:
        return UnavailableError(
            f"{name}: Ray could not finish it, though it tried {RETRIES + 1} times: "
            f"{type(error).__name__}: {error}; what is finished is kept: do the same again to "
            "continue"
        )
