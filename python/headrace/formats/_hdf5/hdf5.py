"""HDF5 files whose rows are samples, or each of which is a sample."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from headrace import _core, _places
from headrace._arguments import choice, items, shown
from headrace.errors import InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format
from headrace.formats._fields.order import FieldType, data_first
from headrace.formats._files.patterns import expand, files_at
from headrace.formats._hdf5.datasets import (
    INLINE_BYTES_MAX,
    Hdf5Column,
    check_links,
    columns_of,
    compressed_chunks,
    datasets,
    opened,
    read_ahead,
    row_offsets,
    whole_offset,
)

_SUFFIXES = (".h5", ".hdf5", ".he5")
_MAGIC = b"\x89HDF\r\n\x1a\n"
_ROWS_AT_ONCE = 2**18
_VALUES_AT_ONCE = 2**14
_DEPENDS_MAX = 10_000  # files whose change makes the index stale


@dataclass(frozen=True, kw_only=True)
class Hdf5(Format):
    """HDF5 files: `headrace docs formats/hdf5`.

    >>> hr.open("train-{00..15}.h5", format=Hdf5(columns=("images", "labels")))
    """

    name: ClassVar[str] = "hdf5"
    opens: ClassVar[str] = "HDF5 files (.h5, .hdf5)"

    columns: tuple[str, ...] | None = None
    """The paths of the datasets to take; None: all."""
    sample: str | None = None
    """What a sample is: "row" or "file"; None: rows if all datasets have the same number."""
    inline: tuple[str, ...] = ()
    """Datasets to copy into the index; those of at most 64 bytes a sample are copied anyway."""

    def recognises(self, path: str) -> bool:
        if _places.is_folder(path):
            with _places.entries(path) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
            return bool(names) and all(name.lower().endswith(_SUFFIXES) for name in names)
        first = expand(path)[0]
        if not first.lower().endswith(_SUFFIXES) or not _places.is_file(first):
            return False
        with _places.open(first) as file:
            front = file.read(4096)
        return any(front[at : at + 8] == _MAGIC for at in (0, 512, 1024, 2048))

    def takes(self, name: str) -> bool:
        return name.lower().endswith(_SUFFIXES)

    def fill(self, path: str, builder: Builder) -> None:
        self._check_options()
        if _places.is_folder(path):
            builder.depends_on(path)
        files = _files(path)
        if not files:
            raise InvalidArgumentError(f"indexing {path}: the folder has no HDF5 files")
        with opened(files[0]) as file:
            columns = self._columns(files[0], file)
            layout = _Layout(files[0], columns, self._by_row(files, columns), self.inline)
            layout.check_same(files[0], columns)
        layout.add_fields(builder)

        def describe(file_path: str, part: Builder) -> None:
            read_ahead(file_path)
            with opened(file_path) as file:
                columns = self._columns(file_path, file)
                layout.check_same(file_path, columns)
                number = part.add_file(file_path, depends=len(files) <= _DEPENDS_MAX)
                for column in columns:
                    layout.add(file_path, file, column, number, part)
            part.tell(layout.samples(columns))

        builder.add_parts(files, describe)

    def _check_options(self) -> None:
        if self.sample is not None:
            choice("hdf5 sample", self.sample, ("row", "file"))
        for name in ("columns", "inline"):
            value: Any = getattr(self, name)
            if value is not None and not all(isinstance(x, str) for x in items(name, value, "str")):
                raise InvalidArgumentError(f"hdf5 {name}: got {shown(value)}, must be names")

    def _columns(self, path: str, file: Any) -> list[Hdf5Column]:
        if self.columns is None:
            names = datasets(path, file)
            check_links(path, file, names)
        else:
            names = [name.strip("/") for name in self.columns]
        if not names:
            raise InvalidArgumentError(
                f"indexing {path}: columns= names none; name one, or leave it out"
            )
        for name in self.inline:
            if name.strip("/") not in names:
                raise InvalidArgumentError(
                    f"indexing {path}: inline={name!r}: there are {', '.join(names)}"
                )
        return columns_of(path, file, names)

    def _by_row(self, files: list[str], columns: list[Hdf5Column]) -> bool:
        if self.sample is not None:
            return self.sample == "row"
        counts = {column.name: column.shape[0] if column.shape else None for column in columns}
        if len(set(counts.values())) == 1 and None not in counts.values():
            return True
        if len(files) > 1:
            return False
        raise InvalidArgumentError(
            f"indexing {files[0]}: its datasets differ in their numbers of rows: {counts}; choose "
            'those with equally many with columns=, or say sample="file" if the file is one sample'
        )

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        # The datasets of a file have no order: the index has their names sorted.
        chosen = self.chose_fields(index)
        return super().field_order(index, fields) if chosen else data_first(fields)


class _Type(NamedTuple):
    """What the samples of a dataset are."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    filters: tuple[str, ...]


class _Layout:
    """The fields, from the first file; all others must have the same."""

    def __init__(
        self, path: str, columns: list[Hdf5Column], by_row: bool, inline: tuple[str, ...]
    ) -> None:
        self._path = path
        self._by_row = by_row
        wanted = {name.strip("/") for name in inline}
        self._inline = {
            column.name
            for column in columns
            if column.name in wanted or column.sample_bytes(by_row) <= INLINE_BYTES_MAX
        }
        self._types = self._types_of(columns)

    def _types_of(self, columns: list[Hdf5Column]) -> list[_Type]:
        return [
            _Type(
                x.name,
                x.dtype.name,
                x.sample_shape(self._by_row),
                () if x.name in self._inline else x.filters.names,
            )
            for x in columns
        ]

    def samples(self, columns: list[Hdf5Column]) -> int:
        """Of a file with these columns."""
        return columns[0].shape[0] if self._by_row else 1

    def add_fields(self, builder: Builder) -> None:
        fields = [_field(field_type.name) for field_type in self._types]
        for field_type, field in zip(self._types, fields, strict=True):
            if fields.count(field) > 1:
                raise InvalidArgumentError(
                    f"indexing {self._path}: two datasets would be the field {field!r}; choose one "
                    "with columns="
                )
            builder.add_field(
                field,
                "array",
                field_type.dtype,
                field_type.shape,
                inline=field_type.name in self._inline,
                coding="zlib" if field_type.filters else "stored",
                shuffled=len(field_type.filters) > 1,
            )

    def check_same(self, path: str, columns: list[Hdf5Column]) -> None:
        """Refuses files whose rows are not as those of the first one."""
        for column in columns:
            if self._by_row and not column.shape:
                raise InvalidArgumentError(
                    f"indexing {path}: dataset {column.name!r} is one number, no rows; leave it "
                    "out with columns="
                )
            if column.sample_bytes(self._by_row) == 0:
                raise InvalidArgumentError(
                    f"indexing {path}: dataset {column.name!r} of shape {list(column.shape)} has "
                    "samples of zero bytes; leave it out with columns="
                )
        counts = {column.name: column.shape[0] for column in columns} if self._by_row else {}
        if len(set(counts.values())) > 1:
            raise InvalidArgumentError(
                f"indexing {path}: its datasets differ in their numbers of rows: {counts}; choose "
                "those with equally many with columns="
            )
        types = self._types_of(columns)
        if types != self._types:
            own, wanted = ([tuple(field_type) for field_type in x] for x in (types, self._types))
            raise InvalidArgumentError(
                f"indexing {path}: its fields are {own}, those of {self._path} {wanted}; open "
                "files of the same fields together, or choose with columns="
            )

    def add(self, path: str, file: Any, column: Hdf5Column, number: int, builder: Builder) -> None:
        """Adds the samples of a dataset of a file."""
        item, field = file[column.name], _field(column.name)
        if column.name in self._inline:
            self._add_values(item, column, field, builder)
            return
        size = _places.stat(path).st_size
        if column.filters.names:
            if column.shape[:1] != (0,):
                begins, sizes = compressed_chunks(path, item, column, self._by_row, size)
                builder.add_extents(field, number, begins, sizes)
            return
        if not self._by_row:
            begin = whole_offset(path, item, column, size)
            builder.add_extents(field, number, [begin], column.sample_bytes(False))
            return
        if column.shape[0] == 0:
            return
        begins = row_offsets(path, item, column, size)
        rows_a_run = column.shape[0] if len(begins) == 1 else item.chunks[0]
        row_bytes = column.sample_bytes(True)
        for first in range(0, column.shape[0], _ROWS_AT_ONCE):
            rows = np.arange(first, min(first + _ROWS_AT_ONCE, column.shape[0]))
            offsets = begins[rows // rows_a_run] + (rows % rows_a_run * row_bytes).astype(np.uint64)
            builder.add_extents(field, number, offsets, row_bytes)

    def _add_values(self, item: Any, column: Hdf5Column, field: str, builder: Builder) -> None:
        if not self._by_row:
            builder.add_values(field, np.asarray(item[()], column.dtype)[np.newaxis])
            return
        for first in range(0, column.shape[0], _VALUES_AT_ONCE):
            builder.add_values(field, item[first : first + _VALUES_AT_ONCE])


def _field(name: str) -> str:
    """The field of a dataset: of data/x data_x."""
    return re.sub(r"\W", "_", name)


def _files(path: str) -> list[str]:
    return files_at(path, lambda name: name.lower().endswith(_SUFFIXES))
