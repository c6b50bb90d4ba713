"""Images and sounds whose bytes are files of their own, named by the table."""

from __future__ import annotations

import os
import stat

import numpy as np

from headrace import _places
from headrace.errors import NotFoundError
from headrace.formats._arrow.record_batch import Chunk
from headrace.formats._arrow.row_data import Extents, RowNumbers

_EMBED = (
    "write the bytes into the dataset: ds.save_to_disk() does, and its folder opens; or leave the "
    "column out with columns=(...)"
)


def with_files(
    name: str,
    extents: Extents,
    places: RowNumbers,
    rows: RowNumbers,
    paths: list[str | None],
    chunk: Chunk,
) -> Extents:
    """`extents`, where `places` become whole files; `rows`: their numbers in the record batch."""
    builder = chunk.builder
    assert builder is not None
    sizes, times, names = [], [], []
    for row, path in zip(rows.tolist(), paths, strict=True):
        at = f"row {chunk.first_row + row:,}"
        if path is None:
            raise chunk.refused(
                name,
                f"{at} has neither bytes nor a path",
                "fill or filter such rows, or leave the column out with columns=(...)",
            )
        if "://" in path or not os.path.isabs(path):
            raise chunk.refused(
                name, f"{at} has no bytes, and its path {path!r} is no absolute path", _EMBED
            )
        try:
            status = _places.stat(path)
        except (OSError, ValueError) as error:
            raise NotFoundError(
                f"indexing {chunk.what}: column {name!r}: {at} has no bytes, and its file {path} "
                f"cannot be read: {error}; {_EMBED}"
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise chunk.refused(name, f"{at} has no bytes, and {path} is no file", _EMBED)
        names.append(_places.absolute(path))
        if not names[-1].startswith(builder.root.rstrip("/") + "/"):
            raise chunk.refused(
                name,
                f"{at} has no bytes, and its file {path} does not lie in {builder.root}; the "
                "first rows have bytes",
                _EMBED,
            )
        sizes.append(status.st_size)
        times.append(status.st_mtime_ns)
    first = builder.add_files(names, sizes, times)
    chunk.own_files.update(enumerate(names, first))
    files, offsets, lengths = (
        np.array(column) for column in (extents.files, extents.offsets, extents.sizes)
    )
    files[places] = np.arange(first, first + len(names), dtype=np.uint64)
    offsets[places] = 0
    lengths[places] = sizes
    return Extents(files, offsets, lengths)
