"""Wildcards in paths: what `glob` does for local files, in every place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate
from glob import escape, has_magic

from headrace._places.files import entries, exists, is_absence, is_folder, leads_to_folder
from headrace._places.place import Entry

__all__ = ["escape", "has_magic", "match"]

_ANY_DEPTH = "**"


def match(pattern: str, *, any_depth: bool = False) -> Iterator[str]:
    """The paths that an absolute pattern matches, in no order: as `glob.iglob` has them, but a
    folder that has wildcards in its own name comes before those that they match.

    Hidden names, those of ".", match no wildcard that does not begin with "." itself. A name
    without wildcards matches a link to nothing, too. `any_depth`: "**" stands for folders at any
    depth, and may find a path twice.
    """
    yield from _matches(pattern, any_depth, only_folders=False)


def _matches(pattern: str, any_depth: bool, *, only_folders: bool) -> Iterator[str]:
    folder, name = os.path.split(pattern)
    above = [folder]
    if has_magic(folder) and not is_folder(folder):
        above = list(_matches(folder, any_depth, only_folders=True))
    for where in above:
        if any_depth and name == _ANY_DEPTH:
            if is_folder(where):
                yield os.path.join(where, "")
                yield from _below(where, only_folders)
        elif has_magic(name):
            is_match = re.compile(translate(name)).match
            for entry in _visible(where, only_folders, hidden=name.startswith(".")):
                if is_match(entry.name):
                    yield os.path.join(where, entry.name)
        else:
            path = os.path.join(where, name)
            if exists(path, follow_symlinks=False) if name else is_folder(where):
                yield path


def _below(folder: str, only_folders: bool) -> Iterator[str]:
    """All that is visible in a folder and in those below."""
    for entry in _visible(folder, only_folders):
        yield os.path.join(folder, entry.name)
        if only_folders or leads_to_folder(entry):
            yield from _below(os.path.join(folder, entry.name), only_folders)


def _visible(folder: str, only_folders: bool, *, hidden: bool = False) -> list[Entry]:
    """The entries of a folder; none if it cannot be read."""
    try:
        with entries(folder) as there:
            return [
                entry
                for entry in there
                if (hidden or not entry.name.startswith("."))
                and (not only_folders or leads_to_folder(entry))
            ]
    except OSError as error:
        if not is_absence(folder, error, of_list=True):
            raise
        return []
