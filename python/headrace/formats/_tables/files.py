"""The files that a table names: found below a folder, with their sizes and times."""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
from collections.abc import Callable, Sequence

from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.formats._builder import Builder

IMAGES = (*(".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"),)
"""Extensions of fields of kind image: those of torchvision's ImageFolder."""

_REMEMBERED_MAX = 50_000  # files that other rows may name again
_EXAMPLES = 5
_ODD = re.compile(r"/[./]|/$|\.{1,2}/")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


Found = tuple[str, int, int]
"""A regular file: its path, size in bytes, and time in nanoseconds."""


def are_images(names: Sequence[str]) -> bool:
    """Whether files of these names are of kind image."""
    suffixes = {each[each.rfind(".") :] for each in names}
    return all(each.lower() in IMAGES for each in suffixes)


def path_of(folder: str, name: str) -> str:
    """The absolute path that `name` stands for, below `folder` if it is relative."""
    if name.startswith("/"):
        return os.path.normpath("/" + name.lstrip("/"))
    path = f"{folder.rstrip('/')}/{name}"
    return os.path.normpath(path) if _ODD.search(name) else path


def find(path: str) -> Found | None:
    """The file; None if there is no regular file at the path."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a zero byte, or no Unicode.
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return path, status.st_size, status.st_mtime_ns


class Files:
    """Finds the files of rows, adds them to the builder, and counts rows whose files are missing.

    Rows that name a file again soon share it.
    """

    def __init__(self, builder: Builder, folder: str, option: str) -> None:
        """`folder`: paths are relative to it. `option`: the one that names it, for errors."""
        self._builder = builder
        self._folder = folder
        self._option = option
        self._known: dict[str, tuple[int, int]] = {}
        self.missing = 0  # rows
        self._first = ""
        self._names: list[str] = []

    def look_up(self, names: Sequence[str], where: Callable[[int], str]) -> list[Found | None]:
        """The files of these names; `where(i)`: where name i is."""
        found: list[Found | None] = []
        for position, name in enumerate(names):
            file = find(path_of(self._folder, name)) if name else None
            if file is None:
                if not self._first:
                    self._first = f"{where(position)}: {self._why(name)}"
                if len(self._names) < _EXAMPLES:
                    self._names.append(name)
            found.append(file)
        return found

    def _why(self, name: str) -> str:
        if _URL.match(name):
            return f"{name!r:.200} is a URL; headrace reads files of this machine: download them"
        path = path_of(self._folder, name)
        if len(name) < os.pathconf("/", "PC_PATH_MAX") and "\0" not in name and os.path.isdir(path):
            return f"{name!r:.200} is a folder, not a file"
        return f"{name!r:.200}: there is no such file below {self._folder}"

    def add(self, files: Sequence[Found]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Adds files, and returns the number and the size of each."""
        known = self._known
        if len(known) > _REMEMBERED_MAX:
            known.clear()
        new = {each[0]: each for each in files if each[0] not in known}
        if new:
            self._check_below(new)
            paths, sizes, times = zip(*new.values(), strict=True)
            first = self._builder.add_files(paths, sizes, times)
            known.update(zip(paths, zip(itertools.count(first), sizes), strict=False))
        numbers, lengths = zip(*(known[each[0]] for each in files), strict=True)
        return numbers, lengths

    def _check_below(self, files: dict[str, Found]) -> None:
        below = self._builder.root.rstrip("/") + "/"
        outside = next((each for each in files if not each.startswith(below)), None)
        if outside is not None:
            raise InvalidArgumentError(
                f"indexing: the file {outside} does not lie in {self._builder.root}; name a folder "
                f"that contains all files with {self._option} (paths are relative to it; "
                f'{self._option}"/" if all are absolute)'
            )

    def end(self, rows: int, table: str, skips: bool) -> None:
        """Refuses missing files, or notes how many rows were left out. `rows`: of the table."""
        if not self.missing:
            return
        if not skips:
            raise NotFoundError(
                f"{self._first}; {self.missing:,} of {rows:,} rows name files that are not there; "
                f'name their folder with {self._option}, leave the rows out with missing="skip", '
                "or say which columns name files with paths="
            )
        if self.missing == rows:
            raise InvalidArgumentError(
                f"{self._first}; all {rows:,} rows of {table} name files that are not there; name "
                f"their folder with {self._option}"
            )
        # As a folder notes files that skip= left out: Dataset.report has them.
        self._builder.set_attribute("report", json.dumps([["skipped", self.missing, self._names]]))
