"""The path of a dataset as users write it, and errors about one that leads to nothing."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace import _places
from headrace._arguments import given_path, shown
from headrace._text import os_reason, unread_reason
from headrace.errors import (
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.formats._files.patterns import expand, folder_above, is_pattern, pattern_of

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HUB = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?/?(?P<path>.*?)/?")


def dataset_path(doing: str, path: Any) -> str:
    """`path`, absolute: something is there, or it is a pattern of several. A "~" that begins it is
    the user's home folder. Of a list of paths, their pattern."""
    if isinstance(path, (list, tuple)):
        return _listed(doing, path)
    text = given_path(doing, path)
    if _places.is_local(text):
        return _found(doing, text)
    try:
        return _found(doing, text)
    except HeadraceError:
        raise  # Some are OSErrors, too.
    except OSError as error:
        raise FailedPreconditionError(f"{doing} {shown(text)}: {unread_reason(error)}") from error


def _found(doing: str, text: str) -> str:
    where = _places.absolute(text)
    if _places.exists(where):
        return where
    if _places.is_local(text):
        if _URL.match(text):
            raise InvalidArgumentError(
                f"{doing} {shown(text)}: this is a URL, and headrace reads those of s3://, gs://, "
                f"az://, https:// and http://; {_way_from(text)}"
            )
        where = _places.spelled(_places.absolute(os.path.expanduser(text)))
    if not _places.exists(where) and not is_pattern(where):
        raise _not_found(f"{doing} {where}", where)
    paths = expand(where) if _places.has_magic(where) else []
    # Where wildcards stand for folders, their names may be values of columns.
    return (
        paths[0] if len(paths) == 1 and "=" not in paths[0][len(folder_above(where)) :] else where
    )


def _way_from(url: str) -> str:
    """What to do about a URL that headrace does not read."""
    of_hub = _HUB.fullmatch(url)
    if of_hub is None:
        return (
            "copy the data there or to a disk, or mount the storage as a file system (rclone "
            "mount, NFS), and name the path"
        )
    name, revision, path = of_hub["name"], of_hub["revision"], of_hub["path"] or ""
    folder = name.rpartition("/")[2]
    words = ["hf", "download", name, "--repo-type", "dataset", "--local-dir", folder]
    words += ["--revision", revision] if revision else []
    wanted = os.path.dirname(path) if is_pattern(path) else path  # Its patterns have no braces.
    if wanted:
        is_file = wanted == path and "." in os.path.basename(path)
        words += ["--include", path if is_file else f"{wanted}/*"]
    where = os.path.join(folder, path) if path else folder
    return f"download it: `{shlex.join(words)}` (pip install huggingface_hub), and open {where}"


def _listed(doing: str, paths: Sequence[Any]) -> str:
    """The pattern of these files, in this order."""
    if not paths:
        raise InvalidArgumentError(f"{doing}: got an empty list, must be paths of files")
    files: list[str] = []
    for path in paths:
        if isinstance(path, (list, tuple)):
            raise InvalidArgumentError(f"{doing}: got {shown(paths)}, must be a list of paths")
        where = dataset_path(doing, path)
        if len(paths) > 1 and _places.is_folder(where):
            raise InvalidArgumentError(
                f"{doing}: {where} is a folder; a list has files: write {where}/* in its place"
            )
        files += expand(where) if is_pattern(where) else [where]
    pattern = pattern_of(files)
    if pattern is None:
        raise InvalidArgumentError(
            f"{doing}: got {shown(paths)}: a list of paths becomes a pattern, and one of them has "
            "one of the characters {},*?[ of patterns; link the files into a folder under other "
            "names, and open that"
        )
    return pattern


def _not_found(doing: str, path: str) -> HeadraceError:
    """The error for a path to nothing, or to something in a folder that this user may not enter."""
    try:
        _places.stat(path)
    except PermissionError as error:
        return FailedPreconditionError(f"{doing}: {os_reason(error)}")
    except FileNotFoundError as error:
        if not _places.is_local(path):
            return NotFoundError(f"{doing}: {os_reason(error)}")
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return InvalidArgumentError(f"{doing}: {os_reason(error)}; shorten the path")
    if _places.has_magic(path):
        return NotFoundError(f"{doing}: no file matches this pattern; see what is there with ls")
    return NotFoundError(f"{doing}: {_absent(path)}")


def _absent(path: str) -> str:
    """Says where a path to nothing stops existing."""
    missing = path
    while _places.is_local(path) and not _places.exists(os.path.dirname(missing)):
        missing = os.path.dirname(missing)
    with suppress(OSError):
        return (
            f"{missing} is a link to {os.readlink(missing)}, which is not there; point it to what "
            "is, or name another path"
        )
    if missing == path:
        return "no such file or folder; see what is there with ls"
    return (
        f"no such file or folder (the path exists as far as {os.path.dirname(missing)}); see what "
        "is there with ls"
    )


def are_below(folder: str, paths: Sequence[str]) -> bool:
    """Whether each path begins with `folder`, which ends with "/", and none has a zero byte."""
    text = "\0" + "\0".join(paths)  # Looking at each path takes longer.
    return text.count("\0") == len(paths) == text.count("\0" + folder)
