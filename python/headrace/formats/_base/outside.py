"""Refuses to write into the classes of a folder of images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headrace._arguments import refuse_url
from headrace.errors import InvalidArgumentError


def check_outside(doing: str, path: Any, root: str | None, *, is_folder: bool = False) -> None:
    """Refuses to write to `path` if an index of the folder of images `root` would find it.

    Every folder in `root`, also a link to one, is a class; every image below it is a sample. Files
    beside the class folders are neither. Refuses URLs, too.
    """
    refuse_url(doing, path)
    if root is None:
        return
    try:
        text = os.fsdecode(path)
        places = [(Path(at(text)), Path(at(root))) for at in (os.path.abspath, os.path.realpath)]
    except (TypeError, ValueError):
        return  # The user of the path names it.
    inside = [a.is_relative_to(b) if is_folder else b in a.parent.parents for a, b in places]
    real, base = places[-1]
    if any(inside) or any(real.is_relative_to(folder) for folder in _linked_classes(base)):
        raise InvalidArgumentError(
            f"{doing} {text}: it lies in the dataset {root}, where each folder is a class and "
            "each image a sample; name a place outside it"
        )


def _linked_classes(root: Path) -> list[Path]:
    """Real paths of the folders in `root` (resolved) that are links; loops are not classes."""
    try:
        with os.scandir(root) as entries:
            links = [entry.path for entry in entries if entry.is_symlink() and entry.is_dir()]
    except OSError:
        return []  # The reader reports it.
    around = (root, *root.parents)
    return [folder for folder in map(Path, map(os.path.realpath, links)) if folder not in around]
