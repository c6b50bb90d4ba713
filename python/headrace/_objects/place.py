"""Objects as files: a `Place` of the URLs of a scheme."""

from __future__ import annotations

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from headrace._objects.listing import Head, Listing, Object, StoreError
from headrace._objects.memory import Memory, current

_AHEAD_BYTES = 64 * 1024  # read at least, as a request for fewer takes as long
_HEADS_MAX = 64  # of files of one folder; more are asked for by one list of it


NO_LISTS = (
    "a web server has no list of its files; name the files: a pattern such as a-{000..099}.tar, a "
    "list of URLs (in Python), or a table that names them"
)


class Requests(Protocol):
    """The requests of a store. Thread safety: all calls may be made from any thread."""

    def look(
        self, heads: Sequence[str], lists: Sequence[str], /
    ) -> tuple[list[Head], list[Listing | OSError]]:
        """A HEAD of each of these URLs and, of the others, a LIST of what lies below; at once."""

    def read(self, url: str, offset: int, size: int, version: int, /) -> bytes:
        """A range that the object has. OSError: another version than this one (0: any)."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """Of an object."""

    st_size: int
    st_mtime_ns: int
    """Its version, which differs whenever the bytes do."""
    st_mode: int = stat.S_IFREG


@dataclass(frozen=True, slots=True)
class FolderStat:
    """Of what is in front of the "/" in keys."""

    place: ObjectPlace
    path: str
    st_size: int = 0
    st_mode: int = stat.S_IFDIR

    @property
    def st_mtime_ns(self) -> int:
        """A number of the names in it. Asks for a list, if there was none."""
        return self.place.listing(self.path).version


Stat = FileStat | FolderStat


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """A file or folder of a list."""

    name: str
    path: str
    listed: Stat

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        return isinstance(self.listed, FolderStat)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is an object."""
        return isinstance(self.listed, FileStat)

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """What the list says."""
        return self.listed


class ObjectReader:
    """Ranges of an object, all of the version that it had when it was opened."""

    descriptor = None

    def __init__(self, requests: Requests, path: str, known: FileStat, memory: Memory) -> None:
        self.size = known.st_size
        self._requests = requests
        self._path = path
        self._version = known.st_mtime_ns
        self._memory = memory

    def read(self, offset: int, count: int, /) -> bytes:
        """As `Reader.read`."""
        count = min(count, self.size - offset)
        if count <= 0:
            return b""
        if count > _AHEAD_BYTES:
            return self._asked(offset, count)
        kept = self._memory.data(self._path, offset, count)
        if kept is None:
            begin = min(offset, max(0, self.size - _AHEAD_BYTES))
            size = min(_AHEAD_BYTES, self.size - begin)
            data = self._asked(begin, size)
            self._memory.keep_data(self._path, begin, data)
            kept = data[offset - begin :][:count]
        return kept

    def _asked(self, offset: int, count: int) -> bytes:
        try:
            return self._requests.read(self._path, offset, count, self._version)
        except StoreError as error:
            error.path = self._path
            raise

    def close(self) -> None:
        """Nothing is open."""


class ObjectPlace:
    """The `Place` of a scheme. Within `remembering()` no question is asked twice.

    A prefix that ends with "/" is a folder if keys begin with it; a folder that has no keys is not
    there. Thread safety: all calls may be made from any thread.
    """

    def __init__(self, requests: Requests, *, has_lists: bool = True) -> None:
        """`has_lists`: whether there are lists: web servers have none, so nor folders."""
        self._requests = requests
        self._has_lists = has_lists

    def stat(self, path: str, *, follow_symlinks: bool = True) -> Stat:
        """Of an object, or of a folder."""
        memory = current()
        path = _without_slash(path)
        found = _known(memory, path)
        for asks_list in _order(path) if self._has_lists else (False,):
            if found is not _UNKNOWN:
                break
            if asks_list:
                self._list(memory, path)
            else:
                _raise_first(self._look(memory, [path], [])[0])
            found = _known(memory, path, all_asked=not self._has_lists)
        if found is _FOLDER:
            return FolderStat(self, path)
        if isinstance(found, OSError):
            raise _again(found)
        if isinstance(found, Object):
            return FileStat(found.size, found.version)
        why = NO_LISTS if not self._has_lists else "no key begins with it and /; correct the URL"
        raise FileNotFoundError(f"there is no such object, and {why}")

    def entries(self, folder: str, /) -> AbstractContextManager[Iterator[ObjectEntry]]:
        """What a list says."""
        found = self.listing(folder)
        if not found and not _is_root(folder):
            self.stat(folder)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        return nullcontext(self._entries(folder, found))

    def _entries(self, folder: str, found: Listing) -> Iterator[ObjectEntry]:
        for name, known in found.objects.items():
            if not found.is_folder(name):
                stated = FileStat(known.size, known.version)
                yield ObjectEntry(name, os.path.join(folder, name), stated)
        for name in found.folders:
            path = os.path.join(folder, name)
            if found.is_folder(name):
                yield ObjectEntry(name, path, FolderStat(self, path))

    def reader(self, path: str, /) -> ObjectReader:
        """Opens an object; this asks for what `stat` says alone."""
        found = self.stat(path)
        if isinstance(found, FolderStat):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return ObjectReader(self._requests, path, found, current())

    def look_ahead(self, files: Sequence[str], folders: Sequence[str] = ()) -> None:
        """Asks for what will be asked of these, many at a time. What is not answered is asked again
        by the question itself, which then says what failed."""
        memory = current()
        self._look(memory, [], [path for path in folders if memory.listing(path) is None])
        by_folder: defaultdict[str, list[str]] = defaultdict(list)
        for path in files:
            if not memory.has_head(path) and _known(memory, path) is _UNKNOWN:
                by_folder[os.path.dirname(path)].append(path)
        whole = {
            folder
            for folder, paths in by_folder.items()
            if self._has_lists and len(paths) > _HEADS_MAX
        }
        heads = [x for folder, paths in by_folder.items() if folder not in whole for x in paths]
        self._look(memory, heads, sorted(whole))

    def listing(self, folder: str) -> Listing:
        """What lies below the folder."""
        memory = current()
        folder = _without_slash(folder)
        kept = memory.use_listing(folder)
        return self._list(memory, folder) if kept is None else kept

    def _list(self, memory: Memory, folder: str) -> Listing:
        (found,) = self._look(memory, [], [folder])[1]
        if isinstance(found, OSError):
            raise found
        return found

    def _look(
        self, memory: Memory, heads: list[str], lists: list[str]
    ) -> tuple[list[Head], list[Listing | OSError]]:
        """Asks, and remembers the answers."""
        if lists and not self._has_lists:
            raise OSError(NO_LISTS)
        if not heads and not lists:
            return [], []
        found, listed = self._requests.look(heads, lists)
        memory.keep_heads(zip(heads, found, strict=True))
        for folder, listing in zip(lists, listed, strict=True):
            if isinstance(listing, Listing):
                memory.keep_listing(folder, listing)
        return found, listed


def _raise_first(heads: Sequence[Head]) -> None:
    """An error that may pass, of these; others are remembered."""
    for head in heads:
        if isinstance(head, OSError) and not isinstance(head, PermissionError):
            raise head


_UNKNOWN, _FOLDER = object(), object()


def _known(memory: Memory, path: str, *, all_asked: bool = False) -> object:
    """What is remembered: an `Object`, _FOLDER, None (there is nothing), an error, or _UNKNOWN.

    `all_asked`: whether nothing else can be asked than what was.
    """
    below = memory.listing(path)
    if _is_root(path):
        return _FOLDER if below is not None else _UNKNOWN
    folder, name = os.path.split(path)
    beside = memory.listing(folder)
    if beside is not None:
        return _FOLDER if beside.is_folder(name) else beside.objects.get(name)
    head = memory.head(path)
    if isinstance(head, Object) and (head.size or all_asked or (below is not None and not below)):
        return head
    if below:
        return _FOLDER
    if memory.has_head(path) and (all_asked or below is not None):
        return head
    return None if _is_below_nothing(memory, folder) else _UNKNOWN


def _is_below_nothing(memory: Memory, folder: str) -> bool:
    """Whether it is remembered that this is no folder."""
    while not _is_root(folder):
        head, below = memory.head(folder), memory.listing(folder)
        if isinstance(head, Object) and head.size:
            return True  # An object has nothing below it.
        if below is not None:
            return not below
        folder, name = os.path.split(folder)
        beside = memory.listing(folder)
        if beside is not None:
            return not beside.is_folder(name)
    return False


def _order(path: str) -> tuple[bool, bool]:
    """Whether to ask for a list first, and then: names of files have a suffix."""
    if _is_root(path):
        return True, True
    return (False, True) if "." in os.path.basename(path).lstrip(".") else (True, False)


def _without_slash(path: str) -> str:
    return path if path.endswith("://") else path.rstrip("/")


def _is_root(path: str) -> bool:
    """Whether this is a bucket or a server, not what lies there."""
    return "/" not in path.partition("://")[2]


def _again(error: OSError) -> OSError:
    """The error, to be raised again with a traceback of its own."""
    return type(error)(*error.args)
