"""Parquet files, as Hugging Face's Hub has them: each row is a sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from headrace import _core, _places
from headrace._units import format_bytes
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._base.absent import (
    check_absent,
    check_known,
    left_out,
    valid_field,
)
from headrace.formats._base.builder import Builder, Decodes
from headrace.formats._base.field import Inner
from headrace.formats._base.format import SOURCE, later_option
from headrace.formats._files.images import BEGIN_BYTES, is_image
from headrace.formats._files.patterns import expand
from headrace.formats._files.reading import file_reader
from headrace.formats._hive.partitions import (
    Partitions,
    crosses_folders,
    folders_between,
    names_of,
    partitions_of,
)
from headrace.formats._indexing.in_order import in_order
from headrace.formats._parquet.advice import NullAdvice, short_zero
from headrace.formats._parquet.column_values import values_of
from headrace.formats._parquet.files import (
    SUFFIXES,
    files_of,
    is_folder_of_files,
    is_partitioned,
    opened,
    release_unused,
    warn_of_others,
)
from headrace.formats._parquet.footer import ColumnChunks, chunks_of
from headrace.formats._parquet.pages import are_plain, offsets_of
from headrace.formats._parquet.parquet_column import (
    ParquetColumn,
    classes_of,
    columns_of,
    with_stand_ins,
)
from headrace.formats._rowgroups.format import GroupFormat

if TYPE_CHECKING:
    import pyarrow.parquet as pq

GROUP_BYTES_MAX = 2 << 30  # that a row group may decode to


@dataclass(frozen=True, kw_only=True)
class Parquet(GroupFormat):
    """Parquet files, whose rows are samples: `headrace docs formats/parquet`.

    >>> hr.open("train-{00000..00004}-of-00005.parquet", format=Parquet(columns=("image",)))
    """

    name: ClassVar[str] = "parquet"
    opens: ClassVar[str] = 'Parquet files, also as "a-{000..099}.parquet"'

    has_partitions: ClassVar[bool] = True

    columns: tuple[str, ...] | None = None
    """The columns that become fields; None: all."""

    decode: bool = False
    """Whether row groups are decoded even if all values lie in the file as they are."""

    fill: Mapping[str, Any] | None = later_option(None, hash=False)  # type: ignore[assignment]
    """By column, the value of rows that have none (null)."""
    optional: tuple[str, ...] = later_option(())
    """Columns that may be null: an extra field, NAME_valid, says which rows have a value. The
    others get that of `fill`, else 0 or an empty value."""

    def recognises(self, path: str) -> bool:
        if _places.is_folder(path):
            return is_folder_of_files(path) or is_partitioned(path)
        first = expand(path)[0]
        return first.endswith(SUFFIXES) and _places.is_file(first)

    def takes(self, name: str) -> bool:
        return name.endswith(SUFFIXES)

    def decodes(self, path: str) -> Decodes:
        """Not where the index can say where values lie: in pages that have them as they are."""
        if self.decode:
            return "groups"
        files = files_of(path)
        wanted, beside = self._in_files(path, files), self._beside(path, files)
        with closing(in_order(lambda file: self._is_plain(file, wanted, beside), files)) as plain:
            return False if all(plain) else "groups"

    def is_current(self, index: _core.Index) -> bool:
        return super().is_current(index) and not self._lacks_partitions(index)

    def _lacks_partitions(self, index: _core.Index) -> bool:
        """Whether an index from before partitions were columns lacks them."""
        path = index.attributes.get(SOURCE, "")
        if _places.is_folder(path) or not crosses_folders(path):
            return False
        has = {field.name for field in index.fields}
        wanted = names_of(path, files_of(path)[:1])
        return any(
            self.columns is None or name in self.columns for name in wanted if name not in has
        )

    def _in_files(self, path: str, files: Sequence[str]) -> Sequence[str] | None:
        """The columns that are wanted of the files themselves."""
        partitioned = names_of(path, files)
        chosen: Any = self.columns
        if chosen is None or isinstance(chosen, str) or not partitioned:
            return self.columns
        with opened(files[0]) as file:
            has = file.schema_arrow.names
        return [name for name in chosen if name in has or name not in partitioned]

    def _beside(self, path: str, files: Sequence[str]) -> list[str]:
        """The columns that are wanted and that folders name; files may have some of them, too."""
        names = names_of(path, files)
        return [name for name in names if self.columns is None or name in self.columns]

    def _is_plain(
        self, path: str, wanted: Sequence[str] | None, beside: Sequence[str] = ()
    ) -> bool:
        with opened(path) as file:
            columns = self._columns_of(path, file, wanted, beside)
            stored = [column for column in columns if not column.is_inline]
            if any(column.has_stand_in for column in stored):
                return False  # The file has no bytes for it.
            with file_reader(path) as (read, size):
                return are_plain(path, read, size, file, stored)

    def _index_into(self, path: str, builder: Builder) -> None:
        files = files_of(path)
        if _places.is_folder(path) and is_partitioned(path):
            for folder in {path, *(up for file in files for up in folders_between(path, file))}:
                builder.depends_on(folder)
        elif _places.is_folder(path):
            builder.depends_on(path)
            warn_of_others(path, files)
        if not files:
            raise InvalidArgumentError(
                f"indexing {path}: it holds no samples; open files that have rows"
            )
        wanted, beside = self._in_files(path, files), self._beside(path, files)
        columns, classes, has = self._described_by(files[0], wanted, beside)
        release_unused()
        partitions = partitions_of(path, files, has, self.columns)
        _add_fields(builder, columns, partitions, self.columns)
        if classes is not None:
            builder.set_classes(classes)
        decoding = Lock()  # One row group is in memory at a time.

        def describe(file_path: str, part: Builder) -> None:
            part.depends_on(file_path)
            with opened(file_path) as file:
                filling = _Filling(self, part, columns, beside)
                filling.check(
                    file_path, self._columns_of(file_path, file, wanted, beside), files[0]
                )
                partitions.add(part, file_path, file.metadata.num_rows)
                for group in range(file.metadata.num_row_groups):
                    with decoding:
                        filling.add(file_path, file, group)
                        release_unused()

        if builder.add_parts(files, describe) == 0:
            raise InvalidArgumentError(
                f"indexing {path}: it holds no samples; open files that have rows"
            )

    def _described_by(
        self, first: str, wanted: Sequence[str] | None, beside: Sequence[str]
    ) -> tuple[list[ParquetColumn], list[str] | None, list[str]]:
        """The columns by the first file, the names of classes, and all columns of the file.

        The file is gone when this returns, and with it the dictionary that its reader keeps.
        """
        with opened(first) as file:
            schema = file.schema_arrow
            columns = _with_images(first, file, self._columns_of(first, file, wanted, beside))
            names = list(dict.fromkeys([*(column.name for column in columns), *beside]))
            for column in columns:
                if column.kind == "image" and column.has_stand_in:
                    raise InvalidArgumentError(
                        f"indexing {first}: column {column.name!r} holds images, for which nothing "
                        f"stands{left_out(self, [column.name], names)}"
                    )
            return columns, classes_of(schema, columns), list(schema.names)

    def _columns_of(
        self,
        path: str,
        file: pq.ParquetFile,
        wanted: Sequence[str] | None,
        beside: Sequence[str] = (),
    ) -> list[ParquetColumn]:
        """Those of the file; none if only columns that folders name are wanted."""
        if wanted is not None and not wanted and self.columns:
            return []
        check_absent("parquet", self.fill, self.optional)
        columns = columns_of(path, file.schema_arrow, wanted, beside)
        check_known(path, self, {column.name: short_zero(column) for column in columns})
        return with_stand_ins(columns, self.fill or {}, self.optional)

    def decode_group(self, path: str, part: str, into: memoryview) -> int:
        """`part`: the number of the row group, and the columns in order."""
        group, names, stand_ins, is_permuted = _parsed(path, part)
        at = 0
        with opened(path, "decoding") as file:
            if not 0 <= group < file.metadata.num_row_groups:
                raise DataLossError(
                    f"decoding {path}: it has {file.metadata.num_row_groups} row groups, the index "
                    f"names number {group}; index it again"
                )
            columns = columns_of(path, file.schema_arrow, names)
            if not is_permuted:  # A former index has tensors as they are stored.
                columns = [replace(column, permutation=None) for column in columns]
            for column in with_stand_ins(columns, stand_ins, ()):
                for values in values_of(path, file, group, column):
                    data = values.bytes
                    if at + len(data) <= len(into):
                        into[at : at + len(data)] = data.data
                    at += len(data)
        return at


def _add_fields(
    builder: Builder,
    columns: Sequence[ParquetColumn],
    partitions: Partitions,
    wanted: Sequence[str] | None,
) -> None:
    """Adds the fields in the order that was given, or those of partitions last."""
    by_name = {column.name: column for column in columns}
    for name in wanted or [*by_name, *partitions.columns]:
        kind = partitions.columns.get(name)
        if kind is None:
            by_name[name].add_field(builder)
        elif kind == "text":
            builder.add_field(name, "text", inline=True)
        else:
            builder.add_field(name, "array", kind, inline=True)


class _Filling:
    """Adds the row groups of a file to the builder."""

    def __init__(
        self,
        row: Parquet,
        builder: Builder,
        columns: Sequence[ParquetColumn],
        beside: Sequence[str],
    ) -> None:
        """`beside`: the columns that folders name."""
        self._row = row
        self._beside = beside
        self._format = row.name
        self._builder = builder
        self._columns = columns
        self._stored = [column for column in columns if not column.is_inline]
        self._names = [column.name for column in self._stored]
        self._stand_ins = {x.name: x.stand_in for x in self._stored if x.has_stand_in}
        self._file = -1  # the number of the one that was added last
        self._file_path = ""
        self._chunks: ColumnChunks = {}
        self._samples = 0

    def check(self, path: str, columns: Sequence[ParquetColumn], first: str) -> None:
        """Raises unless the columns are those of the first file."""
        mine, theirs = (
            [column.described() for column in _unsure(x)] for x in (columns, self._columns)
        )
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
            advice = NullAdvice(self._row, file, self._columns, self._beside)
            for values in values_of(path, file, group, column, advice):
                if values.valid is not None and column.is_optional:
                    self._builder.add_values(valid_field(column.name), values.valid)
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
        have_nulls = {column.path for column in schema if column.max_definition_level > 0}
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
        size = int(sum(of_column.sum() for of_column in lengths))
        is_permuted = any(column.permutation is not None for column in self._stored)
        about = [group, self._names, self._stand_ins, is_permuted]
        while not about[-1]:
            about.pop()
        part = quote(json.dumps(about, separators=(",", ":")), safe="")
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


def _parsed(path: str, part: str) -> tuple[int, list[str], dict[str, Any], bool]:
    try:
        group, names, *more = json.loads(unquote(part))
        stand_ins = more[0] if more else {}
        is_permuted = more[1:] == [True]
        are_names = all(isinstance(name, str) for name in (*names, *stand_ins))
        if isinstance(group, int) and are_names and isinstance(stand_ins, dict):
            return group, names, stand_ins, is_permuted
    except (ValueError, TypeError):
        pass
    raise DataLossError(
        f"decoding {path}: the index names no row group by {part!r}; make the index again"
    )


def _too_large(path: str, group: int, size: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"indexing {path}: row group {group} decodes to {format_bytes(size)} or more; it is "
        f"decoded as a whole, so {format_bytes(GROUP_BYTES_MAX)} is the most: take fewer "
        "columns with columns=(...), or write the file again with smaller row groups "
        "(row_group_size=...)"
    )


def _unsure(columns: Sequence[ParquetColumn]) -> list[ParquetColumn]:
    """Without what only values tell: that bytes are images."""
    return [
        replace(column, kind="bytes") if column.kind == "image" else column for column in columns
    ]


def _with_images(
    path: str, file: pq.ParquetFile, columns: Sequence[ParquetColumn]
) -> list[ParquetColumn]:
    """Columns of bytes are images if the schema says so, or if the first value begins as one."""
    return [
        replace(column, kind="image") if _holds_images(path, file, column) else column
        for column in columns
    ]


def _holds_images(path: str, file: pq.ParquetFile, column: ParquetColumn) -> bool:
    if column.kind != "bytes" or column.is_nested:
        return False
    return column.is_media or _begins_as_image(path, file, column)


def _begins_as_image(path: str, file: pq.ParquetFile, column: ParquetColumn) -> bool:
    column = replace(column, stand_in="")  # The first one that there is.
    for group in range(file.metadata.num_row_groups):
        for values in values_of(path, file, group, column):
            for length in values.lengths[values.valid][:1]:
                return is_image(bytes(values.bytes[: min(BEGIN_BYTES, length)]))
    return False
