"""The headers that arrays in shards begin with: dtype and shape, in one of several layouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.formats._shards.source import I64, U8


class Parsed(NamedTuple):
    """The headers of some values."""

    ranks: I64
    codes: I64
    """Of the dtypes."""
    shapes: NDArray[np.uint64]
    """[values, rank]; of another rank: any numbers."""
    lengths: I64
    """Bytes of each header."""


class ArrayHeader(ABC):
    """A layout. `dtypes` has the name of each code."""

    dtypes: Mapping[int, str]

    @abstractmethod
    def width(self, rank: int) -> int:
        """The most bytes that a header of so many dimensions has."""

    @abstractmethod
    def rank(self, row: U8) -> int:
        """The number of dimensions, from `width(0)` bytes."""

    @abstractmethod
    def parse(self, rows: U8, rank: int) -> Parsed:
        """`rows`: [values, width(rank)], the first bytes of each value."""


class MdsHeader(ArrayHeader):
    """The dtype unless it is known, one byte; rank and width of the numbers; the shape."""

    dtypes: Mapping[int, str] = MappingProxyType(
        {
            8: "uint8",
            9: "int8",
            16: "uint16",
            17: "int16",
            18: "float16",
            32: "uint32",
            33: "int32",
            34: "float32",
            64: "uint64",
            65: "int64",
            66: "float64",
        }
    )

    def __init__(self, dtype: str | None = None) -> None:
        """`dtype`: of all values, if the column says it."""
        self._known = {name: code for code, name in self.dtypes.items()}.get(dtype or "")
        self._at = 0 if self._known is not None else 1

    def width(self, rank: int) -> int:
        return self._at + 1 + 8 * rank

    def rank(self, row: U8) -> int:
        return int(row[self._at]) >> 2

    def parse(self, rows: U8, rank: int) -> Parsed:
        at = self._at
        kinds = rows[:, at].astype(np.int64)
        codes = rows[:, 0].astype(np.int64)
        if self._known is not None:
            codes = np.full(len(rows), self._known, np.int64)
        shapes = np.zeros((len(rows), rank), np.uint64)
        lengths = at + 1 + rank * (1 << (kinds & 3))
        for power in range(4):
            chosen = np.flatnonzero((kinds & 3) == power)
            numbers = np.ascontiguousarray(rows[chosen, at + 1 : at + 1 + (rank << power)])
            if rank:
                shapes[chosen] = numbers.view(f"<u{1 << power}")
        return Parsed(kinds >> 2, codes, shapes, lengths)


class LitDataHeader(ArrayHeader):
    """The dtype, the rank and the shape, four bytes each."""

    def __init__(self, dtypes: Sequence[str], order: str) -> None:
        """`dtypes`: by code. `order`: ">" of tensors, "<" of arrays of NumPy."""
        self.dtypes = dict(enumerate(dtypes))
        self._number = f"{order}u4"
        # Several codes may be one dtype; the others are themselves.
        self._codes = np.array([dtypes.index(name) for name in dtypes], np.int64)

    def width(self, rank: int) -> int:
        return 8 + 4 * rank

    def rank(self, row: U8) -> int:
        return int(row.view(self._number)[1])

    def parse(self, rows: U8, rank: int) -> Parsed:
        numbers = rows.view(self._number).astype(np.int64)
        lengths = np.full(len(rows), self.width(rank), np.int64)
        known = numbers[:, 0] < len(self._codes)
        codes = np.where(known, self._codes[np.where(known, numbers[:, 0], 0)], numbers[:, 0])
        return Parsed(numbers[:, 1], codes, numbers[:, 2:].astype(np.uint64), lengths)
