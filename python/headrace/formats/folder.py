"""A folder of images in class folders, as torchvision's ImageFolder reads it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar

from headrace import _core
from headrace._arguments import given_path
from headrace._text import os_reason
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from headrace.formats._findings import callers_level, skip_of
from headrace.formats._format import INDEX_SUFFIX, Format, Opened, Progress, Sample, Wanted
from headrace.formats._outside import check_outside

# torchvision.datasets.folder.IMG_EXTENSIONS
_IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

_log = logging.getLogger("headrace.dataset")


class Folder(Format):
    """Its index is in the user's cache folder, or at a path that the user gives."""

    name: ClassVar[str] = "folder"  # The builder writes it: src/index/folder.cc.
    opens: ClassVar[str] = (
        "a folder with one folder of images for each class (as torchvision's ImageFolder)"
    )
    file_a_sample: ClassVar[bool] = True

    def recognises(self, path: str) -> bool:
        if not os.path.isdir(path):
            return False
        with os.scandir(path) as entries:
            return any(each.is_dir() for each in entries if not each.name.startswith("."))

    def open(self, path: str, wanted: Wanted) -> Opened:
        if wanted.index is not None:
            kept = _index_target(wanted.index, path)
            return _open_named(path, kept, wanted.skip, wanted.progress)
        return _open_cached(path, wanted.skip or (), wanted.progress)

    def build(self, path: str, wanted: Wanted) -> tuple[_core.Index, str]:
        skip = wanted.skip or ()
        kept = wanted.index
        target = cache_path(path, skip) if kept is None else _index_target(kept, path)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"indexing {path}: making folder {os.path.dirname(target)}: {os_reason(error)}"
            ) from error
        _core.build_folder_index(path, target, wanted.progress, list(skip))
        return _core.Index.open(target), target

    def is_current(self, index: _core.Index) -> bool:
        return index.folder_is_current()

    def remedy(self, index: _core.Index) -> str:
        skip = "".join(f" --skip {shlex.quote(each)}" for each in skip_of(index))
        return f"run `headrace index {index.root}{skip}` to index the folder as it is now"

    def leave_out(self, index: _core.Index, kind: str) -> str:
        return f'leave it out with --skip {kind} (in Python: skip="{kind}")'

    def source_folder(self, index: _core.Index) -> str | None:
        return index.root

    def file_fault(
        self, index: _core.Index, number: int, read: Callable[[int, int], bytes | bytearray]
    ) -> str | None:
        name, size, _ = index.object(number)
        if size:
            return None
        path = os.path.join(index.root, name)
        return f"{path}: zero bytes, no image; fill it, or {self.leave_out(index, ':empty')}"

    def own_samples(self, path: str) -> Iterator[Sample]:
        classes = sorted(each.name for each in os.scandir(path) if each.is_dir())
        for label, name in enumerate(classes):
            for where, _, files in sorted(os.walk(os.path.join(path, name), followlinks=True)):
                for file in sorted(each for each in files if each.lower().endswith(_IMAGES)):
                    with open(os.path.join(where, file), "rb") as image:
                        yield {"image": image.read(), "label": label}


def cache_path(root: str, skip: tuple[str, ...] = ()) -> str:
    """The path of the index of folder `root` (absolute) without the files of `skip`."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    key = _core.hash64(b"\0".join(map(os.fsencode, (root, *skip))))
    name = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(root))[:64]
    return os.path.join(cache, "headrace", f"{name}-{key:016x}{INDEX_SUFFIX}")


def _index_target(path: str | os.PathLike[str], root: str) -> str:
    """`path`, absolute, if it may be written: only an index is ever replaced."""
    target = os.path.abspath(given_path("index file", path))
    if not target.endswith(INDEX_SUFFIX):
        raise InvalidArgumentError(
            f"index file {target}: its name must end with {INDEX_SUFFIX}, to be known as one"
        )
    check_outside("index file", target, root)
    return target


def _open_named(
    root: str, path: str, skip: tuple[str, ...] | None, progress: Progress | None
) -> Opened:
    """Opens an index that the caller named. An index of another folder is not replaced."""
    if os.path.exists(path):
        found = _core.Index.open(path)
        if found.root != root:
            raise InvalidArgumentError(
                f"opening dataset {root}: the index {path} is one of {found.root}; name another "
                "file"
            )
        if skip is not None and skip != skip_of(found):
            raise InvalidArgumentError(
                f"opening dataset {root}: the index {path} was made with skip="
                f"{list(skip_of(found))!r}, not {list(skip)!r}; name another file, or leave skip "
                "out"
            )
        skip = skip_of(found)
    return replace(_open_folder(root, path, skip or (), progress), named=path)


def _open_current(root: str, path: str, skip: tuple[str, ...]) -> _core.Index | None:
    """The index at `path` if it describes `root` as it is now, without the files of `skip`."""
    if not os.path.exists(path):
        return None
    try:
        index = _core.Index.open(path)
    except (DataLossError, FailedPreconditionError):
        return None  # Damaged or of another version: an index can be built again.
    same = index.root == root and skip_of(index) == skip
    return index if same and Folder().is_current(index) else None


def _open_folder(root: str, path: str, skip: tuple[str, ...], progress: Progress | None) -> Opened:
    index = _open_current(root, path, skip)
    if index is not None:
        return Opened(index)
    _core.build_folder_index(root, path, progress, list(skip))
    index = _core.Index.open(path)
    _log.info("indexed %s: %d samples, into %s", root, index.sample_count, path)
    return Opened(index, is_new=True)


def _open_cached(root: str, skip: tuple[str, ...], progress: Progress | None) -> Opened:
    path = cache_path(root, skip)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        writable = os.access(os.path.dirname(path), os.W_OK)
        if not writable and _open_current(root, path, skip) is None:
            raise PermissionError(errno.EACCES, "Permission denied")
    except OSError as error:
        warnings.warn(
            f"headrace: the index of {root} cannot be kept in {os.path.dirname(path)} "
            f"({os_reason(error)}): it is made anew in each process; or set XDG_CACHE_HOME to a "
            "folder that can be written, or pass index=",
            RuntimeWarning,
            stacklevel=callers_level(),
        )
        path = _temporary_path()
    return _open_folder(root, path, skip, progress)


def _temporary_path() -> str:
    handle, path = tempfile.mkstemp(prefix="headrace-", suffix=INDEX_SUFFIX)
    os.close(handle)
    atexit.register(_unlink_quietly, path, os.getpid())
    return path


def _unlink_quietly(path: str, owner: int) -> None:
    if os.getpid() == owner:  # A forked child must not remove its parent's file.
        with contextlib.suppress(OSError):
            os.unlink(path)
