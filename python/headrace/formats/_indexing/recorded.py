"""The samples of a part, kept until it is their turn to be added to the index."""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from stat import S_ISDIR
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace import _core, _places
from headrace._text import unread_reason
from headrace.errors import NotFoundError, ResourceExhaustedError, UnavailableError

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Triple = tuple[U64, U64, U64]

State = tuple[str, int, int]
"""Of a file: its path, its size in bytes, the time of its last change in nanoseconds."""

DEPENDS_ON = "depends_on"
"""The attribute of an index with the files it was made from: [path, size, mtime in ns]."""

_MEMORY_BYTES = 2**20  # of a part; more goes to a temporary file
_HEAD = struct.Struct("<I")


class Sink(Protocol):
    """What takes samples: the part of `_core.IndexBuilder` that describes no fields."""

    @property
    def object_count(self) -> int: ...

    def add_objects(self, names: Sequence[str], sizes: U64, mtimes_ns: I64) -> None: ...

    def add_extents(self, field: int, extents: Triple) -> None: ...

    def add_decoded_sizes(self, field: int, sizes: U64) -> None: ...

    def add_inline_values(self, field: int, values: Any) -> None: ...

    def add_ragged(self, field: int, values: Any, lengths: U64) -> None: ...

    def add_blocks(self, sample_counts: U64, extents: Triple) -> None: ...


@dataclass(frozen=True)
class Finished:
    """A part whose file was read."""

    calls: IO[bytes]
    """As `Recorder` writes them."""
    depends_on: list[State]
    progress: int
    """The number of samples or files found: the argument of the last `tell`."""
    state: State | None = None
    """Of the file before and after it was read; None if that differs."""
    is_kept: bool = False
    """Whether it was found in what a run that was stopped left."""


def spool(folder: str) -> IO[bytes]:
    """A file in memory, which goes to an unnamed one in `folder` above 1 MiB."""
    from tempfile import SpooledTemporaryFile  # It takes long to import.

    return SpooledTemporaryFile(_MEMORY_BYTES, dir=folder)  # Its user closes it.


class Recorder:
    """A `Sink` that keeps the calls. Files are numbered from 0, those of the part alone.

    Memory: 1 MiB; what is more goes to an unnamed file in `folder`.
    """

    def __init__(self, folder: str, check: Callable[[], None]) -> None:
        """`check` is called before each call is kept; it may raise, to stop."""
        self.calls = spool(folder)
        self._folder = folder
        self._check = check
        self._objects = 0

    @property
    def object_count(self) -> int:
        """Files added."""
        return self._objects

    def add_objects(self, names: Sequence[str], sizes: U64, mtimes_ns: I64) -> None:
        """Keeps files."""
        self._keep("objects", 0, [sizes, mtimes_ns], names)
        self._objects += len(names)

    def add_extents(self, field: int, extents: Triple) -> None:
        """Keeps samples with extents."""
        self._keep("extents", field, extents)

    def add_decoded_sizes(self, field: int, sizes: U64) -> None:
        """Keeps the bytes that samples decode to."""
        self._keep("decoded_sizes", field, [sizes])

    def add_inline_values(self, field: int, values: Any) -> None:
        """Keeps values of one size."""
        self._keep("values", field, [values])

    def add_ragged(self, field: int, values: Any, lengths: U64) -> None:
        """Keeps values that differ in length."""
        self._keep("ragged", field, [lengths, values])

    def add_blocks(self, sample_counts: U64, extents: Triple) -> None:
        """Keeps blocks."""
        self._keep("blocks", 0, [sample_counts, *extents])

    def add_note(self, text: str) -> None:
        """Keeps a text, which is for the whole and not for the index."""
        self._keep("note", 0, [], [text])

    def _keep(
        self, call: str, field: int, arrays: Sequence[Any], names: Sequence[str] = ()
    ) -> None:
        self._check()
        flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        head = json.dumps([call, field, [array.size for array in flat], list(names)]).encode()
        try:
            self.calls.write(_HEAD.pack(len(head)) + head)
            for array in flat:
                self.calls.write(array.data)
        except OSError as error:
            kind = ResourceExhaustedError if error.errno == errno.ENOSPC else UnavailableError
            raise kind(
                f"indexing: writing a temporary file in {self._folder}: {error.strerror}"
            ) from error


def replay(
    calls: IO[bytes],
    sink: Sink,
    add_blocks: Callable[[U64, Triple], None],
    add_note: Callable[[str], object],
) -> None:
    """Makes the calls that a `Recorder` kept; its files get the next numbers of `sink`.

    Blocks and notes go to `add_blocks` and `add_note`, in place of `sink`.
    """
    first = np.uint64(sink.object_count)
    calls.seek(0)
    while length := calls.read(_HEAD.size):
        call, field, sizes, names = json.loads(calls.read(*_HEAD.unpack(length)))
        arrays = [np.frombuffer(calls.read(size), np.uint8) for size in sizes]
        if call == "objects":
            sink.add_objects(names, arrays[0].view(np.uint64), arrays[1].view(np.int64))
        elif call == "extents":
            sink.add_extents(field, _moved(arrays, first))
        elif call == "decoded_sizes":
            sink.add_decoded_sizes(field, arrays[0].view(np.uint64))
        elif call == "note":
            add_note(names[0])
        elif call == "values":
            sink.add_inline_values(field, arrays[0])
        elif call == "ragged":
            sink.add_ragged(field, arrays[1], arrays[0].view(np.uint64))
        else:
            add_blocks(arrays[0].view(np.uint64), _moved(arrays[1:], first))


def _moved(arrays: Sequence[npt.NDArray[np.uint8]], first: np.uint64) -> Triple:
    files, offsets, sizes = (array.view(np.uint64) for array in arrays)
    return files + first, offsets, sizes


def state_of(path: str) -> State | None:
    """As `file_state`; None: there is no such file."""
    try:
        return file_state(path)
    except NotFoundError:
        return None


def file_state(path: str) -> State:
    """The state of a file. Of a folder: a size of -1 and the time of its last addition."""
    try:
        status = _places.stat(path)
    except OSError as error:
        raise NotFoundError(f"reading the state of {path}: {unread_reason(error)}") from error
    return path, -1 if S_ISDIR(status.st_mode) else status.st_size, status.st_mtime_ns


def is_current(index: _core.Index) -> bool:
    """Whether the files that the index depends on are as they were."""
    try:
        wanted = json.loads(index.attributes.get(DEPENDS_ON, "[]"))
        _places.look_ahead(
            (path for path, size, _ in wanted if size >= 0),
            (path for path, size, _ in wanted if size < 0),
        )
        return all(file_state(path) == (path, size, mtime_ns) for path, size, mtime_ns in wanted)
    except (ValueError, TypeError, NotFoundError):
        return False
