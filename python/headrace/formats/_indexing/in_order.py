"""Work on several items at a time, whose results come in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

JOBS = 8
"""Files that are read at a time by default: storage answers several reads as fast as one."""

JOBS_MAX = 256

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items begun for each thread: the next is there when one ends
_LOOK_S = 0.1  # between two calls of `waiting`


def in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    jobs: int = JOBS,
    *,
    stopped: threading.Event | None = None,
    waiting: Callable[[], object] = lambda: None,
) -> Generator[Result, None, None]:
    """Yields `work(item)` for each item, in order; `jobs` threads work ahead.

    At most 2 * jobs results are held. One job works on the calling thread. `waiting()` is called
    on the calling thread while a result is not there; it may raise, to stop. An exception of
    `work` is raised in the item's turn, so it is always that of the first item in order.

    When the iterator ends or is closed, `stopped` is set, by which `work` may end early, and the
    threads have ended.
    """
    if jobs == 1:
        yield from map(work, items)
        return
    left = iter(items)
    begun: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(jobs, thread_name_prefix="headrace-index") as threads:

        def begin(item: Item) -> Future[Result]:
            return threads.submit(copy_context().run, work, item)  # What is remembered is in it.

        try:
            begun.extend(map(begin, islice(left, _AHEAD * jobs)))
            while begun:
                first = begun.popleft()
                while not wait([first], _LOOK_S).done:
                    waiting()
                yield first.result()
                begun.extend(map(begin, islice(left, 1)))
        finally:
            if stopped is not None:
                stopped.set()
            for future in begun:
                future.cancel()
