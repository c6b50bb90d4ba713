"""A place of files that has what a store of objects has: a list, a head, and a range of bytes."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

SCHEME = "memory"
MTIME_NS = 10**18


@dataclass(frozen=True)
class ObjectStat:
    """Of an object, or of what is in front of the "/" in the keys of some."""

    st_mode: int
    st_size: int = 0
    st_mtime_ns: int = MTIME_NS


FOLDER = ObjectStat(stat.S_IFDIR)


@dataclass(frozen=True)
class ObjectEntry:
    """What a list says."""

    name: str
    path: str
    listed: ObjectStat

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self.listed is FOLDER

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self.listed is not FOLDER

    def stat(self, *, follow_symlinks: bool = True) -> ObjectStat:
        return self.listed


@dataclass
class ObjectReader:
    """Ranges of an object."""

    place: MemoryPlace
    path: str
    size: int
    descriptor: int | None = None

    def read(self, offset: int, count: int, /) -> bytes:
        return self.place.get(self.path, offset, count)

    def close(self) -> None:
        self.place.opened -= 1


class MemoryPlace:
    """Objects by path. Counts requests."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = dict(objects)
        self.requests: Counter[str] = Counter()
        self.opened = 0  # now

    @classmethod
    def copy_of(cls, folder: Path, to: str) -> MemoryPlace:
        """The files of a folder, under this path."""
        files = (file for file in folder.rglob("*") if file.is_file())
        return cls({f"{to}/{x.relative_to(folder).as_posix()}": x.read_bytes() for x in files})

    # The requests of a store of objects.

    def list(self, prefix: str) -> dict[str, ObjectStat]:
        """What follows the prefix in the keys, up to the next "/"."""
        self.requests["list"] += 1
        found: dict[str, ObjectStat] = {}
        for path, data in self.objects.items():
            if path.startswith(prefix):
                name, slash, _ = path.removeprefix(prefix).partition("/")
                found[name] = FOLDER if slash else ObjectStat(stat.S_IFREG, len(data))
        return found

    def head(self, path: str) -> ObjectStat | None:
        self.requests["head"] += 1
        data = self.objects.get(path)
        return None if data is None else ObjectStat(stat.S_IFREG, len(data))

    def get(self, path: str, offset: int, count: int) -> bytes:
        self.requests["get"] += 1
        return self.objects[path][offset : offset + count]

    # A `Place`, made of them.

    def stat(self, path: str, *, follow_symlinks: bool = True) -> ObjectStat:
        found = self.head(path)
        if found is None and not self.list(path.rstrip("/") + "/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return found or FOLDER

    def entries(self, folder: str, /) -> AbstractContextManager[Iterator[ObjectEntry]]:
        prefix = folder.rstrip("/") + "/"
        found = self.list(prefix)
        if not found:
            self.stat(folder)
            raise NotADirectoryError(20, "Not a directory", folder)
        there = (ObjectEntry(name, prefix + name, listed) for name, listed in found.items())
        return nullcontext(there)

    def reader(self, path: str, /) -> ObjectReader:
        found = self.stat(path)
        if found is FOLDER:
            raise IsADirectoryError(21, "Is a directory", path)
        self.opened += 1
        return ObjectReader(self, path, found.st_size)
