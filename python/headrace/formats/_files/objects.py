"""The files behind the objects of an index."""

from __future__ import annotations

import os

import numpy as np

from headrace import _core
from headrace.formats._files.roots import DECODED, ROW_GROUPS
from headrace.formats._indexing.recorded import file_state

_RANGES = 8  # of a file: then a store reads it as ranges of a large file


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


def files_as_stored(index: _core.Index) -> _core.Index:
    """Describes the files of a decoded dataset as they are stored: ranges of their bytes."""
    import tempfile  # They take long to import.

    from headrace.formats._builder import Builder

    paths = sorted({object_path(index, number) for number in range(index.object_count)})
    states = [file_state(path) for path in paths]
    sizes = np.array([size for _, size, _ in states], np.int64)
    bounds = sizes[:, None] * np.arange(_RANGES + 1) // _RANGES
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        where = os.path.join(folder, "files.hri")
        with Builder(where, root=folder_of(index)) as builder:
            builder.add_field("data", "bytes")
            builder.add_files(paths, sizes.tolist(), [mtime for _, _, mtime in states])
            files = np.repeat(np.arange(len(paths)), _RANGES)
            builder.add_extents("data", files, bounds[:, :-1].ravel(), np.diff(bounds).ravel())
        return _core.Index.open(where)  # It stays mapped.
