"""The places, by the scheme that a path of theirs begins with."""

from __future__ import annotations

import os

from headrace._places.local import Local
from headrace._places.place import Place
from headrace.errors import InvalidArgumentError

LOCAL: Place = Local()

PLACES: dict[str, Place] = {}
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
    """The path from its place's root, without "." and ".."; as `os.path.abspath` if it is local."""
    if is_local(path):
        return os.path.abspath(path)
    scheme, colon, rest = path.partition("://")
    return scheme + colon + os.path.normpath(rest)


def local_path(path: str) -> str:
    """The path, for what takes no other than a local one: mapped memory, h5py, pyarrow, the core.

    Raises InvalidArgumentError for another place.
    """
    if is_local(path):
        return path
    raise InvalidArgumentError(
        f"reading {path}: files of this format are read from a local file system only; copy the "
        "data to a disk, or mount the storage as a file system (s3fs, gcsfuse, rclone mount, NFS), "
        "and name the path"
    )
