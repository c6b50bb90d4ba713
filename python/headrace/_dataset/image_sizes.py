"""The sizes of a dataset's images, from their first bytes."""

from __future__ import annotations

import weakref
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._dataset.dataset import Dataset
from headrace.errors import HeadraceError

_AT_ONCE = 4096
"""Images that are looked at together."""
_LOOKS_MAX = 64
"""At one image: a JPEG may have so many segments in front of its header."""


class ImageSizes(NamedTuple):
    """Pixels of each image; 0: unknown."""

    widths: NDArray[Any]
    heights: NDArray[Any]


_known: weakref.WeakKeyDictionary[Dataset, dict[str, ImageSizes]] = weakref.WeakKeyDictionary()


def image_sizes(dataset: Dataset, field: str) -> ImageSizes:
    """The sizes of the images of a field. Reads them at the first call for a dataset."""
    known = _known.setdefault(dataset, {})
    if field not in known:
        known[field] = _look(dataset, field)
    return known[field]


def _look(dataset: Dataset, field: str) -> ImageSizes:
    index = dataset.index
    position = [other.name for other in index.fields].index(field)
    count = index.sample_count
    sizes = ImageSizes(np.zeros(count, np.uint32), np.zeros(count, np.uint32))
    with closing(dataset.stored_reader()) as reader:
        for first in range(0, count, _AT_ONCE):
            extents = index.extents(position, first, min(_AT_ONCE, count - first))
            part = slice(first, first + len(extents[0]))
            of_part = ImageSizes(sizes.widths[part], sizes.heights[part])
            try:
                _look_at(reader, extents, of_part)
            except HeadraceError:  # Which of them cannot be read?
                for at in range(len(extents[0])):
                    _look_at_one(reader, extents, at, of_part)
    return sizes


def _look_at_one(reader: _core.StoredReader, extents: Any, at: int, found: ImageSizes) -> None:
    one = slice(at, at + 1)
    try:
        _look_at(
            reader,
            tuple(column[one] for column in extents),
            ImageSizes(found.widths[one], found.heights[one]),
        )
    except HeadraceError:  # Unknown: whoever delivers the sample reports it.
        found.widths[one] = found.heights[one] = 0


def _look_at(reader: _core.StoredReader, extents: Any, found: ImageSizes) -> None:
    """Fills `found`, with the sizes of the images at `extents`."""
    objects, offsets, bytes_of = extents
    left = np.flatnonzero(bytes_of)
    at = np.zeros(len(left), np.uint64)
    for _ in range(_LOOKS_MAX):
        if not len(left):
            return
        wanted = np.minimum(bytes_of[left] - at, np.uint64(_core.header_look_bytes))
        data = np.empty(int(wanted.sum()), np.uint8)
        reader.read_into(objects[left], offsets[left] + at, wanted, data.data)
        widths, heights, further = _core.look_at_headers(data, wanted, at)
        found.widths[left] = widths
        found.heights[left] = heights
        on = (further > at) & (further < bytes_of[left])
        left, at = left[on], further[on]
