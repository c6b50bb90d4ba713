"""The index of class folders that the core cannot walk, as they do not lie on a disk.

As src/index/folder/folder.cc makes it of those on one: a change there is one here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace import _core, _places
from headrace._text import unread_reason
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.builder import Builder, Progress
from headrace.formats._base.findings import FindingCounts
from headrace.formats._files.images import IMAGES
from headrace.formats._folders.skip_rules import SkipRules

FOLDERS = "folders"
"""The attribute with each folder, as [path below the root, number of what lies there]."""

_DECODED = (".jpg", ".jpeg", ".png", ".webp", *((".tif", ".tiff") if _core.decodes_tiff else ()))
_LISTS_AT_ONCE = 128
_SHOWN = 5


@dataclass(frozen=True)
class _Listed:
    """What lies in a folder."""

    folders: list[str]
    files: list[tuple[str, int, int]]
    """The name, the size, the version."""

    @property
    def number(self) -> int:
        """It differs when images come, go or change."""
        images = (file for file in self.files if file[0].lower().endswith(IMAGES))
        text = json.dumps([sorted(self.folders), sorted(images)]).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def build(
    root: str, path: str, skip: Sequence[str], progress: Progress | None, jobs: int | None
) -> None:
    """Writes the index to `path`."""
    rules = SkipRules(skip)
    counts = FindingCounts()
    top = _listed(root)
    skipped = [name for name in sorted(top.folders) if rules.leaves_out(name)]
    for name in skipped:
        counts.add("skipped", name)
    classes = sorted(set(top.folders).difference(skipped))
    if not classes:
        raise InvalidArgumentError(
            f"indexing folder {root}: it has no class folders; put the images of each class into "
            "a folder of their own below it"
        )
    with Builder(path, root, progress=progress, jobs=jobs) as builder:
        builder.add_field("image", "image")
        builder.add_field("label", "array", "int64", inline=True)
        folders, without = [("", top.number)], []
        for label, name in enumerate(_ahead(root, classes)):
            before = builder.file_count
            folders += _add_class(root, name, label, builder, rules, counts)
            if builder.file_count == before:
                without.append(name)
        _check_classes(root, without)
        builder.tell(builder.file_count)
        builder.set_attribute("format", "folder")
        builder.set_classes(classes)
        builder.set_attribute(FOLDERS, json.dumps(folders))
        builder.set_attribute("skip", json.dumps(list(skip)))
        builder.set_attribute("skip_unmatched", json.dumps(rules.unmatched))
        builder.set_attribute("report", counts.json())


def is_current(index: _core.Index) -> bool:
    """Whether the folders have the images that they had, by one list of each."""
    try:
        noted = json.loads(index.attributes.get(FOLDERS, "[]"))
        paths = [os.path.join(index.root, below) if below else index.root for below, _ in noted]
        rules = SkipRules(json.loads(index.attributes.get("skip", "[]")))
    except (ValueError, TypeError, InvalidArgumentError):
        return False
    for first in range(0, len(paths), _LISTS_AT_ONCE):
        some = paths[first : first + _LISTS_AT_ONCE]
        _places.look_ahead([], some)
        for (below, number), path in zip(noted[first:], some, strict=False):
            try:
                listed = _listed(path)
            except FailedPreconditionError:
                return False
            if below:
                if listed.number != number:
                    return False
                continue
            # Files beside the class folders are no samples.
            classes = sorted(name for name in listed.folders if not rules.leaves_out(name))
            if classes != sorted(name for name, _ in noted if name and "/" not in name):
                return False
    return bool(noted)


def _ahead(root: str, names: Sequence[str]) -> Iterator[str]:
    """The names; the lists of some are asked for at a time."""
    for first in range(0, len(names), _LISTS_AT_ONCE):
        some = names[first : first + _LISTS_AT_ONCE]
        _places.look_ahead([], [os.path.join(root, name) for name in some])
        yield from some


def _listed(folder: str) -> _Listed:
    folders, files = [], []
    try:
        with _places.entries(folder) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.name)
                else:
                    status = entry.stat()
                    files.append((entry.name, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise FailedPreconditionError(
            f"indexing folder {folder}: {unread_reason(error)}"
        ) from error
    return _Listed(folders, files)


def _add_class(
    root: str,
    name: str,
    label: int,
    builder: Builder,
    rules: SkipRules,
    counts: FindingCounts,
) -> list[tuple[str, int]]:
    """Adds the images of a class folder and of those below it; the folders, by path."""
    found: dict[str, _Listed] = {}
    level = [name]
    while level:
        found |= {below: _listed(os.path.join(root, below)) for below in _ahead(root, level)}
        level = [
            f"{above}/{folder}"
            for above in level
            for folder in found[above].folders
            if not rules.leaves_out(f"{above}/{folder}")
        ]
    for below in sorted(found):
        left_out = [f"{below}/{x}" for x in found[below].folders if f"{below}/{x}" not in found]
        images = []
        for file, size, version in sorted(found[below].files):
            path = f"{below}/{file}"
            out = rules.leaves_out(path)
            if not file.lower().endswith(IMAGES):
                continue
            kind = _kind(file, size)
            if out or (kind and rules.leaves_out_kind(kind)):
                left_out.append(path)
                continue
            if kind:
                counts.add(kind, path)
            if path.startswith(".") or "/." in path:
                counts.add("hidden", path)
            images.append((f"{root}/{path}", size, version))
        for path in sorted(left_out):
            counts.add("skipped", path)
        _add_images(images, label, builder)
    return [(below, found[below].number) for below in sorted(found)]


def _kind(name: str, size: int) -> str:
    """Why the image cannot be decoded, as a finding names it; empty: it can."""
    if size == 0:
        return "empty"
    suffix = os.path.splitext(name)[1].lower() or name.lower()
    return "" if suffix in _DECODED else suffix


def _add_images(images: list[tuple[str, int, int]], label: int, builder: Builder) -> None:
    if not images:
        return
    paths, sizes, versions = zip(*images, strict=True)
    first = builder.add_files(paths, sizes, versions)
    builder.add_extents("image", np.arange(first, first + len(paths)), 0, sizes)
    builder.add_values("label", np.full(len(paths), label))


def _check_classes(root: str, without: Sequence[str]) -> None:
    if not without:
        return
    names = ", ".join(map(repr, without[:_SHOWN])) + (", ..." if len(without) > _SHOWN else "")
    skip = ", ".join(repr(f"/{name}") for name in without[:_SHOWN])
    raise InvalidArgumentError(
        f"indexing folder {root}: folders without an image ({' '.join(IMAGES)}), but each folder "
        f"is a class: {len(without)}: {names}: open the folder that holds the classes and nothing "
        f"else, or leave these out with skip=[{skip}] (headrace index --skip)"
    )
