"""The file system of this machine."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from stat import S_ISDIR, S_ISREG

from headrace._places.place import Entry, Reader, Stat

SPECIAL = "this is a pipe, a socket or a device, not a file; leave it out, or name another path"


def is_special(mode: int) -> bool:
    """Whether it is neither a file nor a folder: to open such a thing may take for ever."""
    return not (S_ISREG(mode) or S_ISDIR(mode))


def open_file(path: str, _flags: int = 0) -> int:
    """Opens a file to be read, without waiting for another process; its descriptor."""
    return _opened(path)[0]


def _opened(path: str) -> tuple[int, int]:
    """The descriptor, and the size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # Of files: no effect.
    try:
        found = os.fstat(descriptor)
        if is_special(found.st_mode):
            raise OSError(SPECIAL)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, found.st_size


class LocalReader:
    """A file, by its descriptor."""

    __slots__ = ("descriptor", "size")

    def __init__(self, path: str) -> None:
        self.descriptor, self.size = _opened(path)

    def read(self, offset: int, count: int, /) -> bytes:
        """As `Reader.read`."""
        return os.pread(self.descriptor, count, offset)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.descriptor)


class Local:
    """The `Place` of paths without a scheme: its calls are those of `os`."""

    def stat(self, path: str, *, follow_symlinks: bool = True) -> Stat:
        """As `os.stat`."""
        return os.stat(path, follow_symlinks=follow_symlinks)

    def entries(self, folder: str, /) -> AbstractContextManager[Iterator[Entry]]:
        """As `os.scandir`."""
        return os.scandir(folder)

    def reader(self, path: str, /) -> Reader:
        """Opens a file; of a folder the first `read` raises."""
        return LocalReader(path)

    def look_ahead(self, files: Sequence[str], folders: Sequence[str], /) -> None:
        """Nothing: one question takes microseconds."""


def spelled(path: str) -> str:
    """An absolute path as it is there: where there is nothing at it, in another Unicode form.

    "é" is one character or two (NFC, NFD): systems and programs differ in which they write.
    """
    if path.isascii() or "\0" in path or not path.startswith("/"):
        return path
    at = "/"
    try:
        if os.path.lexists(path):
            return path
        for part in filter(None, path.split("/")):
            forms = (part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD")))
            tried = (os.path.join(at, form) for form in forms)
            at = next((place for place in tried if os.path.lexists(place)), "")
            if not at:
                return path
    except UnicodeEncodeError:
        return path  # Half a surrogate pair.
    return at
