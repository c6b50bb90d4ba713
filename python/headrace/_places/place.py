"""What a place of files has to do: four calls. Everything else is made of them, once.

A store of objects has a request for each: `stat` is HEAD, or a list of one key where a name is a
folder; `entries` is LIST with a delimiter; `Reader.read` is GET of a range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class Stat(Protocol):
    """The part of `os.stat_result` that formats use."""

    @property
    def st_mode(self) -> int:
        """S_IFREG or S_IFDIR, from the module `stat`."""

    @property
    def st_size(self) -> int:
        """Bytes."""

    @property
    def st_mtime_ns(self) -> int:
        """The time of the last change; it differs whenever the bytes do."""


class Entry(Protocol):
    """A file or a folder of a list: the part of `os.DirEntry` that formats use.

    Nothing here costs a request where the list already had the answer.
    """

    @property
    def name(self) -> str:
        """Its name in the folder."""

    @property
    def path(self) -> str:
        """The folder's path, as given, with the name."""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """As `Place.stat`."""


class Reader(Protocol):
    """An open file. Thread safety: `read` may be called from any thread."""

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""

    @property
    def descriptor(self) -> int | None:
        """For the core, which reads local files by itself; None: there is none."""

    def read(self, offset: int, count: int, /) -> bytes:
        """These bytes of the file; fewer at its end alone. Raises OSErrors."""

    def close(self) -> None:
        """Ends reading."""


class Place(Protocol):
    """Where files lie. Thread safety: all calls may be made from any thread.

    Errors, as `os` raises them:
        FileNotFoundError   there is nothing at the path
        NotADirectoryError  `entries` of a file
        IsADirectoryError   `reader` of a folder, or its first `read`
        PermissionError     this user may not
        OSError             anything else
        ValueError          no file can have this path: it has a zero byte
    """

    def stat(self, path: str, *, follow_symlinks: bool = True) -> Stat:
        """Of the file or folder at the path. A place without links ignores `follow_symlinks`."""

    def entries(self, folder: str, /) -> AbstractContextManager[Iterator[Entry]]:
        """What lies in a folder, hidden or not, in no order; for a `with` statement, whose end may
        come before that of the list."""

    def reader(self, path: str, /) -> Reader:
        """Opens a file."""

    def look_ahead(self, files: Sequence[str], folders: Sequence[str], /) -> None:
        """Asks for the states of files and the lists of folders, many at a time, if one question
        takes long. Within `remembering()` the calls above then ask for nothing."""
