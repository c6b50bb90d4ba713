"""The places, by the scheme that a path of theirs begins with."""

from __future__ import annotations

import os

from headrace._objects.connection import Connection
from headrace._objects.place import ObjectPlace
from headrace._places.local import SPECIAL, Local, is_special
from headrace._places.place import Place
from headrace.errors import FailedPreconditionError, InvalidArgumentError

LOCAL: Place = Local()

LISTER = Connection()
_STORE, _WEB = ObjectPlace(LISTER), ObjectPlace(LISTER, has_lists=False)

PLACES: dict[str, Place] = {"s3": _STORE, "gs": _STORE, "az": _STORE, "https": _WEB, "http": _WEB}
"""By scheme, without its "://", those that are not the local file system."""


def place_of(path: str) -> Place:
    """Where the file or folder lies. A path with an unknown scheme is a local one, too."""
    if path.startswith("/"):
        return LOCAL
    scheme, colon, _ = path.partition("://")
    return PLACES.get(scheme, LOCAL) if colon else LOCAL


def is_local(path: str) -> bool:
    """Whether it is a path of the local file system."""
    return place_of(path) is LOCAL


def absolute(path: str) -> str:
    """The path from its place's root, without "." and "..".

    A local one leads where it leads the system: ".." after a link to a folder is the folder above
    the one that it leads to. Raises InvalidArgumentError for a URL with an empty part, which is
    another key than that without, and for one that leads above its bucket.
    """
    if not is_local(path):
        return _absolute_url(path)
    try:
        whole = os.path.abspath(path)
    except FileNotFoundError as error:
        raise FailedPreconditionError(
            f"finding {path}: the working folder is not there any more; change to one that is, or "
            "give a path that begins with /"
        ) from error
    parts = path.split("/") if ".." in path else []
    if ".." not in parts:
        return whole
    after = len(parts) - parts[::-1].index("..")  # The part behind the last one.
    above = "/".join(parts[:after])
    try:
        real = os.path.realpath(above)
        same = os.path.realpath(os.path.abspath(above)) == real
    except ValueError:  # A zero byte, or no Unicode.
        return whole
    return whole if same else os.path.normpath(os.path.join(real, *parts[after:]))


def _absolute_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    parts: list[str] = []
    for part in rest.rstrip("/").split("/"):
        if part == "..":
            if len(parts) < 2:
                raise InvalidArgumentError(f"opening {url}: .. leads above its bucket or host")
            parts.pop()
        elif part != ".":
            parts.append(part)
    if "" in parts[1:]:
        raise InvalidArgumentError(
            f"opening {url}: it has an empty part, as beside //, which no path can have; write one "
            "/, or copy what lies there to keys without"
        )
    return f"{scheme}://{'/'.join(parts)}"


def joined(folder: str, path: str) -> str:
    """The path, from the folder if it is relative; a URL stands for itself."""
    return os.path.join(folder, path) if is_local(path) else path


def local_path(path: str) -> str:
    """The path, for what takes no other than a local one: mapped memory, h5py, pyarrow, the core.

    Raises InvalidArgumentError for another place, and FailedPreconditionError for what is neither
    a file nor a folder.
    """
    if is_local(path):
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            return path  # Whoever opens it says why.
        if is_special(mode):
            raise FailedPreconditionError(f"reading {path}: {SPECIAL}")
        return path
    raise InvalidArgumentError(
        f"reading {path}: files of this format are read from a local file system only; copy the "
        "data to a disk, or mount the storage as a file system (s3fs, gcsfuse, rclone mount, NFS), "
        "and name the path"
    )
