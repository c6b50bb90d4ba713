"""Which columns of a table become which fields, and the two passes that find and write them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.formats._builder import Builder
from headrace.formats._files.npy import Read
from headrace.formats._files.reading import file_reader
from headrace.formats._files.sounds import Undecoded, sound_sizes
from headrace.formats._tables.columns import Holds, Scanned, add_field, add_values
from headrace.formats._tables.files import Files, are_images, is_file, path_of
from headrace.formats._tables.piece import Piece

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

    paths: Mapping[str, str] | None
    columns: tuple[str, ...] | None
    label: str | None
    text: tuple[str, ...]
    split: str | None
    skips: bool
    floats: str
    sounds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The fields of a table's samples."""

    files: dict[str, str]
    """By field the column that names its file."""
    kinds: dict[str, str]
    """By such a field: image or bytes."""
    values: dict[str, tuple[str, Holds]]
    """By field its column, and what that holds."""
    classes: tuple[str, ...] | None


def path_columns(head: Piece, folder: str) -> list[str]:
    """The columns that name files: by their names, and by files that are there.

    Also columns with the usual names and values that look like names of files.
    """
    found = []
    for name in head.columns:
        values = _texts(head, name)
        if not values or not _WORDS.search(name):
            continue
        looks_so = _PATH_NAME.fullmatch(name) and all(map(_FILE_NAME.fullmatch, values))
        if looks_so or any(is_file(path_of(folder, each)) for each in values):
            found.append(name)
    return found


def have_files(head: Piece | None, folder: str) -> bool:
    """Whether the rows name files that are there."""
    if head is None:
        return False
    for name in path_columns(head, folder):
        if any(is_file(path_of(folder, each)) for each in _texts(head, name)):
            return True
    return False


def _texts(head: Piece, column: str) -> list[str]:
    return [each for each in head.values(column)[:_HEAD_ROWS] if each and isinstance(each, str)]


class Scan:
    """The first pass: notes what the columns hold."""

    def __init__(self, head: Piece, folder: str, options: Options) -> None:
        """`head`: the first rows. `folder`: what paths are relative to."""
        self._options = options
        self._table = head.path
        self._first = head.where(0)
        self.rows = 0
        self._taken = 0
        self._splits: dict[str, None] = {}
        self._columns = self._wanted(head)
        if options.paths is None:
            self._paths = [each for each in path_columns(head, folder) if each in self._columns]
            if not self._paths:
                raise self._no_paths(head, folder)
        else:
            self._paths = list(options.paths.values())
        self._label = options.label or (LABEL if LABEL in self._columns else None)
        self._is_image = dict.fromkeys(self._paths, True)
        self._scanned: dict[str, Scanned] = {}
        for name in self._columns:
            self._add_column(name)

    def _wanted(self, head: Piece) -> list[str]:
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
        return [each for each in wanted if options.split is None or each != SPLIT]

    def _no_paths(self, head: Piece, folder: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"indexing {self._table}: no column names files below {folder}: its columns are "
            f"{', '.join(map(repr, head.columns))}; say which do, and where they are: "
            'paths={"image": COLUMN}, folder=FOLDER'
        )

    def _add_column(self, name: str) -> Scanned:
        options = self._options
        if not name or not name.isprintable() or len(name) > _NAME_MAX:
            raise InvalidArgumentError(
                f"indexing {self._table}: column {name!r:.80} cannot name a field: a name has 1 to "
                f"{_NAME_MAX} printable characters; correct it, or leave it out with columns="
            )
        scanned = Scanned(name, name in options.text, name == self._label)
        self._scanned[name] = scanned
        return scanned

    def add(self, piece: Piece) -> None:
        """Notes these rows."""
        self.rows += len(piece)
        if self._label is not None:
            self._scanned[self._label].note_classes(piece, piece.values(self._label))
        piece = self._of_split(piece)
        if not len(piece):
            return
        if self._options.columns is None:
            for name in piece.columns.keys() - self._scanned.keys() - {SPLIT}:
                # Rows before this one have no value.
                self._add_column(name).first["null"] = self._first
        for name, scanned in self._scanned.items():
            values = piece.values(name)
            scanned.add(piece, values)
            if self._is_image.get(name):
                self._is_image[name] = set(map(type, values)) == {str} and are_images(values)
        self._taken += len(piece)

    def _of_split(self, piece: Piece) -> Piece:
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
        declared = _declared(self._table)
        files = self._fields_of_paths()
        values: dict[str, tuple[str, Holds]] = {}
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
            values[field] = name, scanned.decided(options.floats, declared.get(name))
        return Plan(files, self._kinds(files), values, self._classes(values))

    def _fields_of_paths(self) -> dict[str, str]:
        if self._options.paths is not None:
            return dict(self._options.paths)
        fields: dict[str, str] = {}
        stems = {each: _ENDING.sub("", each) for each in self._paths}
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

    def _classes(self, values: dict[str, tuple[str, Holds]]) -> tuple[str, ...] | None:
        if self._label is None or values[LABEL][1].what != "classes":
            return None
        return tuple(sorted(self._scanned[self._label].classes))


def rows_of_split(piece: Piece, split: str) -> Piece:
    """The rows whose column `split` has this value."""
    values = piece.values(SPLIT)
    return piece.select([row for row, each in enumerate(values) if str(each) == split])


def _declared(table: str) -> dict[str, str]:
    if os.path.splitext(table)[1].lower() != ".parquet":
        return {}
    from headrace.formats._tables.parquet_rows import declared_types

    return declared_types(table)


class Writer:
    """The second pass: adds the samples to the builder."""

    def __init__(self, builder: Builder, plan: Plan, files: Files, options: Options) -> None:
        self._builder = builder
        self._plan = plan
        self._files = files
        self._options = options
        self._undecoded = Undecoded()
        self._rows = 0
        self._added = 0
        self._numbers = {name: number for number, name in enumerate(plan.classes or ())}
        for field, kind in plan.kinds.items():
            is_sound = field in options.sounds
            of = "image" if kind == "image" else "bytes"
            builder.add_field(field, of, decoded_sizes=is_sound)  # type: ignore[arg-type]
        for field, (_, holds) in plan.values.items():
            add_field(builder, field, holds)
        if plan.classes is not None:
            builder.set_classes(plan.classes)

    def add(self, piece: Piece) -> None:
        """Adds the rows whose files are there."""
        if self._options.split is not None:
            piece = rows_of_split(piece, self._options.split)
        self._rows += len(piece)
        found = {
            field: self._files.look_up(piece.values(column), piece.where)
            for field, column in self._plan.files.items()
        }
        are_there = np.logical_and.reduce([each.are_there for each in found.values()])
        kept = np.flatnonzero(are_there).tolist()
        self._files.missing += len(piece) - len(kept)
        if self._files.missing and not self._options.skips:
            return  # It only counts what else is missing.
        piece = piece.select(kept)
        if not kept:
            return
        for field, each in found.items():
            files = each.select(kept)
            numbers, sizes = self._files.add(files)
            decoded = None
            if field in self._options.sounds:
                decoded = sound_sizes(map(_sound, files.paths, sizes.tolist()), self._undecoded)
            self._builder.add_extents(field, numbers, 0, sizes, decoded=decoded)
        for field, (column, holds) in self._plan.values.items():
            values = piece.values(column)
            add_values(self._builder, field, holds, values, self._numbers, piece.where)
        self._added += len(kept)
        self._builder.tell(self._added)

    def end(self, table: str) -> None:
        """Refuses missing files, if they are not to be left out."""
        self._files.end(self._rows, table, self._options.skips, self._undecoded)


def _sound(path: str, size: int) -> tuple[Read, int, str]:
    def read(at: int, count: int) -> bytes:
        with file_reader(path) as (own, _):
            return own(at, count)

    return read, size, path
