"""A folder of images in class folders, as torchvision's ImageFolder reads it."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from headrace import _core, _places
from headrace._arguments import integer
from headrace.errors import InvalidArgumentError
from headrace.formats._base.cache import (
    IsTrue,
    built,
    cache_path,
    cache_target,
    index_target,
    make_folder_of,
    open_current,
)
from headrace.formats._base.findings import Finding, skip_of
from headrace.formats._base.format import Format, Opened, Wanted
from headrace.formats._folders.beside import files_beside, warn_of_files_beside
from headrace.formats._indexing.in_order import JOBS, JOBS_MAX

# torchvision.datasets.folder.IMG_EXTENSIONS

_log = logging.getLogger("headrace.dataset")


class Folder(Format):
    """Its index is in the user's cache folder, or at a path that the user gives."""

    name: ClassVar[str] = "folder"  # The builder writes it: src/index/folder/folder.cc.
    opens: ClassVar[str] = (
        "a folder with one folder of images for each class (as torchvision's ImageFolder)"
    )
    file_a_sample: ClassVar[bool] = True
    follows_skip: ClassVar[bool] = True
    has_class_folders: ClassVar[bool] = True

    def recognises(self, path: str) -> bool:
        if not _places.is_folder(path):
            return False
        with _places.entries(path) as entries:
            return any(entry.is_dir() for entry in entries if not entry.name.startswith("."))

    def open(self, path: str, wanted: Wanted) -> Opened:
        if wanted.index is not None:
            kept = index_target(wanted.index, path)
            return _open_named(path, kept, wanted)
        return _open_cached(path, wanted)

    def build(self, path: str, wanted: Wanted) -> tuple[_core.Index, str]:
        skip = wanted.skip or ()
        kept = wanted.index
        target = cache_path(path, *skip) if kept is None else index_target(kept, path)
        make_folder_of(target, f"indexing {path}")
        target = built(
            path, target, lambda at: _build(path, at, skip, wanted), named=kept is not None
        )
        return _core.Index.open(target), target

    def is_current(self, index: _core.Index) -> bool:
        if _places.is_local(index.root):
            return index.folder_is_current()
        from headrace.formats._folders import listed_folder  # With all that indexing takes.

        return listed_folder.is_current(index)

    def remedy(self, index: _core.Index) -> str:
        skip = "".join(f" --skip {shlex.quote(pattern)}" for pattern in skip_of(index))
        root = shlex.quote(index.root)
        return f"run `headrace index {root}{skip}` to index the folder as it is now"

    def leave_out(self, index: _core.Index, kind: str) -> str:
        return f'leave it out with --skip {kind} (in Python: skip="{kind}")'

    def source_folder(self, index: _core.Index) -> str | None:
        return index.root

    def also_found(self, index: _core.Index) -> tuple[Finding, ...]:
        finding = files_beside(index.root, skip_of(index))
        return () if finding is None else (finding,)

    def file_fault(
        self, index: _core.Index, number: int, read: Callable[[int, int], bytes | bytearray]
    ) -> str | None:
        name, size, _ = index.object(number)
        if size:
            return None
        path = os.path.join(index.root, name)
        return f"{path}: zero bytes, no image; fill it, or {self.leave_out(index, ':empty')}"


def _open_named(root: str, path: str, wanted: Wanted) -> Opened:
    """Opens an index that the caller named. An index of another folder is not replaced."""
    skip = wanted.skip
    if _places.exists(path):
        index = _core.Index.open(path)
        if index.root != root:
            raise InvalidArgumentError(
                f"opening dataset {root}: the index {path} is one of {index.root}; name another "
                "file"
            )
        if skip is not None and skip != skip_of(index):
            raise InvalidArgumentError(
                f"opening dataset {root}: the index {path} was made with skip="
                f"{list(skip_of(index))!r}, not {list(skip)!r}; name another file, or leave skip "
                "out"
            )
        skip = skip_of(index)
    return replace(_open_folder(root, path, skip or (), wanted), named=path)


def _describes(root: str, skip: tuple[str, ...]) -> IsTrue:
    """Whether an index describes `root` as it is now, without the files of `skip`."""

    def is_true(index: _core.Index) -> bool:
        same = index.root == root and skip_of(index) == skip
        return same and Folder().is_current(index)

    return is_true


def _open_folder(root: str, path: str, skip: tuple[str, ...], wanted: Wanted) -> Opened:
    index = open_current(path, _describes(root, skip))
    if index is not None:
        return Opened(index)
    path = built(
        root, path, lambda at: _build(root, at, skip, wanted), named=wanted.index is not None
    )
    index = _core.Index.open(path)
    _log.info("indexed %s: %d samples, into %s", root, index.sample_count, path)
    return Opened(index, is_new=True)


def _build(root: str, path: str, skip: tuple[str, ...], wanted: Wanted) -> None:
    jobs = JOBS if wanted.jobs is None else integer("index jobs", wanted.jobs, 1, JOBS_MAX)
    if _places.is_local(root):
        _core.build_folder_index(root, path, wanted.progress, list(skip), jobs)
    else:
        from headrace.formats._folders import listed_folder

        listed_folder.build(root, path, skip, wanted.progress, jobs)
    warn_of_files_beside(root, skip)


def _open_cached(root: str, wanted: Wanted) -> Opened:
    skip = wanted.skip or ()
    path = cache_target(root, cache_path(root, *skip), _describes(root, skip))
    return _open_folder(root, path, skip, wanted)
