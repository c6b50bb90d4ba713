"""What a run that was stopped leaves, for the next one to go on: PATH.unfinished beside an index.

The file begins with a line of JSON that says what is indexed, and how. Parts follow in the order
in which they were finished, each behind a head: sizes, a CRC-32 of the rest, then JSON with the
state of the part's file, then the calls that add its samples (`recorded.py`). A process that is
killed leaves a part of one at the end, which the next run cuts off.

One process at a time: it holds a lock on the file, which the system releases if it is killed.
Another one that indexes the same meanwhile reads all files itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import time
import weakref
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.formats._indexing.recorded import Finished, State, spool, state_of

SUFFIX = ".unfinished"
KEEP_AFTER_S = 2.0
"""How long a run takes before it leaves anything: a shorter one is begun again as fast."""

_HEAD = struct.Struct("<4sIQI")  # _MARK, bytes of the JSON, bytes of the calls, CRC-32 of both
_MARK = b"part"
_JSON_BYTES_MAX = 2**28
_COPY_BYTES = 2**20


class _Place(NamedTuple):
    """Where a part lies in the file."""

    state: State
    offset: int  # of its JSON
    json_bytes: int
    calls_bytes: int
    checksum: int


class Unfinished:
    """The parts that are finished, of an index that is not.

    Thread safety: `find` from any thread; the others from one.
    """

    def __init__(self, path: str, about: Mapping[str, Any]) -> None:
        """`path`: of the index. `about`: what is indexed, and how; other parts are dropped."""
        self._path = path + SUFFIX
        self._about = (json.dumps(about, sort_keys=True) + "\n").encode()
        self._begin = time.monotonic()
        self._places: dict[str, _Place] = {}
        self._fd: int | None = None
        self._close_fd: Callable[[], object] = lambda: None
        self._end = 0
        self._is_off = False
        if os.path.exists(self._path):
            self._open()

    def find(self, state: State) -> Finished | None:
        """The part of a file that is as it was, with all that it depends on; else None."""
        place, fd = self._places.get(state[0]), self._fd
        if place is None or place.state != state or fd is None:
            return None
        calls = spool(os.path.dirname(self._path))
        text, checksum, at = b"", 0, place.offset + place.json_bytes
        end = at + place.calls_bytes
        try:
            text = os.pread(fd, place.json_bytes, place.offset)
            checksum = zlib.crc32(text)
            while piece := os.pread(fd, min(_COPY_BYTES, end - at), at):
                checksum = zlib.crc32(piece, checksum)
                calls.write(piece)
                at += len(piece)
        except OSError:
            at = -1  # As if it were damaged.
        if at != end or checksum != place.checksum:
            calls.close()
            return None
        _, depends_on, samples = json.loads(text)
        beside = [_state(dependency) for dependency in depends_on]
        if any(state_of(other[0]) != other for other in beside):
            calls.close()
            return None
        return Finished(calls, beside, samples, state, is_kept=True)

    def add(self, part: Finished) -> None:
        """Keeps a part, unless it was found here, or its file changed while it was read.

        A disk that is full, or a folder that cannot be written, end the keeping, not the run.
        """
        if part.is_kept or part.state is None or self._is_off:
            return
        if self._fd is None:
            if time.monotonic() - self._begin < KEEP_AFTER_S:
                return
            self._open()
        if self._fd is None:
            return
        try:
            self._append(self._fd, part)
        except OSError:
            self.remove()

    def remove(self) -> None:
        """Ends; nothing is left."""
        self._end = 0
        self.close()

    def close(self) -> None:
        """Ends; the parts that were kept are left."""
        self._is_off = True
        if self._fd is not None:
            if self._end <= len(self._about):
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            self._fd = None
            self._close_fd()

    def _open(self) -> None:
        """Opens and locks the file, unless another process has it."""
        try:
            self._fd = self._locked()
            if self._fd is not None:
                self._close_fd = weakref.finalize(self, os.close, self._fd)
                self._read(self._fd)
        except OSError:
            self.close()
        if self._fd is None:
            self._is_off = True

    def _locked(self) -> int | None:
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever had it may have removed it between the two calls.
                if os.path.samestat(os.stat(self._path), os.fstat(fd)):
                    return fd
            except BlockingIOError:
                os.close(fd)
                return None
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _read(self, fd: int) -> None:
        """Finds the parts. Cuts off what is not whole, or all if it is about something else."""
        size = os.fstat(fd).st_size
        if os.pread(fd, len(self._about), 0) != self._about:
            os.ftruncate(fd, 0)
            _write(fd, self._about, 0)
            self._end = len(self._about)
            return
        at = len(self._about)
        while (place := _place_at(fd, at, size)) is not None:
            self._places[place.state[0]] = place
            at = place.offset + place.json_bytes + place.calls_bytes
        os.ftruncate(fd, at)
        self._end = at

    def _append(self, fd: int, part: Finished) -> None:
        text = json.dumps([part.state, part.depends_on, part.progress]).encode()
        at = self._end + _HEAD.size
        checksum = zlib.crc32(text)
        _write(fd, text, at)
        at += len(text)
        calls_bytes = 0
        part.calls.seek(0)
        while piece := part.calls.read(_COPY_BYTES):
            checksum = zlib.crc32(piece, checksum)
            _write(fd, piece, at + calls_bytes)
            calls_bytes += len(piece)
        # The head last: without it the part is not there.
        _write(fd, _HEAD.pack(_MARK, len(text), calls_bytes, checksum), self._end)
        self._end = at + calls_bytes


def _place_at(fd: int, at: int, size: int) -> _Place | None:
    head = os.pread(fd, _HEAD.size, at)
    if len(head) < _HEAD.size:
        return None
    mark, json_bytes, calls_bytes, checksum = _HEAD.unpack(head)
    offset = at + _HEAD.size
    if mark != _MARK or json_bytes > _JSON_BYTES_MAX or offset + json_bytes + calls_bytes > size:
        return None
    try:
        state, depends_on, samples = json.loads(os.pread(fd, json_bytes, offset))
        for entry in (state, *depends_on):
            _state(entry)
        int(samples)
        return _Place(_state(state), offset, json_bytes, calls_bytes, checksum)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _state(entry: Any) -> State:
    path, size, mtime_ns = entry
    return str(path), int(size), int(mtime_ns)


def _write(fd: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written
