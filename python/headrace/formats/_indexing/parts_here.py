"""Describes the files of a dataset, several at a time; their samples come in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Generic, NoReturn, TypeVar

from headrace.errors import CancelledError, FailedPreconditionError, InvalidArgumentError
from headrace.formats._indexing.in_order import in_order
from headrace.formats._indexing.recorded import Finished, Recorder, State, state_of
from headrace.formats._indexing.unfinished import Unfinished


class RecordingPart:
    """What a builder of one part does otherwise than that of the whole: records, and no more.

    Thread safety: one thread, but `progress`.
    """

    def __init__(self, folder: str, stopped: threading.Event) -> None:
        """`folder`: of temporary files. `stopped`: ends it early."""
        self._depends_on: list[State] = []
        self._samples = 0
        self._stopped = stopped
        self._recorder = Recorder(folder, self._check)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise CancelledError("indexing: another part could not be described")

    def tell(self, samples: int) -> None:
        """Notes progress, which the whole reports; raises if the whole was stopped."""
        self._samples = samples
        self._check()

    @property
    def progress(self) -> int:
        """The number of samples or files of the last `tell`."""
        return self._samples

    def finished(self, state: State | None) -> Finished:
        """What was recorded."""
        return Finished(self._recorder.calls, self._depends_on, self._samples, state)

    def discard(self) -> None:
        """Drops what was recorded."""
        self._recorder.calls.close()

    def add_note(self, text: str) -> None:
        """Keeps a text for the whole."""
        self._recorder.add_note(text)

    def add_field(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: fields are those of the whole."""
        raise InvalidArgumentError("a part got a field: add it before add_parts()")

    def set_attribute(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: attributes are those of the whole."""
        raise InvalidArgumentError("a part got an attribute: set it outside of add_parts()")

    def add_parts(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: a part has none."""
        raise InvalidArgumentError("a part got parts: call add_parts() of the builder itself")

    def publish(self) -> NoReturn:
        """Raises: the whole is published."""
        raise FailedPreconditionError(
            "writing an index: it is that of the whole, not of a part; call publish() of the "
            "builder itself"
        )


Described = TypeVar("Described", bound=RecordingPart)


class PartsHere(Generic[Described]):
    """The parts of one call of `Builder.add_parts`.

    Thread safety: one thread, which calls `read`; that starts others.
    """

    def __init__(
        self,
        begin: Callable[[threading.Event], Described],
        describe: Callable[[str, Described], object],
        kept: Unfinished | None,
        jobs: int,
        tell: Callable[[int], object],
    ) -> None:
        """`begin`: makes what a part is described to, which ends early if the event is set.

        `kept`: parts of a run that was stopped, and where those of this one go. `jobs`: files
        that are read at a time. `tell`: takes the number of samples found.
        """
        self._begin = begin
        self._describe = describe
        self._kept = kept
        self._jobs = jobs
        self._tell = tell
        self._stopped = threading.Event()
        self._open: dict[int, Described] = {}  # by id: those being described
        self._made: set[Any] = set()  # files of what was recorded
        self.progress = 0
        """The sum of that of the parts."""

    def read(self, paths: Sequence[str]) -> Generator[Finished, None, None]:
        """Yields the parts in the order of `paths`; each is closed when the next one is asked."""
        described = in_order(
            self._finished, paths, self._jobs, stopped=self._stopped, waiting=self._tell_all
        )
        try:
            with closing(described):  # No thread works when the files are closed.
                for part in described:
                    if self._kept is not None:
                        self._kept.add(part)
                    yield part
                    self._made.discard(part.calls)
                    part.calls.close()
                    self.progress += part.progress
                    self._tell_all()
        finally:
            for calls in self._made:
                calls.close()

    def _finished(self, path: str) -> Finished:
        """Of one path; on any thread."""
        state = state_of(path)
        if self._kept is not None and state is not None:
            kept_part = self._kept.find(state)
            if kept_part is not None:
                self._made.add(kept_part.calls)
                return kept_part
        part = self._begin(self._stopped)
        self._open[id(part)] = part
        try:
            note = self._describe(path, part)
            if isinstance(note, str):
                part.add_note(note)
        except BaseException:
            part.discard()
            raise
        finally:
            del self._open[id(part)]
        done = part.finished(state if state_of(path) == state else None)
        self._made.add(done.calls)
        return done

    def _tell_all(self) -> None:
        self._tell(self.progress + sum(part.progress for part in list(self._open.values())))
