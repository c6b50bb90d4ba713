"""Lists of lists, of texts, of bytes: the values lie in the file, the lengths in the index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.formats._arrow.readers import Reader, entries, innermost
from headrace.formats._arrow.record_batch import Chunk
from headrace.formats._arrow.row_data import Extents, NestedRows, Ragged, RowData, RowNumbers
from headrace.formats._arrow_types.fields import Offsets
from headrace.formats._files.nested import LENGTH_MAX, LENGTHS_DTYPE


@dataclass(frozen=True, kw_only=True)
class NestedListReader(Reader):
    """A list in each row, of lists, of texts, of bytes, or of structs that have bytes."""

    outer: Offsets | int
    """The type of the offsets of the rows, or the number of lists that each row has."""
    offsets: Offsets
    """The type of the offsets of the inner lists."""
    stored: str | None = None
    """The type of the numbers; None: text or bytes."""
    widths: tuple[int, ...] = ()
    """The lengths of fixed lists of numbers inside the inner ones, from the outside."""
    part: int | None = None
    """The number of the bytes in a struct of bytes and path."""

    def read(self, name: str, array: Any, chunk: Chunk, picks: RowNumbers | None) -> RowData:
        chunk.refuse_nulls(name, array)
        ends = self._ends(name, array, chunk)
        lists = entries(name, array.values, ends, ends, chunk)
        if self.part is not None:
            lists = lists.field(self.part)
            chunk.refuse_nulls(name, lists, ends - ends[0])
        bounds = chunk.offsets(name, lists, self.offsets)
        lengths = np.diff(bounds)
        if lengths.size and int(lengths.max()) > LENGTH_MAX:
            raise chunk.refused(
                name,
                f"an inner list has {int(lengths.max()):,} entries, at most {LENGTH_MAX:,} can be",
                "leave the column out with columns=(...)",
            )
        # Where no row has a list, nothing has a buffer but the offsets of the rows.
        near = array.buffers()[1] if isinstance(self.outer, str) else lists.buffers()[1]
        rows = self._values(name, lists, bounds[ends - ends[0]], near, chunk)
        inner = NestedRows(rows, Ragged(lengths.astype(LENGTHS_DTYPE), np.diff(ends)))
        return inner if picks is None else inner.take(picks)

    def _ends(self, name: str, array: Any, chunk: Chunk) -> RowNumbers:
        """The ends of the rows, in inner lists."""
        if isinstance(self.outer, str):
            return chunk.offsets(name, array, self.outer)
        count, per_row = len(array), self.outer
        lists = array.values if self.part is None else array.values.field(self.part)
        chunk.check_room(name, 32 * per_row * count, lists.buffers()[1])
        ends: RowNumbers = per_row * (array.offset + np.arange(count + 1, dtype=np.int64))
        return ends

    def _values(
        self, name: str, lists: Any, ends: RowNumbers, near: Any, chunk: Chunk
    ) -> Extents | Ragged:
        """`ends`: of the rows, in entries or bytes of all lists."""
        if self.stored is None:
            return chunk.extents(name, lists.buffers()[2], ends[:-1], np.diff(ends), near)
        values, ends = innermost(name, lists.values, self.widths, ends, chunk)
        data = values.buffers()[1]
        if self.stored == "bool":
            first, count = int(ends[0]), int(ends[-1] - ends[0])
            bits = chunk.bits(name, data, first, count).reshape(-1, *self.widths)
            return Ragged(bits, np.diff(ends) // math.prod(self.widths))
        size = np.dtype(self.stored).itemsize
        return chunk.extents(name, data, ends[:-1] * size, np.diff(ends) * size, near)
