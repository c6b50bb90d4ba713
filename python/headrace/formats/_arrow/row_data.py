"""Rows of one field on their way to the builder: extents, numbers, or values of any length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.formats._base.builder import Builder
from headrace.formats._base.field import U64

RowNumbers = npt.NDArray[np.int64]
"""Numbers of rows."""


@dataclass(frozen=True)
class Extents:
    """Ranges of bytes in files."""

    files: U64
    offsets: U64
    sizes: U64
    decoded: U64 | None = None
    """Bytes of the values that sounds decode to, if they are known."""

    def take(self, rows: RowNumbers) -> Extents:
        """These rows, in this order."""
        decoded = None if self.decoded is None else self.decoded[rows]
        return Extents(self.files[rows], self.offsets[rows], self.sizes[rows], decoded)

    def add(self, name: str, builder: Builder) -> None:
        """Passes the rows on."""
        builder.add_extents(name, self.files, self.offsets, self.sizes, decoded=self.decoded)

    @staticmethod
    def joined(parts: Sequence[Extents]) -> Extents:
        """The rows of all parts."""
        decoded = [part.decoded for part in parts if part.decoded is not None]
        return Extents(
            np.concatenate([part.files for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate(decoded) if len(decoded) == len(parts) else None,
        )


@dataclass(frozen=True)
class Values:
    """Numbers or arrays of one shape, for the index."""

    values: npt.NDArray[Any]

    def take(self, rows: RowNumbers) -> Values:
        """These rows, in this order."""
        return Values(self.values[rows])

    def add(self, name: str, builder: Builder) -> None:
        """Passes the rows on."""
        builder.add_values(name, self.values)

    @staticmethod
    def joined(parts: Sequence[Values]) -> Values:
        """The rows of all parts."""
        return Values(np.concatenate([part.values for part in parts]))


@dataclass(frozen=True)
class Ragged:
    """Values that differ in length, for the index: end to end, and the length of each."""

    values: npt.NDArray[Any]
    lengths: RowNumbers

    def take(self, rows: RowNumbers) -> Ragged:
        """These rows, in this order."""
        starts = (np.cumsum(self.lengths) - self.lengths)[rows]
        lengths = self.lengths[rows]
        first = np.cumsum(lengths) - lengths
        entries = np.arange(int(lengths.sum())) + np.repeat(starts - first, lengths)
        return Ragged(self.values[entries], lengths)

    def add(self, name: str, builder: Builder) -> None:
        """Passes the rows on."""
        builder.add_ragged(name, self.values, self.lengths)

    @staticmethod
    def joined(parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts."""
        return Ragged(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )


@dataclass(frozen=True)
class NestedRows:
    """Lists of lists: the values of each row, and how they are divided."""

    rows: Extents | Ragged
    lengths: Ragged
    """Of the inner lists of each row."""

    def take(self, rows: RowNumbers) -> NestedRows:
        """These rows, in this order."""
        return NestedRows(self.rows.take(rows), self.lengths.take(rows))

    def add(self, name: str, builder: Builder) -> None:
        """Passes the rows on."""
        inner = self.lengths.values, self.lengths.lengths
        rows = self.rows
        if isinstance(rows, Extents):
            builder.add_extents(name, rows.files, rows.offsets, rows.sizes, inner=inner)
        else:
            builder.add_ragged(name, rows.values, rows.lengths, inner=inner)

    @staticmethod
    def joined(parts: Sequence[NestedRows]) -> NestedRows:
        """The rows of all parts."""
        rows: Any = joined([part.rows for part in parts])
        return NestedRows(rows, Ragged.joined([part.lengths for part in parts]))


RowData = Extents | Values | Ragged | NestedRows


def joined(parts: Sequence[RowData]) -> RowData:
    """The rows of all parts, which are of one type."""
    made: RowData = type(parts[0]).joined(parts)  # type: ignore[arg-type]
    return made
