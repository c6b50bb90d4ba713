"""Brace patterns: "a-{000..099}.tar", "{train,extra}.tar", as shells and webdataset expand them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from headrace.errors import FailedPreconditionError, InvalidArgumentError

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_FILES_MAX = 1_000_000


def is_pattern(path: str) -> bool:
    """Whether the path has braces that can be expanded; a file of that name comes first."""
    return not os.path.exists(path) and any(map(_is_list, _BRACES.findall(path)))


def expand(path: str) -> list[str]:
    """The paths that a pattern stands for, in its order; the path itself if it is no pattern."""
    if not is_pattern(path):
        return [path]
    paths: list[str] = []
    for each in _expanded(path):
        paths.append(each)
        if len(paths) > _FILES_MAX:
            raise InvalidArgumentError(f"pattern {path}: more than {_FILES_MAX:,} files")
    return paths


def files_at(path: str, takes: Callable[[str], bool]) -> list[str]:
    """The files of a dataset: a file, a pattern, or those in a folder whose names `takes` takes."""
    if not os.path.isdir(path):
        return expand(path)
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise FailedPreconditionError(f"indexing {path}: {error.strerror}") from error
    return [os.path.join(path, each) for each in names if takes(each)]


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
