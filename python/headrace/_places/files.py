"""What formats do with files, made of the calls of a `Place`."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from stat import S_ISDIR, S_ISREG

from headrace._places.ahead import Ahead
from headrace._places.local import open_file
from headrace._places.place import Entry, Reader, Stat
from headrace._places.table import is_local, place_of

_BUFFER_BYTES = 256 * 1024  # of a file that is not local: each read is a request


def stat(path: str) -> Stat:
    """The size, the time and the kind of what is at the path; links are followed."""
    return place_of(path).stat(path)


def exists(path: str, *, follow_symlinks: bool = True) -> bool:
    """Whether there is a file or a folder at the path; or, not following them, a link."""
    try:
        place_of(path).stat(path, follow_symlinks=follow_symlinks)
    except (OSError, ValueError) as error:
        if not is_absence(path, error):
            raise
        return False
    return True


def is_absence(path: str, error: Exception, *, of_list: bool = False) -> bool:
    """Whether the error means that there is nothing at the path for this user.

    Any error of the system does; but what a store does not answer now may be there. Without the
    right to list, stores say of what is absent that one may not read it; `of_list`: then this was
    such a list, and not an answer.
    """
    if is_local(path) or isinstance(error, ValueError):
        return True
    nothing = (FileNotFoundError, NotADirectoryError)
    return isinstance(error, nothing if of_list else (*nothing, PermissionError))


def is_folder(path: str) -> bool:
    """Whether there is a folder at the path."""
    return S_ISDIR(_mode(path))


def is_file(path: str) -> bool:
    """Whether there is a regular file at the path."""
    return S_ISREG(_mode(path))


def entries(folder: str) -> AbstractContextManager[Iterator[Entry]]:
    """What lies in a folder, as `Place.entries` has it."""
    return place_of(folder).entries(folder)


def look_ahead(files: Iterable[str], folders: Iterable[str] = ()) -> None:
    """Asks for the states of files and the lists of folders at once; see `remembering`."""
    some, lists = list(files), list(folders)
    for place in {id(place): place for place in map(place_of, (*some, *lists))}.values():
        place.look_ahead(
            [path for path in some if place_of(path) is place],
            [path for path in lists if place_of(path) is place],
        )


def leads_to_folder(entry: Entry) -> bool:
    """Whether an entry is a folder, or a link to one; not if that cannot be found out."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def names(folder: str) -> list[str]:
    """The names of all that lies in a folder, in no order."""
    with entries(folder) as there:
        return [entry.name for entry in there]


def walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """A folder and those below it: of each its path, the names of its folders and of its files.

    Goes on in the folders that the user of the list leaves in it, in this order; links to folders
    are folders. A folder that cannot be read has no entry.
    """
    folders: list[str] = []
    files: list[str] = []
    try:
        with entries(folder) as there:
            for entry in there:
                try:
                    to = folders if entry.is_dir() else files
                except OSError:
                    to = files
                to.append(entry.name)
    except OSError as error:
        if not is_absence(folder, error, of_list=True):
            raise
        return
    yield folder, folders, files
    for name in folders:
        yield from walk(os.path.join(folder, name))


def reader(path: str) -> Reader:
    """Opens a file, to read ranges of it; its user closes it."""
    return place_of(path).reader(path)


def open(path: str) -> io.BufferedReader:
    """Opens a file, to read it from its beginning; its user closes it."""
    if is_local(path):
        return builtins.open(path, "rb", opener=open_file)
    return io.BufferedReader(_Ranges(reader(path)), _BUFFER_BYTES)


def open_ahead(path: str) -> io.RawIOBase:
    """Opens a file for a library that reads few large ranges of it, mostly in order: without a
    buffer, which would cut each in two."""
    return _Ranges(Ahead(reader(path)))


class _Ranges(io.RawIOBase):
    """A reader with a position."""

    def __init__(self, ranges: Reader) -> None:
        self._ranges = ranges
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._ranges.size}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the beginning")
        self._at = base + offset
        return self._at

    def readinto(self, into: memoryview, /) -> int:  # type: ignore[override]
        data = self._ranges.read(self._at, len(into))
        into[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._ranges.close()
        super().close()


def _mode(path: str) -> int:
    """Of what is there; 0: nothing."""
    try:
        return stat(path).st_mode
    except (OSError, ValueError) as error:
        if not is_absence(path, error):
            raise
        return 0
