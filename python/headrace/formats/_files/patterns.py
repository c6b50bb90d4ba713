"""Patterns of paths, as shells have them: "a-{000..099}.tar", "{train,extra}.tar", "a-*.tar"; and
"data/**/*.tar", of folders at any depth."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from headrace import _places
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
    if _places.exists(path):
        return False
    if any(map(_is_list, _BRACES.findall(path))):
        return True
    return _places.has_magic(path) and next(_matches(path), None) is not None


def expand(path: str) -> list[str]:
    """The paths that a pattern stands for; the path itself if it is no pattern.

    They are in the order of the braces, and those that match wildcards by name.
    """
    if not is_pattern(path):
        return [path]
    paths: list[str] = []
    for pattern in _expanded(path):
        paths += sorted(_matches(pattern)) if _has_wildcards(pattern) else [pattern]
        if len(paths) > _FILES_MAX:
            raise InvalidArgumentError(
                f"pattern {path}: more than {_FILES_MAX:,} files; name their folder"
            )
    if not paths:
        raise InvalidArgumentError(f"pattern {path}: no file matches it; see what is there with ls")
    return paths


def folder_above(pattern: str) -> str:
    """The folder that all files of a pattern lie below."""
    match = _SPECIAL.search(pattern)
    return os.path.dirname(pattern[: match.start()] if match is not None else pattern)


def searched_folders(path: str) -> set[str]:
    """The folders whose lists decide what a pattern's wildcards match."""
    folders: set[str] = set()
    for pattern in _expanded(path) if is_pattern(path) else ():
        parts = pattern.split("/") if _has_wildcards(pattern) else []
        for number, part in enumerate(parts):
            above = "/".join(parts[:number]) or "/"
            if part == _ANY_DEPTH:
                folders.update(map(_places.absolute, _places.match(f"{above}/**/", any_depth=True)))
            elif _places.has_magic(part):
                folders.update(filter(_places.is_folder, _places.match(above, any_depth=True)))
    return set(map(_places.absolute, folders))


def pattern_of(paths: Sequence[str]) -> str | None:
    """A pattern of these paths, which are absolute, in this order; None: there is none."""
    if len(paths) == 1:
        return paths[0]
    folder = os.path.dirname(paths[0])
    while not all(path.startswith(os.path.join(folder, "")) for path in paths):
        folder = os.path.dirname(folder)
    names = [path.removeprefix(os.path.join(folder, "")) for path in paths]
    if any(_SPECIAL_IN_LIST.search(name) for name in (folder, *names)):
        return None
    return os.path.join(folder, f"{{{','.join(names)}}}")


def files_at(path: str, takes: Callable[[str], bool]) -> list[str]:
    """The files of a dataset: a file, a pattern, or those in a folder whose names `takes` takes."""
    if not _places.is_folder(path):
        return expand(path)
    try:
        names = sorted(_places.names(path))
    except OSError as error:
        raise FailedPreconditionError(f"indexing {path}: {unread_reason(error)}") from error
    return [os.path.join(path, name) for name in names if takes(name)]


def _matches(pattern: str) -> Iterator[str]:
    """The paths that match wildcards; of `**` all files below, as it stands for folders."""
    if _ANY_DEPTH not in pattern.split("/"):
        return _places.match(pattern)
    matches = set(_places.match(pattern, any_depth=True))  # It may find a path in two ways.
    return filter(_places.is_file, matches) if pattern.endswith(_ANY_DEPTH) else iter(matches)


def _has_wildcards(path: str) -> bool:
    return _places.has_magic(path) and not _places.exists(path)


def _is_list(inside: str) -> bool:
    return "," in inside or _RANGE.fullmatch(inside) is not None


def _expanded(path: str) -> Iterator[str]:
    for match in _BRACES.finditer(path):
        if _is_list(match[1]):
            for part in _parts(match[1]):
                for rest in _expanded(path[match.end() :]):
                    yield path[: match.start()] + part + rest
            return
    yield path


def _parts(inside: str) -> Iterator[str]:
    match = _RANGE.fullmatch(inside)
    if match is None:
        yield from inside.split(",")
        return
    first, last = int(match[1]), int(match[2])
    padded = len(match[1]) > 1 and match[1].startswith("0")  # As of bash and braceexpand.
    width = max(len(match[1]), len(match[2])) if padded else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"
