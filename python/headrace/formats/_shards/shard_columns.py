"""What the columns of shards become: fields of the index, with extents or values."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._files.npy import NAMES
from headrace.formats._shards.array_headers import ArrayHeader, Parsed
from headrace.formats._shards.source import I64, Source

_DIGITS_MAX = 64  # bytes of a number that is stored as text
_RANK_MAX = 64
_WHOLE = re.compile(rb"[+-]?[0-9]+")


class ShardValues:
    """The values of one column in some samples of a shard."""

    def __init__(self, source: Source, file: int, first: int, starts: I64, sizes: I64) -> None:
        """`file`: its number in the index. `first`: the number of the first sample in the shard."""
        self.source = source
        self.file = file
        self.first = first
        self.starts = starts
        self.sizes = sizes

    def damaged(self, position: int, what: str) -> DataLossError:
        """An error about the value at this position."""
        return self.source.damaged(
            int(self.starts[position]), f"{what} in sample {self.first + position}"
        )


class ShardColumn(ABC):
    """A field, and how its values are found.

    `look()` is called with all values before `declare()` if `looks`, with those behind the first
    sample's shard on several threads; then `add()` with all values, on several threads.
    """

    looks = False

    def __init__(self, name: str) -> None:
        self.name = name

    def look(self, values: ShardValues) -> None:
        """Finds out what all values have in common."""
        raise NotImplementedError

    @abstractmethod
    def declare(self, builder: Builder) -> None:
        """Adds the field."""

    @abstractmethod
    def add(self, values: ShardValues, builder: Builder) -> None:
        """Adds samples."""


class ExtentColumn(ShardColumn):
    """Bytes, text or images, in the shard."""

    def __init__(self, name: str, kind: Literal["bytes", "text", "image"]) -> None:
        super().__init__(name)
        self._kind = kind

    def declare(self, builder: Builder) -> None:
        builder.add_field(self.name, self._kind)

    def add(self, values: ShardValues, builder: Builder) -> None:
        builder.add_extents(self.name, values.file, values.starts, values.sizes)


class ArrayColumn(ShardColumn):
    """Arrays of one shape, or lists of them (the first dimension is None), in the shard."""

    def __init__(self, name: str, dtype: str, shape: Sequence[int | None]) -> None:
        super().__init__(name)
        self._dtype = np.dtype(dtype)
        self._shape = tuple(shape)
        is_list = bool(self._shape) and self._shape[0] is None
        inner = [size or 0 for size in self._shape[1 if is_list else 0 :]]
        self._entry = self._dtype.itemsize * int(np.prod(inner, dtype=object))
        self._is_list = is_list

    def declare(self, builder: Builder) -> None:
        builder.add_field(self.name, "array", self._dtype, self._shape)

    def add(self, values: ShardValues, builder: Builder) -> None:
        if self._is_list:
            wrong = np.flatnonzero(values.sizes % self._entry)
        else:
            wrong = np.flatnonzero(values.sizes != self._entry)
        if wrong.size:
            which = int(wrong[0])
            times = "a multiple of " if self._is_list else ""
            raise values.damaged(
                which,
                f"{self.name!r} has {int(values.sizes[which])} bytes, {self._dtype} "
                f"{_shown(self._shape)} needs {times}{self._entry},",
            )
        builder.add_extents(self.name, values.file, values.starts, values.sizes)


class NumberColumn(ShardColumn):
    """One number a sample, which the index holds."""

    def __init__(self, name: str, stored: str, held: str | None = None) -> None:
        """`stored`: its dtype in the shard; `held`: that of the index, if it differs."""
        super().__init__(name)
        self._stored = np.dtype(stored)
        self._held = np.dtype(held or stored)

    def declare(self, builder: Builder) -> None:
        builder.add_field(self.name, "array", self._held, inline=True)

    def add(self, values: ShardValues, builder: Builder) -> None:
        width = self._stored.itemsize
        wrong = np.flatnonzero(values.sizes != width)
        if wrong.size:
            which = int(wrong[0])
            raise values.damaged(
                which,
                f"{self.name!r} has {int(values.sizes[which])} bytes, {self._stored} has {width},",
            )
        numbers = values.source.gather(values.starts, width).view(self._stored)[:, 0]
        if self._stored.kind == "u" and self._held.kind == "i":
            wrong = np.flatnonzero(numbers > np.iinfo(self._held).max)
            if wrong.size:
                which = int(wrong[0])
                raise InvalidArgumentError(
                    f"indexing {values.source.path}: byte {int(values.starts[which])}: "
                    f"{self.name!r} is {int(numbers[which])} in sample {values.first + which}; the "
                    f"index holds {self._held} for {self._stored}; keep its bytes with "
                    f"raw=({self.name!r},)"
                )
        builder.add_values(self.name, numbers.astype(self._held))


class BoolColumn(NumberColumn):
    """One byte a sample, 0 or not."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "uint8", "bool")


class DigitColumn(ShardColumn):
    """One number a sample, stored as text, which the index holds."""

    def __init__(self, name: str, dtype: Literal["int64", "float64"]) -> None:
        super().__init__(name)
        self._dtype = np.dtype(dtype)

    def declare(self, builder: Builder) -> None:
        builder.add_field(self.name, "array", self._dtype, inline=True)

    def add(self, values: ShardValues, builder: Builder) -> None:
        longest = int(values.sizes.max(initial=0))
        if longest > _DIGITS_MAX:
            raise values.damaged(
                int(np.argmax(values.sizes)), f"{self.name!r} has {longest} bytes, no number,"
            )
        rows = values.source.gather(values.starts, longest)
        numbers = np.empty(len(rows), self._dtype)
        for position, (row, size) in enumerate(zip(rows, values.sizes.tolist(), strict=True)):
            text = row[:size].tobytes()
            try:
                numbers[position] = self._number(text)
            except (ValueError, OverflowError) as error:
                raise InvalidArgumentError(
                    f"indexing {values.source.path}: byte {int(values.starts[position])}: "
                    f"{self.name!r} is {text!r} in sample {values.first + position}, no "
                    f"{self._dtype}; keep its bytes with raw=({self.name!r},)"
                ) from error
        builder.add_values(self.name, numbers)

    def _number(self, text: bytes) -> int | float:
        if self._dtype.kind == "f":
            return float(text)
        if not _WHOLE.fullmatch(text):
            raise ValueError
        return int(text)


class HeadedColumn(ShardColumn):
    """Arrays that each begin with a header: their dtype and shape.

    One shape in all samples makes it an array, other first dimensions a list of arrays.
    """

    looks = True

    def __init__(self, name: str, header: ArrayHeader) -> None:
        super().__init__(name)
        self._header = header
        self._first: _FirstHeader | None = None
        self._is_list = False

    def look(self, values: ShardValues) -> None:
        if self._first is None:
            self._first = self._first_of(values)
        shapes = self._parsed(values, self._first).shapes
        inner = self._first.shape[1:]
        different = np.flatnonzero((shapes[:, 1:] != np.array(inner, np.uint64)).any(axis=1))
        if different.size:
            which = int(different[0])
            raise self._refused(
                values,
                which,
                f"has shape {list(map(int, shapes[which]))}, in the first sample "
                f"{list(self._first.shape)}; only the first dimension may differ",
            )
        if self._first.shape:
            first = self._first.shape[0]
            if first == 0 or (shapes[:, 0] != np.uint64(first)).any():
                self._is_list = True
        if 0 in inner:
            raise self._refused(values, 0, f"has shape {list(self._first.shape)}: no bytes")

    def _first_of(self, values: ShardValues) -> _FirstHeader:
        """What the first sample has."""
        begin = values.source.gather(values.starts[:1], self._header.width(0))
        rank = self._header.rank(begin[0])
        if rank > _RANK_MAX:
            raise values.damaged(0, f"{self.name!r} has {rank} dimensions, no array has these,")
        rows = values.source.gather(values.starts[:1], self._header.width(rank))
        parsed = self._header.parse(rows, rank)
        code = int(parsed.codes[0])
        name = self._header.dtypes.get(code)
        if name is None:
            raise values.damaged(0, f"{self.name!r} has a dtype of the unknown code {code}")
        if name not in NAMES:
            raise self._refused(values, 0, f"holds {name}, batches hold {', '.join(NAMES)}")
        return _FirstHeader(code, np.dtype(name), tuple(map(int, parsed.shapes[0])))

    def _parsed(self, values: ShardValues, first: _FirstHeader) -> Parsed:
        """The headers, which must be of the first sample's dtype and rank, and fit the values."""
        rank = len(first.shape)
        parsed = self._header.parse(
            values.source.gather(values.starts, self._header.width(rank)), rank
        )
        wrong = np.flatnonzero((parsed.codes != first.code) | (parsed.ranks != rank))
        if wrong.size:
            which = int(wrong[0])
            code = int(parsed.codes[which])
            raise self._refused(
                values,
                which,
                f"has {int(parsed.ranks[which])} dimensions of "
                f"{self._header.dtypes.get(code, f'unknown dtype {code}')}, in the first sample "
                f"{rank} of {first.dtype}",
            )
        # Products beyond 2**53 are inexact, and larger than any value.
        counts = np.prod(parsed.shapes.astype(np.float64), axis=1)
        needed = parsed.lengths + first.dtype.itemsize * counts
        wrong = np.flatnonzero(needed != values.sizes)
        if wrong.size:
            which = int(wrong[0])
            raise values.damaged(
                which,
                f"{self.name!r} has {int(values.sizes[which])} bytes, its header says "
                f"{needed[which]:.0f}: shape {list(map(int, parsed.shapes[which]))},",
            )
        return parsed

    def declare(self, builder: Builder) -> None:
        assert self._first is not None
        shape: tuple[int | None, ...] = self._first.shape
        if self._is_list:
            shape = (None, *shape[1:])
        builder.add_field(self.name, "array", self._first.dtype, shape)

    def add(self, values: ShardValues, builder: Builder) -> None:
        assert self._first is not None
        lengths = self._parsed(values, self._first).lengths
        builder.add_extents(self.name, values.file, values.starts + lengths, values.sizes - lengths)

    def _refused(self, values: ShardValues, position: int, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"indexing {values.source.path}: byte {int(values.starts[position])}: {self.name!r} of "
            f"sample {values.first + position} {what}; keep its bytes with raw=({self.name!r},), "
            "or leave it out with columns="
        )


class _FirstHeader(NamedTuple):
    """The dtype and the shape of the first sample's array."""

    code: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _shown(shape: tuple[int | None, ...]) -> str:
    return str(["any" if size is None else size for size in shape])
