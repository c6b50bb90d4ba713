"""The files behind the objects of an index."""

from __future__ import annotations

import os

from headrace import _core, _places
from headrace._text import unread_reason
from headrace.errors import FailedPreconditionError
from headrace.formats._files.roots import DECODED, ROW_GROUPS


def is_decoded(index: _core.Index) -> bool:
    """Whether its objects are what files, or parts of them, decode to as a whole."""
    return index.root.startswith((DECODED, ROW_GROUPS))


def folder_of(index: _core.Index) -> str:
    """The folder that the files lie below."""
    return index.root.removeprefix(DECODED).removeprefix(ROW_GROUPS)


def object_path(index: _core.Index, number: int) -> str:
    """Where the file of an object lies."""
    name = index.object(number)[0]
    if is_decoded(index):
        name = name.partition("/")[2]  # It begins with how it is decoded.
    return os.path.join(folder_of(index), name)


def file_count(index: _core.Index) -> int:
    """The number of files: several objects are parts of one where parts are decoded as a whole."""
    if not is_decoded(index):
        return index.object_count
    return len({object_path(index, number) for number in range(index.object_count)})


def check_objects(index: _core.Index, remedy: str) -> None:
    """Compares the objects of an index in a store with lists of the store; nothing on a disk.

    Raises:
        FailedPreconditionError: names the first that changed, or is not there.
    """
    if _places.is_local(folder_of(index)):
        return
    with _places.remembering():
        paths = [object_path(index, number) for number in range(index.object_count)]
        _places.look_ahead(paths)
        for number, path in enumerate(paths):
            _, size, version = index.object(number)
            try:
                found = _places.stat(path)
            except OSError as error:
                raise FailedPreconditionError(
                    f"object {path}: {unread_reason(error)}; {remedy}"
                ) from error
            sizes = (found.st_size, size) if not is_decoded(index) else (0, 0)
            versions = (found.st_mtime_ns, version)
            if sizes[0] != sizes[1] or (all(versions) and versions[0] != versions[1]):
                raise FailedPreconditionError(
                    f"object {path} changed since it was indexed; {remedy}"
                )
