"""Patterns of paths, as shells have them: "a-{000..099}.tar", "{train,extra}.tar", "a-*.tar"; and
"data/**/*.tar", of folders at any depth."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence

from headrace._text import unread_reason
from headrace.errors import FailedPreconditionError, InvalidArgumentError

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_SPECIAL = re.compile(r"[{*?\[]")
_SPECIAL_IN_LIST = re.compile(r"[{},*?\[]")
_ANY_DEPTH = "**"
_FILES_MAX = 1_000_000


def is_pattern(path: str) -> bool:
    """Whether the path stands for others; a file of that name comes first.

    Braces may stand for files that do not exist, wildcards only for those that do.
    """
    if os.path.exists(path):
        return False
    if any(map(_is_list, _BRACES.findall(path))):
        return True
    return glob.has_magic(path) and next(_matches(path), None) is not None


def expand(path: str) -> list[str]:
    """The paths that a pattern stands for; the path itself if it is no pattern.

    They are in the order of the braces, and those that match wildcards by name.
    """
    if not is_pattern(path):
        return [path]
    paths: list[str] = []
    for each in _expanded(path):
        paths += sorted(_matches(each)) if _has_wildcards(each) else [each]
        if len(paths) > _FILES_MAX:
            raise InvalidArgumentError(
                f"pattern {path}: more than {_FILES_MAX:,} files; name their folder"
            )
    if not paths:
        raise InvalidArgumentError(f"pattern {path}: no file matches it; see what is there with ls")
    return paths


def folder_above(pattern: str) -> str:
    """The folder that all files of a pattern lie below."""
    found = _SPECIAL.search(pattern)
    return os.path.dirname(pattern[: found.start()] if found is not None else pattern)


def searched_folders(path: str) -> set[str]:
    """The folders whose lists decide what a pattern's wildcards match."""
    found: set[str] = set()
    for each in _expanded(path) if is_pattern(path) else ():
        parts = each.split("/") if _has_wildcards(each) else []
        for number, part in enumerate(parts):
            above = "/".join(parts[:number]) or "/"
            if part == _ANY_DEPTH:
                found.update(map(os.path.normpath, glob.glob(f"{above}/**/", recursive=True)))
            elif glob.has_magic(part):
                found.update(filter(os.path.isdir, glob.glob(above, recursive=True)))
    return set(map(os.path.normpath, found))


def pattern_of(paths: Sequence[str]) -> str | None:
    """A pattern of these paths, which are absolute, in this order; None: there is none."""
    if len(paths) == 1:
        return paths[0]
    folder = os.path.commonpath([os.path.dirname(each) for each in paths])
    names = [os.path.relpath(each, folder) for each in paths]
    if any(_SPECIAL_IN_LIST.search(each) for each in (folder, *names)):
        return None
    return os.path.join(folder, f"{{{','.join(names)}}}")


def files_at(path: str, takes: Callable[[str], bool]) -> list[str]:
    """The files of a dataset: a file, a pattern, or those in a folder whose names `takes` takes."""
    if not os.path.isdir(path):
        return expand(path)
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise FailedPreconditionError(f"indexing {path}: {unread_reason(error)}") from error
    return [os.path.join(path, each) for each in names if takes(each)]


def _matches(pattern: str) -> Iterator[str]:
    """The paths that match wildcards; of `**` all files below, as it stands for folders."""
    if _ANY_DEPTH not in pattern.split("/"):
        return glob.iglob(pattern)
    found = set(glob.iglob(pattern, recursive=True))  # It may find a path in two ways.
    return filter(os.path.isfile, found) if pattern.endswith(_ANY_DEPTH) else iter(found)


def _has_wildcards(path: str) -> bool:
    return glob.has_magic(path) and not os.path.exists(path)


def _is_list(inside: str) -> bool:
    return "," in inside or _RANGE.fullmatch(inside) is not None


def _expanded(path: str) -> Iterator[str]:
    for found in _BRACES.finditer(path):
        if _is_list(found[1]):
            for part in _parts(found[1]):
                for rest in _expanded(path[found.end() :]):
                    yield path[: found.start()] + part + rest
            return
    yield path


def _parts(inside: str) -> Iterator[str]:
    found = _RANGE.fullmatch(inside)
    if found is None:
        yield from inside.split(",")
        return
    first, last = int(found[1]), int(found[2])
    width = max(len(found[1]), len(found[2])) if found[1].startswith("0") else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"
