"""Sets of files that say their number, as x-00000-of-00002.parquet: those that lack some."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from headrace import _places
from headrace._units import counted
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.formats._base.findings import Finding
from headrace.formats._base.format import Format
from headrace.formats._files.patterns import expand, is_pattern
from headrace.formats._folders.calls import open_call
from headrace.formats._folders.files_by_format import path_of_files

_NUMBERED = re.compile(r"(|.*[-._])(\d+)(([-_])of\4(\d+))(-[0-9a-f]{8,})?([._].*)?")
_SHOWN = 3
_FILES_SHOWN = 4
INCOMPLETE = "incomplete"
"""The kind of finding: a set that lacks files."""


@dataclass(frozen=True)
class FileSet:
    """The files of one set that are there."""

    names: tuple[str, ...]
    begin: str
    end: str
    of_total: str
    """As the names have it: "-of-00002"."""

    @property
    def total(self) -> int:
        """Files of a complete set."""
        return int(self.of_total[len("-of-") :])

    @property
    def missing(self) -> str:
        """The numbers of files that are not there: "00001, 00003 to 00007"; empty: none is."""
        count = self.total
        numbers = sorted(self._by_number)
        first = int(0 not in numbers and count in numbers)  # Some count from 1.
        runs: list[tuple[int, int]] = []
        expected = first
        for number in (*numbers, first + count):
            if number > expected:
                runs.append((expected, number - 1))
            expected = max(expected, number + 1)
        width = max(len(_parts_of(name)[2]) for name in self.names)
        words = [f"{a:0{width}}" if a == b else f"{a:0{width}} to {b:0{width}}" for a, b in runs]
        return ", ".join(words[:_SHOWN]) + (", ..." if len(words) > _SHOWN else "")

    @property
    def what(self) -> str:
        """What is wrong with it; empty: nothing."""
        there, name = len(self._by_number), f"{self.begin}*{self.of_total}{self.end}"
        twice = self._twice
        if twice:
            files = [name for names in twice for name in names]
            more = ", ..." if len(files) > _FILES_SHOWN else ""
            lacks = f", and is without {self.missing}" if self.missing else ""
            return (
                f"{name} has {len(files):,} files for {counted(len(twice), 'number')}{lacks}: "
                f"{', '.join(files[:_FILES_SHOWN])}{more}"
            )
        if not self.missing:
            return ""
        return f"{name} has {there:,} of {self.total:,} files, without {self.missing}"

    @property
    def remedy(self) -> str:
        """What makes it complete."""
        return "move the older one of each number away" if self._twice else "finish the copy"

    @property
    def key(self) -> tuple[str, str, str]:
        """What the names of its files have in common."""
        return self.begin, self.end, self.of_total

    @property
    def one_of_each(self) -> tuple[str, ...]:
        """A file of each number: of one hash, if there are all of it; else the first."""
        by_hash: dict[str, list[str]] = {}
        for name in self.names:
            by_hash.setdefault(_parts_of(name)[6] or "", []).append(name)
        for names in by_hash.values():
            if len(names) == len(self._by_number):
                return tuple(names)
        return tuple(names[0] for names in self._by_number.values())

    @property
    def _twice(self) -> list[list[str]]:
        return [names for names in self._by_number.values() if len(names) > 1]

    @cached_property
    def _by_number(self) -> dict[int, list[str]]:
        by_number: dict[int, list[str]] = {}
        for name in self.names:
            by_number.setdefault(int(_parts_of(name)[2]), []).append(name)
        return by_number


def _parts_of(name: str) -> re.Match[str]:
    match = _NUMBERED.fullmatch(name)
    assert match is not None
    return match


def sets_of(names: Iterable[str]) -> list[FileSet]:
    """The sets in a folder, by the names of its files."""
    by_key: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        parts = _NUMBERED.fullmatch(name)
        if parts is not None and int(parts[2]) <= int(parts[5]):
            key = (parts[1], parts[7] or "", parts[3])
            by_key.setdefault(key, []).append(name)
    return [FileSet(tuple(sorted(files)), *key) for key, files in by_key.items()]


def refuse_incomplete(folder: str, names: Sequence[str], row: Format | None) -> None:
    """Raises for files of a folder, or of its split, that are not all of a set."""
    sets = sets_of(names)
    wrong = next((file_set for file_set in sets if file_set.what), None)
    if wrong is not None:
        left = set().union(*(set(file_set.names) - set(file_set.one_of_each) for file_set in sets))
        path = path_of_files(folder, sorted(set(names) - left))
        others = "the others by a pattern" if path is None else open_call(path, row)
        what = "one of each" if wrong.names != wrong.one_of_each else "the files that are there"
        raise InvalidArgumentError(
            f"opening dataset {folder}: {wrong.what}; {wrong.remedy}, or open {what}: {others}"
        )
    totals: dict[tuple[str, str], list[FileSet]] = {}
    for file_set in sets:
        totals.setdefault((file_set.begin, file_set.end), []).append(file_set)
    several = next((group for group in totals.values() if len(group) > 1), None)
    if several is not None:
        first = path_of_files(folder, several[0].names)
        call = "one by a pattern" if first is None else open_call(first, row)
        what = " and ".join(f"{x.begin}*{x.of_total}{x.end}" for x in several)
        raise InvalidArgumentError(
            f"opening dataset {folder}: it holds several sets of one name: {what}; open one: {call}"
        )


def words_of_incomplete(pattern: str) -> list[str]:
    """What is wrong with sets of which files match wildcards, for warnings."""
    if not _places.has_magic(pattern) or not is_pattern(pattern):
        return []
    return [
        f"{pattern}: {file_set.what}; if it is to be complete, {file_set.remedy}"
        for file_set in incomplete_at(pattern)
    ]


def incomplete_at(path: str) -> list[FileSet]:
    """The sets of which a file or a pattern has some files only.

    Not those that are complete over several folders.
    """
    if _places.is_folder(path):
        return []
    with suppress(HeadraceError, OSError):
        folders: dict[str, list[str]] = {}
        for file in expand(path):
            folders.setdefault(os.path.dirname(file), []).append(os.path.basename(file))
        whole = {
            file_set.key
            for file_set in sets_of(x for names in folders.values() for x in names)
            if not file_set.what
        }
        sets = (file_set for names in folders.values() for file_set in sets_of(names))
        return [file_set for file_set in sets if file_set.what and file_set.key not in whole]
    return []


def findings_at(path: str) -> tuple[Finding, ...]:
    """The same, as `Dataset.report` has it."""
    incomplete = incomplete_at(path) if path else []
    examples = tuple(file_set.what for file_set in incomplete[:5])
    return (Finding(INCOMPLETE, len(incomplete), examples),) if incomplete else ()
