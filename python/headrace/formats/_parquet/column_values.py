"""The values of a column of a row group, as bytes end to end: what samples and the store hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._arrow_types.fields import plain_type
from headrace.formats._parquet.files import arrow
from headrace.formats._parquet.parquet_column import ParquetColumn

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_BATCH_BYTES = 4 << 20  # decoded at once, about
_BATCH_ROWS_MAX = 65536


@dataclass(frozen=True)
class ColumnValues:
    """Some rows of a column."""

    data: npt.NDArray[Any]  # contiguous
    lengths: npt.NDArray[np.int64]  # of each row, in bytes
    inner: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
    """Of lists of lists, the length of each inner one in entries, and how many each row has."""
    valid: npt.NDArray[np.bool_] | None = None
    """Of an optional column, which rows have a value."""

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """All of them, end to end."""
        return self.data.reshape(-1).view(np.uint8)


def values_of(
    path: str,
    file: pq.ParquetFile,
    group: int,
    column: ParquetColumn,
    advice: Callable[[ParquetColumn, bool], str] = lambda column, inside: "index it again",
) -> Iterator[ColumnValues]:
    """The values of a column, some rows at a time.

    `advice`: what to do about values that are missing, of rows or inside of lists.
    """
    rows = file.metadata.row_group(group).num_rows
    nulls = 0
    inside = False  # of lists
    seen = 0
    for batch in file.iter_batches(
        batch_size=_batch_rows(file, group, column),
        row_groups=[group],
        columns=[column.path],
        use_threads=False,
    ):
        array = batch.column(batch.schema.get_field_index(column.name))
        seen += len(array)
        lists = valid = None
        if column.has_stand_in:
            array, valid = _with_stand_in(path, array, column)
        if column.is_nested:
            absent, array = _without_wrappers(array, None)
            lists, array = array, array.flatten()
            nulls += absent + lists.null_count
            inside = nulls == 0
        absent, array = _without_wrappers(array, column)
        nulls += absent
        if nulls == 0:
            inside = inside or array.null_count == 0
            nulls += _nulls_in(array)
        if nulls == 0:
            if column.lists:
                values = _tensor_values(path, group, seen - len(array), array, column)
            elif lists is None:
                values = _values(array, column)
            else:
                values = _inner_values(lists, array, column)
            yield values if valid is None else replace(values, valid=valid)
    if nulls:
        raise InvalidArgumentError(
            f"indexing {path}: row group {group}: column {column.path!r} has no value (null) in "
            f"{nulls:,} of {'its lists' if inside else f'{rows:,} rows'} or more; "
            f"{advice(column, inside)}"
        )
    if seen != rows:
        raise DataLossError(
            f"indexing {path}: row group {group}: column {column.path!r} has {seen:,} rows, the "
            f"file says {rows:,}; copy or write it again"
        )


def _with_stand_in(
    path: str, array: pa.Array, column: ParquetColumn
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The values, with those that are missing replaced; which rows have one."""
    pa = arrow()
    _, array = _without_wrappers(array, None)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(array.type):
        array = array.field(array.type.get_field_index(str(column.child)))
        valid &= array.is_valid().to_numpy(zero_copy_only=False)
    if valid.all():
        return array, valid
    if pa.types.is_fixed_size_binary(array.type) or str(array.type) == "binary_view":
        array = array.cast(pa.large_binary())
    elif str(array.type) == "string_view":
        array = array.cast(pa.large_string())
    value = column.stand_in
    if column.kind != "text" and column.dtype is None and isinstance(value, str):
        value = value.encode()
    try:
        is_whole = column.dtype is not None and np.dtype(column.dtype).kind in "iu"
        if value is None or (is_whole and not column.shape and type(value) is not int):
            raise TypeError(f"{value!r:.80} is no such value")
        one = pa.array([_as_stored(value, array.type, column)], array.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"indexing {path}: fill={{{column.name!r}: {column.stand_in!r:.80}}}: the column holds "
            f"{column.described()}: {str(error).splitlines()[0]:.200}; give a value that it can "
            f"hold, such as fill={{{column.name!r}: {column.zero!r:.200}}}"
        ) from error
    rows = np.where(valid, np.arange(len(array)), len(array))
    return pa.concat_arrays([array, one]).take(pa.array(rows)), valid


def _as_stored(value: Any, kind: pa.DataType, column: ParquetColumn) -> Any:
    """A value of `fill=` as the column's type has it: flat, where an array lies so in one list."""
    types = arrow().types
    if None in column.shape or len(column.shape) < 2 or not types.is_fixed_size_list(kind):
        return value
    if types.is_nested(kind.value_type) or np.shape(value) != column.shape:
        return value
    order = column.permutation or range(len(column.shape))
    return np.asarray(value).transpose(list(order)).ravel().tolist()


def _batch_rows(file: pq.ParquetFile, group: int, column: ParquetColumn) -> int:
    """Rows that decode to about _BATCH_BYTES.

    Where values differ in length, with those of all columns: what pyarrow says of one alone ends
    the process if the file is damaged (footer.py).
    """
    about = file.metadata.row_group(group)
    of_all = about.total_byte_size // max(1, about.num_rows) if column.is_variable else 0
    of_row: int = max(1, of_all, column.entry_bytes)
    return max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES // of_row))


def _without_wrappers(array: pa.Array, column: ParquetColumn | None) -> tuple[int, pa.Array]:
    """The number of nulls, and values without struct, extension and dictionary around them."""
    pa = arrow()
    nulls = 0
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            nulls += array.null_count
            array = array.cast(array.type.value_type)
        elif pa.types.is_struct(array.type) and column is not None:
            nulls += array.null_count
            child = array.type.get_field_index(str(column.child))
            array = array.field(child)
            if nulls == 0:
                continue
            return nulls, array
        else:
            return nulls, array


def _nulls_in(array: pa.Array) -> int:
    """Nulls of an array and, if there are none, of what its lists hold."""
    pa = arrow()
    while True:
        nulls = int(array.null_count)
        types = pa.types
        is_list = types.is_list(array.type) or types.is_large_list(array.type)
        if nulls or not (is_list or types.is_fixed_size_list(array.type)):
            return nulls
        array = array.flatten()
        if isinstance(array, pa.ExtensionArray):
            array = array.storage


def _values(array: pa.Array, column: ParquetColumn) -> ColumnValues:
    pa = arrow()
    if column.kind != "array":
        return _of_binary(array)
    if column.is_variable:
        lengths = _lengths_of(array) * column.entry_bytes
        array = array.flatten()
    else:
        lengths = np.full(len(array), column.entry_bytes, np.int64)
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_fixed_size_list(array.type):
            array = array.flatten()
        elif pa.types.is_dictionary(array.type):
            array = array.cast(plain_type(array.type))
        else:
            break
    if pa.types.is_temporal(array.type):
        array = array.view(f"int{array.type.bit_width}")
    data = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    data = data.astype(str(column.dtype), copy=False)
    return ColumnValues(_in_order(data, column), lengths)


def _tensor_values(
    path: str, group: int, first: int, array: pa.Array, column: ParquetColumn
) -> ColumnValues:
    """Of arrays that are stored as lists, which must have the lengths that their type says."""
    rows = len(array)
    bounds = np.arange(rows + 1, dtype=np.int64)  # of the rows, in entries of this level
    counts = bounds[1:]
    for level, expected in enumerate(column.lists):
        lengths = _lengths_of(array)
        wrong = np.flatnonzero(lengths != expected) if expected is not None else lengths[:0]
        if wrong.size:
            row = int(np.searchsorted(bounds, wrong[0], "right")) - 1
            raise InvalidArgumentError(
                f"indexing {path}: row group {group}: column {column.name!r}: row {first + row:,} "
                f"has {lengths[wrong[0]]:,} entries in dimension {level}, its type says "
                f"{expected:,}; write it with the type that it has, or leave it out: columns=(...)"
            )
        if level == 0:
            counts = lengths
        bounds = np.append(0, np.cumsum(lengths))[bounds]
        array = _plain(array.flatten())
    inside = _values(array, replace(column, shape=(), lists=()))
    if column.is_variable:
        return ColumnValues(inside.data, counts * column.entry_bytes)
    return ColumnValues(inside.data, np.full(rows, column.entry_bytes, np.int64))


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, arrow().ExtensionArray) else array


def _in_order(data: npt.NDArray[Any], column: ParquetColumn) -> npt.NDArray[Any]:
    """The numbers of arrays whose dimensions are stored in another order."""
    if column.permutation is None:
        return data
    stored = [0] * len(column.permutation)
    for dimension, size in zip(column.permutation, column.shape, strict=True):
        stored[dimension] = size or 0
    axes = [0, *(1 + dimension for dimension in column.permutation)]
    return np.ascontiguousarray(data.reshape(-1, *stored).transpose(axes)).reshape(-1)


def _inner_values(lists: pa.Array, entries: pa.Array, column: ParquetColumn) -> ColumnValues:
    """Of rows that are lists; `entries`: what all of them hold."""
    inside = _values(entries, column)
    counts = _lengths_of(lists)
    ends = np.append(0, np.cumsum(inside.lengths))  # of the inner lists, in bytes
    of_rows = np.diff(ends[np.append(0, np.cumsum(counts))])
    return ColumnValues(inside.data, of_rows, (inside.lengths // column.entry_bytes, counts))


def _lengths_of(lists: pa.Array) -> npt.NDArray[np.int64]:
    ends: npt.NDArray[np.int64] = np.asarray(lists.offsets.to_numpy(), np.int64)
    return ends[1:] - ends[:-1]


def _of_binary(array: pa.Array) -> ColumnValues:
    """Bytes or text: the buffer that has them, and its offsets."""
    pa = arrow()
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        (_, data) = array.buffers()
        at = array.offset * width
        taken = np.frombuffer(data, np.uint8)[at : at + len(array) * width]
        return ColumnValues(taken, np.full(len(array), width, np.int64))
    if str(array.type) in ("string_view", "binary_view"):
        array = array.cast(pa.large_binary())
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    (_, offsets, data) = array.buffers()
    if len(array) == 0 or offsets is None:
        return ColumnValues(np.empty(0, np.uint8), np.zeros(len(array), np.int64))
    ends = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    ends = ends[array.offset : array.offset + len(array) + 1].astype(np.int64)
    everything = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ColumnValues(everything[ends[0] : ends[-1]], np.diff(ends))
