"""A record batch, and reading its memory: bounds are checked, as a file may be damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._arrow.mapped_files import Places
from headrace.formats._arrow.row_data import Extents, RowNumbers
from headrace.formats._base.builder import Builder
from headrace.formats._base.findings import FindingCounts


class NullRowsError(InvalidArgumentError):
    """Rows of a column are null. Whoever knows the options says what to do."""

    inside = False
    """Whether it is values inside of rows."""


@dataclass(frozen=True)
class Chunk:
    """A record batch."""

    batch: Any
    places: Places
    what: str
    """For messages: the file, and where in it."""
    first_row: int
    """Of the whole table."""
    builder: Builder | None = None
    """Takes the files of images that the table only names."""
    own_files: dict[int, str] = field(default_factory=dict)
    """Their paths, by the numbers that the builder gave."""
    undecoded: FindingCounts = field(default_factory=FindingCounts)
    """Takes sounds that headrace does not decode."""

    def damaged(self, column: str, why: str) -> DataLossError:
        """The error for memory that contradicts itself."""
        return DataLossError(
            f"indexing {self.what}: column {column!r}: {why}; copy or write the file again"
        )

    def refused(self, column: str, why: str, remedy: str) -> InvalidArgumentError:
        """The error for values that no field can have."""
        return InvalidArgumentError(f"indexing {self.what}: column {column!r}: {why}; {remedy}")

    def items(
        self, column: str, buffer: Any, dtype: npt.DTypeLike, start: int, count: int
    ) -> npt.NDArray[Any]:
        """Entries [start, start + count) of a buffer of numbers."""
        element = np.dtype(dtype)
        if count == 0:
            return np.empty(0, element)
        size = 0 if buffer is None else buffer.size
        view = None
        if buffer is not None:
            view = self.places.view(buffer, start * element.itemsize, count * element.itemsize)
        if view is None:
            raise self.damaged(
                column,
                f"entries [{start}, {start + count}) of {element.itemsize} bytes do not lie in its "
                f"buffer of {size} bytes",
            )
        return view.view(element)

    def bits(self, column: str, buffer: Any, start: int, count: int) -> npt.NDArray[np.bool_]:
        """Bits [start, start + count) of a buffer."""
        first, last = start // 8, (start + count + 7) // 8
        packed = self.items(column, buffer, np.uint8, first, last - first if count else 0)
        unpacked = np.unpackbits(packed, bitorder="little")[start % 8 : start % 8 + count]
        return unpacked.astype(np.bool_)

    def offsets(self, column: str, array: Any, dtype: str) -> npt.NDArray[np.int64]:
        """The ends of values of any length: one more than there are rows, ascending."""
        if len(array) == 0:
            return np.zeros(1, np.int64)
        stored = self.items(column, array.buffers()[1], dtype, array.offset, len(array) + 1)
        wide = stored.astype(np.int64)
        if wide[0] < 0 or (np.diff(wide) < 0).any():
            raise self.damaged(column, "the offsets of its values do not ascend")
        return wide

    def check_room(self, column: str, bits: int, buffer: Any) -> None:
        """Raises if a buffer is too small for its rows, before memory is taken for them."""
        size = 0 if buffer is None else int(buffer.size)
        if bits > 8 * size:
            raise self.damaged(
                column, f"its rows take {bits // 8} bytes, more than its buffer of {size}"
            )

    def missing(self, column: str, array: Any) -> RowNumbers:
        """The rows that are null."""
        validity = array.buffers()[0]
        if validity is None or len(array) == 0:
            return np.empty(0, np.int64)
        return np.flatnonzero(~self.bits(column, validity, array.offset, len(array)))

    def refuse_nulls(
        self, column: str, array: Any, ends: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Raises if an entry is null. `ends`: of the rows, if the entries are those of lists."""
        missing = self.missing(column, array)
        if missing.size == 0:
            return
        first = int(missing[0])
        if ends is not None:
            first = int(np.searchsorted(ends, first, "right")) - 1
        what = "entries of its lists" if ends is not None else "rows"
        error = NullRowsError(
            f"indexing {self.what}: column {column!r}: {missing.size:,} of {len(array):,} {what} "
            f"are null, the first in row {self.first_row + first:,}"
        )
        error.inside = ends is not None
        raise error

    def extents(
        self,
        column: str,
        buffer: Any,
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        near: Any = None,
    ) -> Extents:
        """Ranges of a buffer, as ranges of its file. `near`: where values without bytes lie."""
        if starts.size and (buffer is None or buffer.size == 0) and near is not None:
            if sizes.any():
                raise self.damaged(column, "its values have no buffer")
            buffer, starts = near, np.zeros_like(starts)
        none = np.empty(0, np.uint64)
        if starts.size == 0:
            return Extents(none, none, none)
        if buffer is None or int((starts + sizes).max()) > buffer.size or int(starts.min()) < 0:
            raise self.damaged(
                column,
                f"its values end at byte {int((starts + sizes).max())} of a buffer of "
                f"{0 if buffer is None else buffer.size} bytes",
            )
        place = self.places.locate(buffer)
        if place is None:
            raise self.refused(
                column,
                "its bytes do not lie in a file as they are (they are in memory, or big-endian)",
                "save the dataset with save_to_disk(), and open that folder",
            )
        file, offset = place
        return Extents(
            np.broadcast_to(np.uint64(file.number), starts.shape),
            (starts + offset).astype(np.uint64),
            sizes.astype(np.uint64),
        )
