"""Where the index of a dataset is kept: in the user's cache folder, or at a path that they name."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import struct
import warnings
from collections.abc import Callable

from headrace import _core
from headrace._arguments import written_path
from headrace._text import os_reason
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from headrace.formats._base.findings import callers_level
from headrace.formats._base.outside import check_outside

INDEX_SUFFIX = ".hri"
_BEFORE = ".before" + INDEX_SUFFIX  # of the index that the one in the cache replaced

_FINGERPRINT = struct.Struct("<QQ")
_FINGERPRINT_AT = 56  # in an index file

IsTrue = Callable[[_core.Index], bool]
"""Whether an index describes what is wanted, as it is now."""


def cache_folder() -> str:
    """Where this user's indexes are kept, and packs that are being uploaded."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "headrace")


def cache_path(path: str, *keys: str) -> str:
    """The path of the index of the dataset at `path` (absolute); `keys`: its other parameters."""
    key = _core.hash64(b"\0".join(map(os.fsencode, (path, *keys))))
    name = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path))[:64]
    return os.path.join(cache_folder(), f"{name}-{key:016x}{INDEX_SUFFIX}")


def kept_index(fingerprint: str) -> _core.Index | None:
    """The index of that fingerprint, if the cache has it, of any dataset. For an error."""
    try:
        with os.scandir(cache_folder()) as entries:
            paths = [entry.path for entry in entries if entry.name.endswith(INDEX_SUFFIX)]
        return next((_core.Index.open(path) for path in paths if _is_of(path, fingerprint)), None)
    except (OSError, HeadraceError):
        return None


def _is_of(path: str, fingerprint: str) -> bool:
    with open(path, "rb") as file:
        head = file.read(_FINGERPRINT_AT + _FINGERPRINT.size)
    if len(head) != _FINGERPRINT_AT + _FINGERPRINT.size:
        return False
    high, low = _FINGERPRINT.unpack_from(head, _FINGERPRINT_AT)
    return f"{high:016x}{low:016x}" == fingerprint


def index_target(path: str | os.PathLike[str], images: str | None = None) -> str:
    """`path`, absolute, if it may be written: only an index is ever replaced.

    `images`: the dataset, if it is a folder of images.
    """
    target = os.path.abspath(written_path("index file", path))
    if not target.endswith(INDEX_SUFFIX):
        raise InvalidArgumentError(
            f"index file {target}: its name must end with {INDEX_SUFFIX}, to be known as one"
        )
    check_outside("index file", target, images)
    return target


def make_folder_of(target: str, doing: str) -> None:
    """Makes the folder of a file that will be written. Raises UnavailableError."""
    folder = os.path.dirname(target)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{doing}: making folder {folder}: {os_reason(error)}") from error


def open_current(path: str, is_true: IsTrue) -> _core.Index | None:
    """The index at `path` if it is there and true."""
    if not os.path.exists(path):
        return None
    try:
        index = _core.Index.open(path)
    except (DataLossError, FailedPreconditionError):
        return None  # Damaged or of another version: an index can be built again.
    return index if is_true(index) else None


def cache_target(root: str, path: str, is_true: IsTrue) -> str:
    """`path`, a path in the cache; if it cannot be written, a temporary one."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        writable = os.access(os.path.dirname(path), os.W_OK)
        if not writable and open_current(path, is_true) is None:
            raise PermissionError(errno.EACCES, "Permission denied")
    except OSError as error:
        path = _instead(root, path, os_reason(error))
    return path


def built(root: str, path: str, build: Callable[[str], None], *, named: bool) -> str:
    """Has `build` write the index to `path`, and returns where it is.

    Unless the user has `named` it, it lies in the cache: in a temporary file if the disk there is
    full or fails. The one that it replaces is then kept beside it, for `kept_index`.
    """
    if named:
        build(path)
        return path
    if os.path.dirname(path) == cache_folder() and os.path.exists(path):
        before = path.removesuffix(INDEX_SUFFIX) + _BEFORE
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(before)
            os.link(path, before)
    try:
        build(path)
    except (ResourceExhaustedError, UnavailableError) as error:
        if os.path.dirname(path) not in str(error):
            raise  # of the data
        path = _instead(root, path, str(error).rpartition(": ")[2])
        build(path)
    return path


def _instead(root: str, path: str, why: str) -> str:
    """Warns that the index cannot be kept at `path`; a temporary one."""
    warnings.warn(
        f"headrace: the index of {root} cannot be kept in {os.path.dirname(path)} "
        f"({why}): it is made anew in each process; or set XDG_CACHE_HOME to a "
        "folder that can be written, or pass index=",
        RuntimeWarning,
        stacklevel=callers_level(),
    )
    return _temporary_path()


def _temporary_path() -> str:
    import tempfile  # It takes long to import.

    handle, path = tempfile.mkstemp(prefix="headrace-", suffix=INDEX_SUFFIX)
    os.close(handle)
    atexit.register(_unlink_quietly, path, os.getpid())
    return path


def _unlink_quietly(path: str, owner: int) -> None:
    if os.getpid() == owner:  # A forked child must not remove its parent's file.
        with contextlib.suppress(OSError):
            os.unlink(path)
