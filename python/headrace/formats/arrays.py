"""Arrays whose rows are samples: .npy, .npz, and raw files of records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headrace import _core, _places
from headrace._arguments import integer, shown
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format
from headrace.formats._fields.order import FieldType, data_first
from headrace.formats._files.npy import check_native, read_npy_header
from headrace.formats._files.npz import npz_members
from headrace.formats._files.patterns import expand
from headrace.formats._files.reading import file_reader

_ROWS_AT_ONCE = 2**20
_BY_PLACE = re.compile(r"arr_\d+")  # names that numpy.savez gives
_INLINE_READ_BYTES = 8 * 2**20  # at once
_INLINE_BYTES_MAX = 16  # of a row of a .npz member that the index holds

Raw = tuple[str, str] | tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True)
class StridedColumn:
    """Where the rows of one field lie in a file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    stride: int
    count: int
    is_small: bool = False  # an array of its own with rows of few bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=object))


class _Rows(Format):
    """The common part: columns of files become fields."""

    inline: tuple[str, ...] = ()
    """Fields that the index holds: labels. Indexing reads them."""

    def columns(self, path: str) -> list[StridedColumn]:
        """The fields of a file."""
        raise NotImplementedError

    def fill(self, path: str, builder: Builder) -> None:
        paths = expand(path)
        first = self.columns(paths[0])
        self._add_fields(paths[0], first, builder)

        def describe(file_path: str, part: Builder) -> None:
            columns = self.columns(file_path)
            if _types(columns) != _types(first):
                raise InvalidArgumentError(
                    f"indexing {file_path}: its fields are {_types(columns)}, those of "
                    f"{paths[0]} {_types(first)}; open files of the same fields together"
                )
            number = part.add_file(file_path)
            for column in columns:
                _add_rows(file_path, number, column, self._is_inline(column), part)

        builder.add_parts(paths, describe)

    def _is_inline(self, column: StridedColumn) -> bool:
        return column.name in self.inline or column.is_small

    def _add_fields(self, path: str, columns: list[StridedColumn], builder: Builder) -> None:
        names = [column.name for column in columns]
        for name in self.inline:
            if name not in names:
                raise InvalidArgumentError(
                    f"indexing {path}: inline={name!r}: its fields are {', '.join(names)}; name "
                    "one of these"
                )
        for column in columns:
            if column.row_bytes == 0:
                raise InvalidArgumentError(
                    f"indexing {path}: a row of {column.name!r} has shape {list(column.shape)}: no "
                    "bytes; leave it out of the file"
                )
            builder.add_field(
                column.name,
                "array",
                column.dtype,
                column.shape,
                inline=self._is_inline(column),
            )


@dataclass(frozen=True, kw_only=True)
class Arrays(_Rows):
    """.npy and uncompressed .npz files, whose rows are samples: `headrace docs formats/arrays`.

    The first dimension of a .npy counts the samples. If its dtype has fields, each is a field of a
    sample; otherwise there is one, `value`. Each array of a .npz is a field.
    """

    name: ClassVar[str] = "arrays"
    opens: ClassVar[str] = "a .npy or .npz file of rows"

    inline: tuple[str, ...] = ()

    def recognises(self, path: str) -> bool:
        first = expand(path)[0]
        return first.endswith((".npy", ".npz")) and _places.is_file(first)

    def takes(self, name: str) -> bool:
        return name.endswith((".npy", ".npz"))

    def columns(self, path: str) -> list[StridedColumn]:
        if path.endswith(".npz"):
            columns = npz_columns(path)
            counts = {column.name: column.count for column in columns}
            if len(set(counts.values())) > 1:
                raise InvalidArgumentError(
                    f"indexing {path}: its arrays have different numbers of rows: {counts}; save "
                    "those of equal length in a file of their own"
                )
            return columns
        with file_reader(path) as (read, size):
            header = read_npy_header(read, size, path)
        return _columns_of(path, "value", header.dtype, header.shape, header.data_offset)

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        names = [field.name for field in fields]
        if not index.object(0)[0].endswith(".npz") or all(map(_BY_PLACE.fullmatch, names)):
            return names
        return data_first(fields)  # Arrays of a .npz are taken by their names.


@dataclass(frozen=True, kw_only=True)
class Records(_Rows):
    """Raw files of records of equal size, as CIFAR's: `headrace docs formats/arrays`.

    >>> hr.open("train.bin", format=Records(dtype=(("label", "u1"), ("image", "u1", (3, 32, 32)))))
    """

    name: ClassVar[str] = "records"
    opens: ClassVar[str] = "raw files of records (with format=)"
    chooses: ClassVar[tuple[str, ...]] = ("dtype",)

    dtype: str | tuple[Raw, ...] = ()
    """As in NumPy: of the fields of a record, end to end; or of one number, the field `value`."""
    offset: int = 0
    """Bytes before the first record."""
    inline: tuple[str, ...] = ()

    def recognises(self, path: str) -> bool:
        return False

    def takes(self, name: str) -> bool:
        return bool(self.dtype) and name.endswith(".bin")

    def element(self) -> np.dtype[Any]:
        """The dtype of a record."""
        wanted: Any = self.dtype
        if not isinstance(wanted, str):
            wanted = [tuple(tuple(x) if isinstance(x, list) else x for x in f) for f in wanted]
        try:
            dtype: np.dtype[Any] = np.dtype(wanted)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"records dtype: got {shown(self.dtype)}, must be one of NumPy's: {error}"
            ) from error
        if dtype.itemsize == 0:
            raise InvalidArgumentError(
                "records: a raw file does not say its dtype; give it, as hr.formats.Records("
                "dtype=(('label', 'uint8'), ('image', 'uint8', (3, 32, 32))))"
            )
        check_native(dtype, "records dtype")
        return dtype

    def columns(self, path: str) -> list[StridedColumn]:
        element = self.element()
        integer("records offset", self.offset, 0, 2**62)
        with file_reader(path) as (_, size):
            pass
        left = size - self.offset
        if self.offset < 0 or left < 0 or left % element.itemsize:
            raise DataLossError(
                f"indexing {path}: it has {size} bytes; behind byte {self.offset} these are not "
                f"whole records of {element.itemsize} bytes: it ends inside one at byte "
                f"{max(0, size - left % element.itemsize)}; copy or write the file again, or give "
                "another dtype or offset"
            )
        return _columns_of(path, "value", element, (left // element.itemsize,), self.offset)


def _types(columns: list[StridedColumn]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(column.name, column.dtype.name, column.shape) for column in columns]


def _columns_of(
    path: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int
) -> list[StridedColumn]:
    """The columns of an array: one, or one for each field of its dtype."""
    if not shape:
        raise InvalidArgumentError(
            f"indexing {path}: it holds one number, no rows; save an array whose first dimension "
            "counts the samples"
        )
    if dtype.fields is None:
        row = StridedColumn(name, dtype, shape[1:], offset, 0, shape[0])
        return [StridedColumn(name, dtype, shape[1:], offset, row.row_bytes, shape[0])]
    if len(shape) != 1:
        raise InvalidArgumentError(
            f"indexing {path}: an array of records must have one dimension, this one has "
            f"{list(shape)}"
        )
    columns = []
    for part, (inside, at, *_) in dtype.fields.items():
        base, inner = inside.subdtype if inside.subdtype is not None else (inside, ())
        if base.fields is not None:
            raise InvalidArgumentError(
                f"indexing {path}: field {part!r} has fields of its own; save them side by side"
            )
        columns.append(StridedColumn(part, base, inner, offset + at, dtype.itemsize, shape[0]))
    return columns


def npz_columns(path: str) -> list[StridedColumn]:
    """The columns of the arrays of an uncompressed .npz."""
    columns = []
    for name, header, offset in npz_members(path):
        (column,) = _columns_of(
            f"{path} ({name})", name, header.dtype, header.shape, offset + header.data_offset
        )[:1]
        if header.dtype.fields is not None:
            raise InvalidArgumentError(
                f"indexing {path}: array {name!r} holds records; save each field as an array"
            )
        small = column.row_bytes <= _INLINE_BYTES_MAX
        columns.append(
            StridedColumn(
                name, column.dtype, column.shape, column.offset, column.stride, column.count, small
            )
        )
    return columns


def _add_rows(
    path: str, number: int, column: StridedColumn, is_inline: bool, builder: Builder
) -> None:
    if not is_inline:
        for first in range(0, column.count, _ROWS_AT_ONCE):
            rows = np.arange(first, min(column.count, first + _ROWS_AT_ONCE), dtype=np.uint64)
            offsets = np.uint64(column.offset) + rows * np.uint64(column.stride)
            builder.add_extents(column.name, number, offsets, column.row_bytes)
            builder.tell(first + len(rows))
        return
    if column.count == 0:
        return
    at_once = max(1, min(_ROWS_AT_ONCE, _INLINE_READ_BYTES // max(1, column.stride)))
    for first in range(0, column.count, at_once):
        builder.add_values(column.name, _values(path, column, first, at_once))


def _values(path: str, column: StridedColumn, first: int, rows: int) -> npt.NDArray[Any]:
    """Rows of a column: those from `first` on, so many or those that are left."""
    rows = min(rows, column.count - first)
    begin = column.offset + first * column.stride
    size = (rows - 1) * column.stride + column.row_bytes
    if _places.is_local(path):
        data: Any = np.memmap(_places.local_path(path), np.uint8, "r", begin, (size,))
    else:
        with file_reader(path) as (read, _):
            data = read(begin, size)
    strides = (column.stride, *_inner_strides(column))
    return np.ndarray((rows, *column.shape), column.dtype, data, 0, strides)


def _inner_strides(column: StridedColumn) -> tuple[int, ...]:
    strides: list[int] = []
    step = column.dtype.itemsize
    for size in reversed(column.shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)
