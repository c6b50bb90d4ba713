"""The files of a dataset that is decoded as a whole, as a dataset of their own."""

from __future__ import annotations

import os
import tempfile

import numpy as np

from headrace import _core, _places
from headrace.formats._base.builder import Builder
from headrace.formats._files.objects import folder_of, object_path
from headrace.formats._indexing.recorded import file_state

_RANGES = 8  # of a file: then a store reads it as ranges of a large file


def files_as_stored(index: _core.Index) -> _core.Index:
    """Describes the files as they are stored: ranges of their bytes."""
    paths = sorted({object_path(index, number) for number in range(index.object_count)})
    with _places.remembering():
        _places.look_ahead(paths)
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
