"""The first pass over a table, which finds out what columns become which fields."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.formats._base.absent import check_known, left_out, ways_out
from headrace.formats._base.format import Format, written
from headrace.formats._tables.cells import Oddities
from headrace.formats._tables.column_field import ColumnField
from headrace.formats._tables.files import are_images, is_there
from headrace.formats._tables.row_piece import RowPiece
from headrace.formats._tables.scanned_column import ScannedColumn

LABEL, SPLIT = "label", "split"

_HEAD_ROWS = 50  # that tell whether a column names files
_SHOWN = 10
_NAME_MAX = 250  # characters of a column's name
_WORDS = re.compile(r"path|file|image|img|mask|audio|video|photo|picture|clip|frame", re.IGNORECASE)
_PATH_NAME = re.compile(
    r"(.*_)?(file_?)?(path|name|file)|(image|img|mask|audio|video)(_?[a-z0-9])?", re.IGNORECASE
)
_FILE_NAME = re.compile(r"[^\0\n]*[^/\0\n]\.[A-Za-z0-9]{1,5}")
_ENDING = re.compile(r"_?(file_?)?(path|name|file)$", re.IGNORECASE)


@dataclass(frozen=True)
class Options:
    """How to read a table; the fields of `Manifest`."""

    row: Format
    """It itself, for advice."""
    paths: Mapping[str, str] | None
    columns: tuple[str, ...] | None
    folder: str | None
    label: str | None
    text: tuple[str, ...]
    split: str | None
    skips: bool
    floats: str
    sounds: tuple[str, ...] = ()
    fill: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The fields of a table's samples."""

    files: dict[str, str]
    """By field the column that names its file."""
    kinds: dict[str, str]
    """By such a field: image or bytes."""
    values: dict[str, tuple[str, ColumnField]]
    """By field its column, and what that holds."""
    classes: tuple[str, ...] | None


def path_columns(head: RowPiece, folder: str) -> list[str]:
    """The columns that name files: by their names, and by files that are there.

    Also columns with the usual names and values that look like names of files.
    """
    columns = []
    for name in head.columns:
        values = _texts(head, name)
        if not values or not _WORDS.search(name):
            continue
        looks_so = _PATH_NAME.fullmatch(name) and all(map(_FILE_NAME.fullmatch, values))
        if looks_so or any(is_there(folder, value) for value in values):
            columns.append(name)
    return columns


def have_files(head: RowPiece | None, folder: str) -> bool:
    """Whether the rows name files that are there."""
    if head is None:
        return False
    for name in path_columns(head, folder):
        if any(is_there(folder, text) for text in _texts(head, name)):
            return True
    return False


def holds_bytes(head: RowPiece | None) -> bool:
    """Whether a column has bytes, which no manifest has."""
    columns = head.columns.values() if head is not None else ()
    return any(bytes in set(map(type, values)) for values in columns)


def _texts(head: RowPiece, column: str) -> list[str]:
    return [value for value in head.values(column)[:_HEAD_ROWS] if value and isinstance(value, str)]


class Scan:
    """The first pass: notes what the columns hold."""

    def __init__(self, head: RowPiece, folder: str, options: Options, odd: Oddities) -> None:
        """`head`: the first rows. `folder`: what paths are relative to.

        `odd` takes what may be a mistake.
        """
        self._options = options
        self._odd = odd
        self._table = head.path
        self._tables: dict[str, None] = {}
        self._first = head.where(0)
        self.rows = 0
        self._taken = 0
        self._splits: dict[str, None] = {}
        self._present = head.columns.keys()
        self._columns = self._wanted(head)
        if options.paths is None:
            taken = [column for column in self._columns if column not in options.text]
            self._paths = [column for column in path_columns(head, folder) if column in taken]
            if not self._paths and (options.folder is not None or _is_parquet(head.path)):
                raise self._no_paths(head, folder)
        else:
            self._paths = list(options.paths.values())
        self._label = options.label or (LABEL if LABEL in self._columns else None)
        self._is_image = dict.fromkeys(self._paths, True)
        self._scanned: dict[str, ScannedColumn] = {}
        for name in self._columns:
            self._add_column(name)

    def _wanted(self, head: RowPiece) -> list[str]:
        options = self._options
        present = list(head.columns)
        asked: dict[str, str | None] = dict.fromkeys(options.columns or (), "columns=")
        asked |= dict.fromkeys((options.paths or {}).values(), "paths=")
        asked |= dict.fromkeys(options.text, "text=")
        if options.label is not None:
            asked[options.label] = "labels="
        if options.split is not None:
            asked[SPLIT] = "split="
        for name, why in asked.items():
            if name not in present:
                raise InvalidArgumentError(
                    f"indexing {self._table}: {why}: it has no column {name!r}; it has "
                    f"{', '.join(present)}"
                )
        wanted = present if options.columns is None else list(asked)
        return [name for name in wanted if options.split is None or name != SPLIT]

    def _no_paths(self, head: RowPiece, folder: str) -> InvalidArgumentError:
        is_table = self._options.folder is None
        itself = "; or open the table itself: format=hr.formats.Parquet()" if is_table else ""
        return InvalidArgumentError(
            f"indexing {self._table}: no column names files below {folder}: its columns are "
            f"{', '.join(map(repr, head.columns))}; say which do, and where they are: "
            f'format=hr.formats.Manifest(paths={{"image": COLUMN}}, folder=FOLDER){itself}'
        )

    def _add_column(self, name: str) -> ScannedColumn:
        options = self._options
        if not name or not name.isprintable() or len(name) > _NAME_MAX:
            raise InvalidArgumentError(
                f"indexing {self._table}: column {name!r:.80} cannot name a field: a name has 1 to "
                f"{_NAME_MAX} printable characters; correct it, or leave it out with columns="
            )
        scanned = ScannedColumn(name, name in options.text, name == self._label)
        scanned.is_optional = name in options.optional
        scanned.floats = "float64" if _is_parquet(self._table) else options.floats
        scanned.ways_out = self._ways_out
        if name in options.fill:
            scanned.fill = options.fill[name]
        if isinstance(scanned.fill, str):
            scanned.classes.add(scanned.fill)
        self._scanned[name] = scanned
        return scanned

    def _ways_out(self, name: str) -> str:
        """What to type where a column holds no one type."""
        row: Any = self._options.row
        left = left_out(row, [name], list(self._scanned))
        if "bytes" in self._scanned[name].first:
            return f"open the table itself, format=hr.formats.Parquet(){left}"
        return f"keep it as text, format={written(row, text=(*row.text, name))}{left}"

    def add(self, piece: RowPiece) -> None:
        """Notes these rows."""
        self.rows += len(piece)
        self._tables[piece.path] = None
        if not piece.typed and piece.columns.keys() != self._present:
            raise InvalidArgumentError(
                f"indexing {piece.path}: its columns are {', '.join(map(repr, piece.columns))}, "
                f"those of {self._table} {', '.join(map(repr, self._present))}; open tables of the "
                "same columns together"
            )
        if self._label is not None:
            self._scanned[self._label].note_classes(piece, piece.values(self._label))
        piece = self._of_split(piece)
        if not len(piece):
            return
        if self._options.columns is None:
            for name in piece.columns.keys() - self._scanned.keys() - {SPLIT}:
                scanned = self._add_column(name)
                if self._taken:  # Rows before this one have no value.
                    scanned.first["null"] = self._first
                    scanned.absent = scanned.rows = self._taken
        for name, scanned in self._scanned.items():
            values = piece.values(name)
            if name in self._paths:
                values = names_of_files(values, self._options, name)
            scanned.add(piece, values)
            if name not in self._paths:
                scanned.note_odd(piece, values, self._odd)
            if self._is_image.get(name):
                named = [value for value in values if value]
                self._is_image[name] = set(map(type, named)) <= {str} and are_images(named)
        self._taken += len(piece)

    def _of_split(self, piece: RowPiece) -> RowPiece:
        if self._options.split is None:
            return piece
        if len(self._splits) < _SHOWN:
            self._splits |= dict.fromkeys(map(str, piece.values(SPLIT)))
        return rows_of_split(piece, self._options.split)

    def planned(self) -> Plan:
        """The fields. Raises InvalidArgumentError for columns that cannot be one."""
        options = self._options
        if not self._taken:
            names = ", ".join(map(repr, list(self._splits)[:_SHOWN]))
            raise InvalidArgumentError(
                f"indexing {self._table}: no row has split {options.split!r}; there are {names}"
            )
        zeros = {name: scanned.zero for name, scanned in self._scanned.items()}
        check_known(self._table, options.row, zeros, self._label)
        self._check_absent()
        declared = _declared(list(self._tables))
        files = self._fields_of_paths()
        values: dict[str, tuple[str, ColumnField]] = {}
        for name, scanned in self._scanned.items():
            if name in self._paths:
                scanned.check_names()
                continue
            field = LABEL if name == self._label else name
            if field in values or field in files:
                raise InvalidArgumentError(
                    f"indexing {self._table}: columns {name!r} and another would be the field "
                    f"{field!r}; choose with columns= or paths="
                )
            values[field] = name, scanned.decided(declared.get(name))
        return Plan(files, self._kinds(files), values, self._classes(values))

    def _check_absent(self) -> None:
        """Raises InvalidArgumentError if rows have no value, and nothing stands for it."""
        options = self._options
        for name in self._paths:
            scanned = self._scanned[name]
            lacks = scanned.absent and not options.skips and name not in options.fill
            if lacks or name in options.optional:
                raise self._refused_name(scanned)
        values = (scanned for name, scanned in self._scanned.items() if name not in self._paths)
        lacking = [scanned for scanned in values if scanned.lacks_values]
        if not lacking:
            return
        first = lacking[0]
        empty = [scanned for scanned in lacking if scanned.is_empty]
        if empty:
            fill = {**options.fill, **{scanned.name: scanned.zero for scanned in empty}}
            left = left_out(options.row, [scanned.name for scanned in empty], list(self._scanned))
            raise InvalidArgumentError(
                f"{empty[0].first_absent}: column {empty[0].name!r} has no value in any of "
                f"{empty[0].rows:,} rows; say what it holds, "
                f"format={written(options.row, fill=fill)}{left}"
            )
        others = "".join(
            f", column {scanned.name!r} in {scanned.absent:,}" for scanned in lacking[1:]
        )
        zeros = {scanned.name: scanned.zero for scanned in lacking}
        advice = ways_out(options.row, zeros, list(self._scanned), self._label)
        raise InvalidArgumentError(
            f"{first.first_absent}: column {first.name!r} is empty in {first.absent:,} of "
            f"{first.rows:,} rows, first here{others}; {advice}"
        )

    def _refused_name(self, scanned: ScannedColumn) -> InvalidArgumentError:
        name, skips = scanned.name, written(self._options.row, missing="skip", optional=())
        place = scanned.first_absent if scanned.absent else f"indexing {self._table}"
        return InvalidArgumentError(
            f"{place}: column {name!r} is empty: it must name a file in each row, and "
            f"{scanned.absent:,} of {scanned.rows:,} have none; leave these rows out, "
            f"format={skips}, or name a file for them: fill={{{name!r}: 'FILE'}}"
        )

    def _fields_of_paths(self) -> dict[str, str]:
        if self._options.paths is not None:
            return dict(self._options.paths)
        fields: dict[str, str] = {}
        stems = {column: _ENDING.sub("", column) for column in self._paths}
        for name in self._paths:
            field = stems[name] or ("image" if self._is_image[name] else "file")
            alone = list(stems.values()).count(stems[name]) == 1
            taken = field in fields or (field != name and field in self._scanned)
            fields[field if alone and not taken else name] = name
        return fields

    def _kinds(self, files: dict[str, str]) -> dict[str, str]:
        return {
            field: "image" if self._is_image[column] else "bytes" for field, column in files.items()
        }

    def _classes(self, values: dict[str, tuple[str, ColumnField]]) -> tuple[str, ...] | None:
        if self._label is None or values[LABEL][1].what != "classes":
            return None
        return tuple(sorted(self._scanned[self._label].classes))


def names_of_files(values: list[Any], options: Options, column: str) -> list[Any]:
    """The names of files in a column; of rows without one what stands for it."""
    stand_in = options.fill.get(column, "" if options.skips else None)
    if stand_in is None or not ("" in values or None in values):
        return values
    return [stand_in if value is None or value == "" else value for value in values]


def rows_of_split(piece: RowPiece, split: str) -> RowPiece:
    """The rows whose column `split` has this value."""
    values = piece.values(SPLIT)
    return piece.select([row for row, value in enumerate(values) if str(value) == split])


def _is_parquet(table: str) -> bool:
    return os.path.splitext(table)[1].lower() == ".parquet"


def _declared(tables: list[str]) -> dict[str, str]:
    """The types that Parquet tables declare: of several tables one that holds the values of all.

    None for a column of whole numbers here and fractions there, which its values decide.
    """
    if not _is_parquet(tables[0]):
        return {}
    from headrace.formats._tables.parquet_rows import declared_types

    by_table = list(map(declared_types, tables))
    declared: dict[str, str] = {}
    for name in dict.fromkeys(name for of_table in by_table for name in of_table):
        types = {of_table[name] for of_table in by_table if name in of_table}
        if len({np.dtype(dtype).kind for dtype in types}) == 1:
            declared[name] = np.result_type(*types).name
        elif types <= {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}:
            declared[name] = "int64"
    return declared
