"""The parts of an index that other processes describe, such as tasks of a cluster."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.formats._indexing.parts_here import RecordingPart
from headrace.formats._indexing.recorded import Finished, State, spool, state_of
from headrace.formats._indexing.unfinished import Unfinished


@dataclass(frozen=True)
class PartWork:
    """What another process must know to describe a part: it can be pickled if `describe` can."""

    make: Callable[[PartWork, str, threading.Event], Any]
    """Makes the builder of a part, of this, a folder for temporary files, and an event."""
    root: str
    decodes: bool
    row_groups: bool
    fields: Mapping[str, Any]
    describe: Callable[[str, Any], object]

    def of(self, path: str) -> Described:
        """Describes a file."""
        state = state_of(path)
        part = self.make(self, tempfile.gettempdir(), threading.Event())
        assert isinstance(part, RecordingPart)
        try:
            note = self.describe(path, part)
            if isinstance(note, str):
                part.add_note(note)
            done = part.finished(state if state_of(path) == state else None)
            done.calls.seek(0)
            return Described(done.calls.read(), done.depends_on, done.progress, done.state)
        finally:
            part.discard()


@dataclass(frozen=True)
class Described:
    """A `Finished` part on its way from another process."""

    calls: bytes
    depends_on: list[State]
    progress: int
    state: State | None

    def arrived(self, folder: str) -> Finished:
        """It, with the calls in a file of this process."""
        calls = spool(folder)
        try:
            calls.write(self.calls)
        except BaseException:
            calls.close()
            raise
        return Finished(calls, self.depends_on, self.progress, self.state)


class Elsewhere(Protocol):
    """Describes the parts of files in other processes."""

    def __call__(
        self,
        work: PartWork,
        paths: Sequence[str],
        finished: Callable[[Described], object],
        waiting: Callable[[], object],
    ) -> Generator[Described, None, None]:
        """Yields the parts in the order of `paths`. Calls `finished` as each arrives, in any
        order, and `waiting` meanwhile, which may raise, to stop. Closing it stops the processes.
        """


class PartsElsewhere:
    """As `PartsHere`: the parts of one call of `Builder.add_parts`, described by other processes.

    Thread safety: one thread.
    """

    def __init__(
        self,
        elsewhere: Elsewhere,
        work: PartWork,
        folder: str,
        kept: Unfinished | None,
        tell: Callable[[int], object],
    ) -> None:
        """`folder`: of temporary files. `kept`, `tell`: as those of `PartsHere`."""
        self._elsewhere = elsewhere
        self._work = work
        self._folder = folder
        self._kept = kept
        self._tell = tell
        self._arrived = 0  # progress of parts that arrived
        self.progress = 0
        """The sum of what the parts told last."""

    def read(self, paths: Sequence[str]) -> Generator[Finished, None, None]:
        """Yields the parts in the order of `paths`; each is closed when the next one is asked."""
        missing = [path for path in paths if not self._has(path)]
        left = set(missing)
        described = self._elsewhere(self._work, missing, self._keep, self._waiting)
        with closing(described):
            for path in paths:
                part = None if path in left else self._find(path)
                if part is None and path not in left:  # It changed since, or its folder did.
                    part = self._work.of(path).arrived(self._folder)
                elif part is None:
                    part = next(described).arrived(self._folder)
                try:
                    yield part
                finally:
                    part.calls.close()
                self.progress += part.progress
                self._waiting()

    def _find(self, path: str) -> Finished | None:
        state = state_of(path)
        if self._kept is None or state is None:
            return None
        return self._kept.find(state)

    def _has(self, path: str) -> bool:
        part = self._find(path)
        if part is not None:
            self._arrived += part.progress
            part.calls.close()
        return part is not None

    def _keep(self, part: Described) -> None:
        self._arrived += part.progress
        if self._kept is not None:
            arrived = part.arrived(self._folder)
            try:
                self._kept.add(arrived)
            finally:
                arrived.calls.close()

    def _waiting(self) -> None:
        self._tell(self._arrived)
