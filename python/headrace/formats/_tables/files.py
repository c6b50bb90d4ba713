"""The files that a table names: found below a folder, with their sizes and times."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import _core, _places
from headrace._text import unread_reason
from headrace.errors import InvalidArgumentError, NotFoundError, UnavailableError
from headrace.formats._base.builder import Builder
from headrace.formats._base.findings import FindingCounts
from headrace.formats._base.format import written
from headrace.formats._files.images import IMAGES
from headrace.formats._files.paths import are_below
from headrace.formats._indexing.in_order import JOBS

_REMEMBERED_MAX = 50_000  # files that other rows may name again
_EXAMPLES = 5
_FOLDERS_MAX = 100  # that are searched for files that are not there
_ODD = re.compile(r"/[./]|/$|\.{1,2}/")
_ODDS = ("//", "/.", "./", "/\0", "\0/")  # in names that a zero byte separates
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NamedFiles:
    """Files that rows name."""

    paths: Sequence[str]
    sizes: I64
    """In bytes; -1: there is no regular file."""
    times: I64
    """In nanoseconds."""

    @property
    def are_there(self) -> npt.NDArray[np.bool_]:
        """Whether there is a regular file at each path."""
        return self.sizes >= 0

    def select(self, rows: Sequence[int]) -> NamedFiles:
        """These rows alone."""
        if len(rows) == len(self.paths):
            return self
        return NamedFiles([self.paths[row] for row in rows], self.sizes[rows], self.times[rows])


def are_images(names: Sequence[str]) -> bool:
    """Whether files of these names are of kind image."""
    text = "\0".join(names) + "\0"
    alike = names[0][names[0].rfind(".") :] + "\0" if names else ""
    if text.count("\0") == len(names) and text.count(alike) == len(names):
        return alike[:-1].lower() in IMAGES  # Looking at each name takes longer.
    suffixes = {name[name.rfind(".") :] for name in names}
    return all(suffix.lower() in IMAGES for suffix in suffixes)


def path_of(folder: str, name: str) -> str:
    """The absolute path that `name` stands for, below `folder` if it is relative."""
    if name.startswith("/") or not _places.is_local(name):
        return _places.absolute("/" + name.lstrip("/") if name.startswith("/") else name)
    path = f"{folder.rstrip('/')}/{name}"
    return _places.absolute(path) if _ODD.search(name) else path


def _find(folder: str, names: Sequence[str]) -> NamedFiles:
    """The files of these names: paths, if absolute; else below the folder."""
    if not _places.is_local(folder) or not all(map(_places.is_local, names)):
        paths = [path_of(folder, name) if name else "" for name in names]
        return _asked([path if may_be_there(folder, path) else "" for path in paths], paths)
    if _are_plain(names):
        prefix = folder.rstrip("/") + "/"
        paths, where, asked = [prefix + name for name in names], folder, names
    else:
        paths = [path_of(folder, name) if name else "" for name in names]
        where, asked = "/", paths
    try:
        return NamedFiles(paths, *_core.files_found(where, asked, JOBS))
    except InvalidArgumentError:  # A zero byte, or no Unicode, in one of them.
        if len(paths) == 1:
            return NamedFiles(paths, np.array([-1]), np.array([0]))
        parts = [_find("/", [path]) for path in paths]
        sizes, times = ([getattr(part, of)[0] for part in parts] for of in ("sizes", "times"))
        return NamedFiles(paths, np.array(sizes), np.array(times))


def may_be_there(folder: str, path: str) -> bool:
    """Whether to look for it: not for a URL that leads elsewhere than to the folder."""
    return _places.is_local(path) or path.startswith(folder.rstrip("/") + "/")


def is_there(folder: str, name: str) -> bool:
    """Whether there is a file of this name."""
    path = path_of(folder, name)
    return may_be_there(folder, path) and _places.is_file(path)


def _asked(asked: Sequence[str], paths: Sequence[str]) -> NamedFiles:
    """The files, of which some or all do not lie on a disk; `asked`: empty where none is."""
    _places.look_ahead(filter(None, asked))
    sizes, times = np.full(len(paths), -1), np.zeros(len(paths), np.int64)
    for row, path in enumerate(asked):
        try:
            if path and _places.is_file(path):
                status = _places.stat(path)
                sizes[row], times[row] = status.st_size, status.st_mtime_ns
        except OSError as error:
            raise UnavailableError(f"looking for {path}: {unread_reason(error)}") from error
    return NamedFiles(paths, sizes, times)


def _in_other_forms(files: NamedFiles) -> NamedFiles:
    """With the files that are there under names in another Unicode form."""
    missing = np.flatnonzero(~files.are_there).tolist()
    there = {row: _places.spelled(files.paths[row]) for row in missing}
    other = {row: path for row, path in there.items() if path != files.paths[row]}
    if not other:
        return files
    again = _find("/", list(other.values()))
    paths, sizes, times = list(files.paths), files.sizes.copy(), files.times.copy()
    for at, (row, path) in enumerate(other.items()):
        paths[row], sizes[row], times[row] = path, again.sizes[at], again.times[at]
    return NamedFiles(paths, sizes, times)


def _are_plain(names: Sequence[str]) -> bool:
    """Whether each name is its path below the folder as it stands: relative, without "." parts."""
    text = "\0".join(names)
    return not (text.startswith("/") or text.endswith("/") or any(odd in text for odd in _ODDS))


class Files:
    """Finds the files of rows, adds them to the builder, and counts rows whose files are missing.

    Rows that name a file again soon share it.
    """

    def __init__(self, builder: Builder, folder: str, option: str) -> None:
        """`folder`: paths are relative to it. `option`: the one that names it, for errors."""
        self._builder = builder
        self._folder = folder
        self._option = option
        self._known: dict[str, int] = {}  # positions in the two that follow
        self._known_numbers = np.zeros(0, np.int64)
        self._known_sizes = np.zeros(0, np.int64)
        self.missing = 0  # rows
        self._first = ""
        self._names: list[str] = []

    def look_up(self, names: Sequence[str], where: Callable[[int], str]) -> NamedFiles:
        """The files of these names; `where(i)`: where name i is."""
        files = _in_other_forms(_find(self._folder, names))
        for position in np.flatnonzero(~files.are_there)[:_EXAMPLES].tolist():
            name = names[position]
            if not self._first:
                self._first = f"{where(position)}: {self._why(name)}"
            if len(self._names) < _EXAMPLES:
                self._names.append(name)
        return files

    def _why(self, name: str) -> str:
        if _URL.match(name) and not may_be_there(self._folder, name):
            return (
                f"{name!r:.200} is a URL, which does not lie in {self._folder}; where all are of "
                f'one store, name what they lie in: {self._option}"s3://BUCKET"'
            )
        if _URL.match(name) and _places.is_local(name):
            return f"{name!r:.200} is a URL of no store that headrace reads; download the files"
        path = path_of(self._folder, name)
        if (
            len(name) < os.pathconf("/", "PC_PATH_MAX")
            and "\0" not in name
            and _places.is_folder(path)
        ):
            return f"{name!r:.200} is a folder, not a file"
        return f"{name!r:.200}: there is no such file below {self._folder}"

    def _folder_near(self, base: str, names: Sequence[str]) -> str | None:
        """A folder in `base`, relative to it, that has the files of these names."""
        relative = [
            name for name in names if name and not name.startswith("/") and "\0" not in name
        ]
        if not relative:
            return None
        try:
            with _places.entries(base) as entries:
                folders = sorted(entry.name for entry in entries if entry.is_dir())[:_FOLDERS_MAX]
        except OSError:
            return None
        for folder in folders:
            if all(is_there(os.path.join(base, folder), name) for name in relative):
                return folder
        return None

    def add(self, files: NamedFiles) -> tuple[I64, I64]:
        """Adds files, which are there, and returns the number and the size of each."""
        known = self._known
        if len(known) > _REMEMBERED_MAX:
            known.clear()
            self._known_numbers = self._known_numbers[:0]
            self._known_sizes = self._known_sizes[:0]
        if known.keys().isdisjoint(files.paths) and len(set(files.paths)) == len(files.paths):
            return self._add_new(files), files.sizes
        new = {path: row for row, path in enumerate(files.paths) if path not in known}
        if new:
            self._add_new(files.select(list(new.values())))
        positions = np.array([known[path] for path in files.paths])
        return self._known_numbers[positions], self._known_sizes[positions]

    def _add_new(self, files: NamedFiles) -> I64:
        """Adds files that are not known, and returns their numbers."""
        self._check_below(files.paths)
        first = self._builder.add_files(files.paths, files.sizes, files.times)
        numbers = np.arange(first, first + len(files.paths))
        self._known.update(zip(files.paths, itertools.count(len(self._known)), strict=False))
        self._known_numbers = np.concatenate([self._known_numbers, numbers])
        self._known_sizes = np.concatenate([self._known_sizes, files.sizes])
        return numbers

    def _check_below(self, files: Sequence[str]) -> None:
        below = self._builder.root.rstrip("/") + "/"
        if are_below(below, files):
            return
        outside = next((file for file in files if not file.startswith(below)), None)
        if outside is not None:
            raise InvalidArgumentError(
                f"indexing: the file {outside} does not lie in {self._builder.root}; name a folder "
                f"that contains all files with {self._option} (paths are relative to it; "
                f'{self._option}"/" if all are absolute)'
            )

    def end(
        self,
        rows: int,
        table: str,
        row: Any,
        undecoded: FindingCounts | None = None,
        as_text: str | None = None,
    ) -> None:
        """Refuses missing files, or notes how many rows were left out. `rows`: of the table.

        `row`: the format, which has the options `folder` and `missing`. `undecoded`: sounds, which
        are noted, too. `as_text`: what takes the names of files as text.
        """
        skips = row.missing == "skip"
        undecoded = undecoded or FindingCounts()
        if not self.missing:
            undecoded.report(self._builder)
            return
        near = self._folder_near(os.path.dirname(table), self._names)
        name = f"name their folder by hr.formats.{type(row).__name__}({self._option}...)"
        if near is not None:
            name = f"{self._names[0]!r:.200} is in {near}: format={written(row, folder=near)}"
        if not skips:
            ways = [name]
            if self.missing < rows:
                ways.append(f"leave the rows out, format={written(row, missing='skip')}")
            elif as_text is not None:
                ways.append(f"keep the names as text, format={as_text}")
            ways.append("say which columns name files with paths=")
            raise NotFoundError(
                f"{self._first}; {self.missing:,} of {rows:,} rows name files that are not there; "
                f"{', or '.join(ways)}"
            )
        if self.missing == rows:
            raise InvalidArgumentError(
                f"{self._first}; all {rows:,} rows of {table} name files that are not there; {name}"
            )
        # As a folder notes files that skip= left out: Dataset.report has them.
        undecoded.by_kind["skipped"] = self.missing, self._names
        undecoded.report(self._builder)
