"""An object store in memory, which counts requests, and its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace._objects.listing import Head, Listing, Object
from headrace._objects.place import ObjectPlace

SCHEME = "memory"
VERSION = 10**18


class MemoryPlace(ObjectPlace):
    """Objects by URL. Counts requests."""

    def __init__(self, objects: Mapping[str, bytes], *, has_lists: bool = True) -> None:
        super().__init__(self, has_lists=has_lists)
        self.objects = dict(objects)
        self.requests: Counter[str] = Counter()

    @classmethod
    def copy_of(cls, folder: Path, to: str) -> MemoryPlace:
        """The files of a folder, under this URL."""
        files = (file for file in folder.rglob("*") if file.is_file())
        return cls({f"{to}/{x.relative_to(folder).as_posix()}": x.read_bytes() for x in files})

    def look(
        self, heads: Sequence[str], lists: Sequence[str], /
    ) -> tuple[list[Head], list[Listing | OSError]]:
        return list(map(self._head, heads)), list(map(self._listed, lists))

    def _listed(self, url: str) -> Listing:
        self.requests["list"] += 1
        folders, objects = set(), {}
        for path, data in self.objects.items():
            if path.startswith(f"{url}/"):
                name, slash, _ = path.removeprefix(f"{url}/").partition("/")
                if slash:
                    folders.add(name)
                elif name:  # Else it is what some programs write for the folder.
                    objects[name] = Object(len(data), VERSION)
        return Listing(frozenset(folders), objects)

    def _head(self, url: str) -> Object | None:
        self.requests["head"] += 1
        data = self.objects.get(url)
        return None if data is None else Object(len(data), VERSION)

    def read(self, url: str, offset: int, size: int, version: int, /) -> bytes:
        self.requests["get"] += 1
        assert 0 < size <= len(self.objects[url]) - offset
        return self.objects[url][offset : offset + size]
