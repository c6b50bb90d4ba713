"""Indexing by Ray tasks: each describes some files of a dataset."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any

from headrace import _core
from headrace.formats._indexing.elsewhere import Described, PartWork
from headrace.ray._cluster import check_version, connected
from headrace.ray._tasks import Tasks, by_tasks, slots

_FILES_MAX = 16  # that a task describes one after the other
_TASKS_PER_PROCESSOR = 4  # at least, before a task gets several files

_Lock = type(threading.Lock())


class IndexingTasks:
    """Describes the parts of an index by tasks of the cluster, to which it connects.

    `at_once`: as that of `Tasks`.

    Thread safety: one thread.

    Raises:
        ImportError, UnavailableError: as `connected`.
    """

    def __init__(self, doing: str, at_once: int | None = None) -> None:
        self._ray = connected(doing)
        self._at_once = at_once
        self.was_used = False
        """Whether the dataset had parts."""

    def __call__(
        self,
        work: PartWork,
        paths: Sequence[str],
        finished: Callable[[Described], object],
        waiting: Callable[[], object],
    ) -> Generator[Described, None, None]:
        """As `Elsewhere`."""
        self.was_used = True
        return self._parts(work, paths, finished, waiting)

    def _parts(
        self,
        work: PartWork,
        paths: Sequence[str],
        finished: Callable[[Described], object],
        waiting: Callable[[], object],
    ) -> Generator[Described, None, None]:
        shared = self._ray.put(_pickled(self._ray, work))
        size = min(_FILES_MAX, max(1, len(paths) // (_TASKS_PER_PROCESSOR * slots(self._ray))))
        groups = [list(paths[at : at + size]) for at in range(0, len(paths), size)]
        tasks = Tasks(
            _describe,
            len(groups),
            arguments=lambda number: (_core.version, shared, groups[number]),
            name=lambda number: f"indexing {groups[number][0]}",
            at_once=self._at_once,
        )
        results = by_tasks(
            self._ray, tasks, lambda _, parts: [finished(part) for part in parts], waiting
        )
        with closing(results):
            for parts in results:
                yield from parts


def _describe(version: str, pickled: bytes, paths: Sequence[str]) -> list[Described]:
    """A task."""
    check_version(version)
    work: PartWork = pickle.loads(pickled)
    return [work.of(path) for path in paths]


def _pickled(ray: Any, work: PartWork) -> bytes:
    """By value what other processes cannot import: the functions that a format makes.

    Each process gets locks of its own: they limit the memory of one.
    """

    class Pickler(ray.cloudpickle.CloudPickler):  # type: ignore[misc]  # It has no types.
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, _Lock):
                return threading.Lock, ()
            return super().reducer_override(value)

    data = io.BytesIO()
    Pickler(data).dump(work)
    return data.getvalue()
