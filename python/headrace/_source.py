"""Reads the bytes of samples straight from their files, through an index, and checks them.

For packing, verifying and looking at single samples. Training does not come this way.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections import OrderedDict
from types import TracebackType
from typing import Self

from headrace import _core
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from headrace.formats._findings import skip_of

_OPEN_FILES_MAX = 8


def leave_out(kind: str) -> str:
    """How to leave files of this kind out (src/index/skip_rules.h)."""
    return f'leave it out with --skip {kind} (in Python: skip="{kind}")'


def remedy(index: _core.Index) -> str:
    """What to do when a file is not as the index says."""
    if index.attributes.get("format") == "folder":
        skip = "".join(f" --skip {shlex.quote(each)}" for each in skip_of(index))
        return f"run `headrace index {index.root}{skip}` to index the folder as it is now"
    return "copy or create the dataset again"


class SampleReader:
    """Open files of a dataset, a few at a time, each checked against the index when opened.

    For one thread. A file that is missing, or has another size or modification time than was
    indexed, is an error that names it.
    """

    def __init__(self, index: _core.Index) -> None:
        self._index = index
        self._files: OrderedDict[int, tuple[int, str]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes what is open; the reader can be used again."""
        while self._files:
            os.close(self._files.popitem()[1][0])

    def path(self, object_id: int) -> str:
        """Where the object lies."""
        return os.path.join(self._index.root, self._index.object(object_id)[0])

    def check(self, object_id: int) -> int:
        """Opens the object and checks it against the index; its size in bytes."""
        return os.fstat(self._open(object_id)[0]).st_size

    def read_into(self, object_id: int, offset: int, target: memoryview) -> None:
        """Fills all of `target` from the object's bytes at `offset`."""
        fd, path = self._open(object_id)
        done = 0
        try:
            while done < len(target):
                got = os.preadv(fd, [target[done:]], offset + done)
                if got == 0:
                    raise DataLossError(
                        f"reading {path} bytes [{offset}, {offset + len(target)}): "
                        f"the file ends at {offset + done}; {remedy(self._index)}"
                    )
                done += got
        except DataLossError:
            raise
        except OSError as error:
            raise UnavailableError(f"reading {path}: {error.strerror}") from error

    def check_unchanged(self, object_id: int) -> None:
        """Fails if the object changed since it was opened: what was read may be a mixture."""
        fd, path = self._open(object_id)
        self._check_stat(fd, path, object_id)

    def read(self, object_id: int, offset: int, size: int) -> bytearray:
        """The object's bytes [offset, offset + size)."""
        data = bytearray(size)
        self.read_into(object_id, offset, memoryview(data))
        return data

    def _open(self, object_id: int) -> tuple[int, str]:
        known = self._files.get(object_id)
        if known is not None:
            self._files.move_to_end(object_id)
            return known
        path = self.path(object_id)
        try:
            # O_NONBLOCK: the open of a pipe must not wait for a writer.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise NotFoundError(f"opening {path}: {self._why_gone(path)}") from error
        except OSError as error:
            raise FailedPreconditionError(f"opening {path}: {error.strerror}") from error
        try:
            self._check_stat(fd, path, object_id)
        except BaseException:
            os.close(fd)
            raise
        if len(self._files) >= _OPEN_FILES_MAX:
            os.close(self._files.popitem(last=False)[1][0])
        self._files[object_id] = (fd, path)
        return fd, path

    def _why_gone(self, path: str) -> str:
        if os.path.islink(path):
            return (
                f"this is a link to {os.readlink(path)}, which is not there; "
                f"{leave_out(':broken_link')}, or put there what it is a link to"
            )
        return f"the file is gone since it was indexed; {remedy(self._index)}"

    def _check_stat(self, fd: int, path: str, object_id: int) -> None:
        _, size, mtime_ns = self._index.object(object_id)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise FailedPreconditionError(
                f"opening {path}: this is no regular file; {leave_out(':special')}"
            )
        if found.st_size != size:
            raise FailedPreconditionError(
                f"opening {path}: changed since it was indexed: it had {size} bytes and now has "
                f"{found.st_size}; {remedy(self._index)}"
            )
        if mtime_ns not in (0, found.st_mtime_ns):
            raise FailedPreconditionError(
                f"opening {path}: changed since it was indexed (its modification time is another); "
                f"{remedy(self._index)}"
            )
