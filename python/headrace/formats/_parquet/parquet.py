"""Parquet files, as Hugging Face's Hub has them: each row is a sample."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from headrace._units import format_bytes
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._builder import Builder, Decodes
from headrace.formats._field import Inner
from headrace.formats._files.images import BEGIN_BYTES, is_image
from headrace.formats._files.patterns import expand
from headrace.formats._files.reading import file_reader
from headrace.formats._format import Sample
from headrace.formats._indexing.in_order import in_order
from headrace.formats._parquet.columns import Column, classes_of, columns_of
from headrace.formats._parquet.files import (
    SUFFIXES,
    arrow,
    files_of,
    is_folder_of_files,
    opened,
    release_unused,
    warn_of_others,
)
from headrace.formats._parquet.footer import Chunks, chunks_of
from headrace.formats._parquet.pages import are_plain, offsets_of
from headrace.formats._parquet.values import values_of
from headrace.formats._rowgroups.format import GroupFormat

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_BYTES_MAX = 2 << 30  # that a row group may decode to


@dataclass(frozen=True, kw_only=True)
class Parquet(GroupFormat):
    """Parquet files, whose rows are samples: `headrace docs formats/parquet`.

    >>> hr.open("train-{00000..00004}-of-00005.parquet", format=Parquet(columns=("image",)))
    """

    name: ClassVar[str] = "parquet"
    opens: ClassVar[str] = 'Parquet files, also as "a-{000..099}.parquet"'

    columns: tuple[str, ...] | None = None
    """The columns that become fields; None: all."""

    decode: bool = False
    """Whether row groups are decoded even if all values lie in the file as they are."""

    def recognises(self, path: str) -> bool:
        if os.path.isdir(path):
            return is_folder_of_files(path)
        first = expand(path)[0]
        return first.endswith(SUFFIXES) and os.path.isfile(first)

    def takes(self, name: str) -> bool:
        return name.endswith(SUFFIXES)

    def decodes(self, path: str) -> Decodes:
        """Not where the index can say where values lie: in pages that have them as they are."""
        if self.decode:
            return "groups"
        with closing(in_order(self._is_plain, files_of(path))) as found:
            return False if all(found) else "groups"

    def _is_plain(self, path: str) -> bool:
        with opened(path) as file:
            columns = columns_of(path, file.schema_arrow, self.columns)
            stored = [column for column in columns if not column.is_inline]
            with file_reader(path) as (read, size):
                return are_plain(path, read, size, file, stored)

    def fill(self, path: str, builder: Builder) -> None:
        files = files_of(path)
        if os.path.isdir(path):
            builder.depends_on(path)
            warn_of_others(path, files)
        if not files:
            raise InvalidArgumentError(f"indexing {path}: it holds no samples")
        columns, classes = self._described_by(files[0])
        release_unused()
        for column in columns:
            column.add_field(builder)
        if classes is not None:
            builder.set_classes(classes)
        decoding = Lock()  # One row group is in memory at a time.

        def describe(each: str, part: Builder) -> None:
            part.depends_on(each)
            with opened(each) as file:
                filling = _Filling(self.name, part, columns)
                filling.check(each, columns_of(each, file.schema_arrow, self.columns), files[0])
                for group in range(file.metadata.num_row_groups):
                    with decoding:
                        filling.add(each, file, group)
                        release_unused()

        if builder.add_parts(files, describe) == 0:
            raise InvalidArgumentError(f"indexing {path}: it holds no samples")

    def _described_by(self, first: str) -> tuple[list[Column], list[str] | None]:
        """The columns by the first file, and the names of classes.

        The file is gone when this returns, and with it the dictionary that its reader keeps.
        """
        with opened(first) as file:
            schema = file.schema_arrow
            columns = _with_images(first, file, columns_of(first, schema, self.columns))
            return columns, classes_of(schema, columns)

    def decode_group(self, path: str, part: str, into: memoryview) -> int:
        """`part`: the number of the row group, and the columns in order."""
        group, names = _parsed(path, part)
        at = 0
        with opened(path, "decoding") as file:
            if not 0 <= group < file.metadata.num_row_groups:
                raise DataLossError(
                    f"decoding {path}: it has {file.metadata.num_row_groups} row groups, the index "
                    f"names number {group}; index it again"
                )
            for column in columns_of(path, file.schema_arrow, names):
                for values in values_of(path, file, group, column):
                    data = values.bytes
                    if at + len(data) <= len(into):
                        into[at : at + len(data)] = data.data
                    at += len(data)
        return at

    def own_samples(self, path: str) -> Iterator[Sample]:
        """By pyarrow, a row group at a time."""
        first: list[Column] | None = None
        for each in files_of(path):
            with opened(each, "reading") as file:
                first = first or columns_of(each, file.schema_arrow, self.columns)
                for group in range(file.metadata.num_row_groups):
                    table = file.read_row_group(group, columns=[c.name for c in first])
                    for row in _with_stored_times(table).to_pylist():
                        yield {column.name: _own_value(row, column) for column in first}


def _own_value(row: dict[str, Any], column: Column) -> Any:
    value = row[column.name]
    if column.is_nested:
        if column.kind != "array":
            return value if column.child is None else [each[column.child] for each in value]
        inner = [1 if each is None else each for each in column.shape[2:]]
        return [np.asarray(each, column.dtype).reshape((-1, *inner)) for each in value]
    if column.child is not None:
        return value[column.child]
    if column.kind != "array":
        return value
    inner = [1 if each is None else each for each in column.shape[1:]]
    shape = (-1, *inner) if column.is_variable else column.shape
    return np.asarray(value, column.dtype).reshape(shape)


def _with_stored_times(table: pa.Table) -> pa.Table:
    """The table with the numbers that stand for dates and times."""
    pa = arrow()
    for at, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            number = pa.type_for_alias(f"int{field.type.bit_width}")
            chunks = [each.view(number) for each in table.column(at).chunks]
            table = table.set_column(at, field.name, pa.chunked_array(chunks, number))
    return table


class _Filling:
    """Adds the row groups of a file to the builder."""

    def __init__(self, format_name: str, builder: Builder, columns: Sequence[Column]) -> None:
        self._format = format_name
        self._builder = builder
        self._columns = columns
        self._stored = [each for each in columns if not each.is_inline]
        self._names = [each.name for each in self._stored]
        self._file = -1  # the number of the one that was added last
        self._file_path = ""
        self._chunks: Chunks = {}
        self._samples = 0

    def check(self, path: str, columns: Sequence[Column], first: str) -> None:
        """Raises unless the columns are those of the first file."""
        mine, theirs = ([each.described() for each in _unsure(x)] for x in (columns, self._columns))
        if mine != theirs:
            raise InvalidArgumentError(
                f"indexing {path}: its columns are {', '.join(mine)}; those of {first} "
                f"{', '.join(theirs)}; choose columns that all files have: columns=(...)"
            )

    def add(self, path: str, file: pq.ParquetFile, group: int) -> None:
        """Decodes a row group, column by column, and adds its samples."""
        rows = file.metadata.row_group(group).num_rows
        if rows == 0:
            return
        at = 0
        lengths: list[npt.NDArray[np.int64]] = []
        inners: list[Inner | None] = []
        for column in self._columns:
            parts = []
            inner: list[Any] = []
            for values in values_of(path, file, group, column):
                if column.is_inline:
                    self._builder.add_values(column.name, values.data)
                    continue
                parts.append(values.lengths)
                inner.append(values.inner)
                at += len(values.bytes)
                if self._builder.has_groups and at > GROUP_BYTES_MAX:
                    raise _too_large(path, group, at)
                self._builder.tell(self._samples)
            if not column.is_inline:
                lengths.append(np.concatenate(parts))
                inners.append(_joined_inner(inner) if column.is_nested else None)
        if self._stored:
            if self._builder.has_groups:
                self._add_parts(path, group, lengths, inners)
            else:
                self._add_places(path, file, group, lengths)
        self._samples += rows
        self._builder.tell(self._samples)

    def _add_places(
        self, path: str, file: pq.ParquetFile, group: int, lengths: list[npt.NDArray[np.int64]]
    ) -> None:
        """The extents of values that lie in the file as they are."""
        if self._file_path != path:
            self._file, self._file_path = self._builder.add_file(path, depends=False), path
            with file_reader(path) as (read, size):
                self._chunks = chunks_of(path, read, size)
        schema = map(file.schema.column, range(len(file.schema.names)))
        have_nulls = {each.path for each in schema if each.max_definition_level > 0}
        with file_reader(path) as (read, _):
            for column, of_rows in zip(self._stored, lengths, strict=True):
                has_nulls = column.path in have_nulls
                offsets = offsets_of(
                    path, read, self._chunks, group, column, of_rows, has_nulls=has_nulls
                )
                self._builder.add_extents(column.name, self._file, offsets, of_rows)

    def _add_parts(
        self,
        path: str,
        group: int,
        lengths: Sequence[npt.NDArray[np.int64]],
        inners: Sequence[Inner | None],
    ) -> None:
        """The extents of values in a row group that a reader decodes, and its block."""
        size = int(sum(each.sum() for each in lengths))
        part = quote(json.dumps([group, self._names], separators=(",", ":")), safe="")
        number = self._builder.add_group(path, part, size, format=self._format)
        at = 0
        for column, of_rows, inner in zip(self._stored, lengths, inners, strict=True):
            ends = at + np.cumsum(of_rows)
            self._builder.add_extents(column.name, number, ends - of_rows, of_rows, inner=inner)
            at = int(ends[-1])
        self._builder.add_blocks([len(lengths[0])], number, 0, size)


def _joined_inner(parts: Sequence[tuple[Any, Any]]) -> Inner:
    lengths, counts = zip(*parts, strict=True)
    return np.concatenate(lengths), np.concatenate(counts)


def _parsed(path: str, part: str) -> tuple[int, list[str]]:
    try:
        group, names = json.loads(unquote(part))
        if isinstance(group, int) and all(isinstance(each, str) for each in names):
            return group, names
    except (ValueError, TypeError):
        pass
    raise DataLossError(f"decoding {path}: the index names no row group by {part!r}")


def _too_large(path: str, group: int, size: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"indexing {path}: row group {group} decodes to {format_bytes(size)} or more; it is "
        f"decoded as a whole, so {format_bytes(GROUP_BYTES_MAX)} is the most: take fewer "
        "columns with columns=(...), or write the file again with smaller row groups "
        "(row_group_size=...)"
    )


def _unsure(columns: Sequence[Column]) -> list[Column]:
    """Without what only values tell: that bytes are images."""
    return [replace(each, kind="bytes") if each.kind == "image" else each for each in columns]


def _with_images(path: str, file: pq.ParquetFile, columns: Sequence[Column]) -> list[Column]:
    """Columns of bytes are images if the schema says so, or if the first value begins as one."""
    return [
        replace(each, kind="image") if _holds_images(path, file, each) else each for each in columns
    ]


def _holds_images(path: str, file: pq.ParquetFile, column: Column) -> bool:
    if column.kind != "bytes" or column.is_nested:
        return False
    return column.is_media or _begins_as_image(path, file, column)


def _begins_as_image(path: str, file: pq.ParquetFile, column: Column) -> bool:
    for group in range(file.metadata.num_row_groups):
        for values in values_of(path, file, group, column):
            for length in values.lengths[:1]:
                return is_image(bytes(values.bytes[: min(BEGIN_BYTES, length)]))
    return False
