"""The files in a folder, by the formats that take them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headrace import _places
from headrace.formats._base.format import Format
from headrace.formats._files.patterns import expand

_NOTES = (
    *("", ".md", ".rst", ".txt", ".json", ".yaml", ".yml", ".toml", ".cfg", ".py", ".sh"),
    *(".crc", ".md5", ".sha1", ".sha256", ".idx", ".pkl", ".log", ".lock"),
)
"""Of files that say something about the data beside them."""
_OF_SYSTEMS = ("thumbs.db", "desktop.ini")
UNLIKE = (".npy", ".npz", ".bin")
"""Of files that, in one folder, may be the parts of a sample: x.npy and y.npy."""
_UNFINISHED = (".part", ".partial", ".tmp", ".incomplete", ".crdownload", ".aria2")


@dataclass(frozen=True)
class Contents:
    """Files of a folder, by what they are."""

    folder: str
    kinds: Mapping[str, tuple[str, ...]]
    """By the ending of their names, those that a format takes."""
    others: tuple[str, ...]
    """Those that none takes, and that are no notes about the rest."""
    unfinished: tuple[str, ...]
    """Downloads that have not ended."""


def entries_of(folder: str) -> tuple[list[str], list[str]]:
    """The files and the folders in it, by name, hidden ones, too. OSError: it cannot be read."""
    with _places.entries(folder) as entries:
        is_folder = {entry.name: entry.is_dir() for entry in entries}
    names = sorted(is_folder)
    return [name for name in names if not is_folder[name]], [
        name for name in names if is_folder[name]
    ]


def contents_of(folder: str, names: Iterable[str], formats: Sequence[Format]) -> Contents:
    """What these files of a folder are."""
    kinds: dict[str, list[str]] = {}
    others, unfinished = [], []
    for name in sorted(names):
        suffix = os.path.splitext(name)[1].lower()
        if name.startswith("."):
            continue
        if suffix in _UNFINISHED:
            unfinished.append(name)
        elif taker(name, formats) is not None:
            kinds.setdefault("" if suffix[-1:].isdigit() else suffix, []).append(name)
        elif not is_note(name):
            others.append(name)
    by_suffix = {suffix: tuple(files) for suffix, files in kinds.items()}
    return Contents(folder, by_suffix, tuple(others), tuple(unfinished))


def is_note(name: str) -> bool:
    """Whether a file says something about the data beside it, by its name."""
    return os.path.splitext(name)[1].lower() in _NOTES or name.lower() in _OF_SYSTEMS


def taker(name: str, formats: Sequence[Format]) -> Format | None:
    """The format that takes files of this name."""
    return next((row for row in reversed(formats) if row.takes(name)), None)


def are_numbered(names: Sequence[str]) -> bool:
    """Whether names differ in their numbers alone, as part-0.npy and part-1.npy."""
    return len({re.sub(r"\d+", "0", name) for name in names}) == 1


def path_of_files(folder: str, names: Sequence[str], *, suffix: str = "") -> str | None:
    """What `hr.open` takes for these files alone: a file, or a pattern; None: there is none.

    `suffix`: a pattern of all files that end with it is tried first.
    """
    if len(names) == 1:
        return os.path.join(folder, names[0])
    wanted = [os.path.join(folder, name) for name in names]
    for pattern in _patterns(names, suffix):
        if _places.has_magic(pattern) and not _matches_only(folder, pattern, names):
            continue
        path = os.path.join(_places.escape(folder), pattern)
        if expand(path) == wanted:
            return path
    return None


def _patterns(names: Sequence[str], suffix: str) -> Iterable[str]:
    """Patterns of these names: with a wildcard between what they share, and as a list."""
    begin = _shared(names)
    end = _shared([name[len(begin) :][::-1] for name in names])[::-1]
    begin = begin.rstrip("0123456789")  # Files that are added later are numbered on.
    end = end.lstrip("0123456789")
    if suffix:
        yield f"*{_places.escape(suffix)}"
    yield f"{_places.escape(begin)}*{_places.escape(end)}"
    yield f"{{{','.join(names)}}}"


def _shared(names: Sequence[str]) -> str:
    """What all names begin with."""
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (a, b) in pairs if a != b), len(first))]


def _matches_only(folder: str, pattern: str, names: Sequence[str]) -> bool:
    there = (name for name in _places.names(folder) if not name.startswith("."))
    return sorted(name for name in there if fnmatchcase(name, pattern)) == list(names)
