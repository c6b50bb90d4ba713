"""The files behind the objects of an index."""

from __future__ import annotations

import os

from headrace import _core
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
