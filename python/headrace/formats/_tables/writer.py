"""The second pass over a table, which adds its samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats._base.builder import Builder
from headrace.formats._base.findings import FindingCounts
from headrace.formats._base.format import written
from headrace.formats._base.sounds import sound_sizes
from headrace.formats._files.npy import Read
from headrace.formats._files.reading import file_reader
from headrace.formats._tables.cells import Oddities
from headrace.formats._tables.column_field import add_field, add_values
from headrace.formats._tables.files import Files
from headrace.formats._tables.row_piece import RowPiece
from headrace.formats._tables.scan import Options, Plan, names_of_files, rows_of_split


class Writer:
    """Adds the samples to the builder."""

    def __init__(self, builder: Builder, plan: Plan, files: Files, options: Options) -> None:
        self._builder = builder
        self._plan = plan
        self._files = files
        self._options = options
        self._undecoded = FindingCounts()
        self._rows = 0
        self._added = 0
        self._numbers = {name: number for number, name in enumerate(plan.classes or ())}
        for field, kind in plan.kinds.items():
            is_sound = field in options.sounds
            of = "image" if kind == "image" else "bytes"
            builder.add_field(field, of, decoded_sizes=is_sound)  # type: ignore[arg-type]
        for field, (_, column_field) in plan.values.items():
            add_field(builder, field, column_field)
        if plan.classes is not None:
            builder.set_classes(plan.classes)

    def add(self, piece: RowPiece) -> None:
        """Adds the rows whose files are there."""
        if self._options.split is not None:
            piece = rows_of_split(piece, self._options.split)
        self._rows += len(piece)
        by_field = {
            field: self._files.look_up(
                names_of_files(piece.values(column), self._options, column), piece.where
            )
            for field, column in self._plan.files.items()
        }
        are_there = np.ones(len(piece), np.bool_)
        for of_field in by_field.values():
            are_there &= of_field.are_there
        kept = np.flatnonzero(are_there).tolist()
        self._files.missing += len(piece) - len(kept)
        if self._files.missing and not self._options.skips:
            return  # It only counts what else is missing.
        piece = piece.select(kept)
        if not kept:
            return
        for field, of_field in by_field.items():
            files = of_field.select(kept)
            numbers, sizes = self._files.add(files)
            decoded = None
            if field in self._options.sounds:
                decoded = sound_sizes(map(_sound, files.paths, sizes.tolist()), self._undecoded)
            self._builder.add_extents(field, numbers, 0, sizes, decoded=decoded)
        for field, (column, column_field) in self._plan.values.items():
            values = piece.values(column)
            add_values(self._builder, field, column_field, values, self._numbers, piece)
        self._added += len(kept)
        self._builder.tell(self._added)

    def end(self, table: str, odd: Oddities) -> None:
        """Refuses missing files, if they are not to be left out; notes what is odd."""
        odd.report(self._undecoded)
        row: Any = self._options.row
        columns = self._plan.files.values() if self._options.paths is None else ()
        as_text = written(row, text=(*row.text, *columns)) if columns else None
        self._files.end(self._rows, table, row, self._undecoded, as_text)


def _sound(path: str, size: int) -> tuple[Read, int, str]:
    def read(at: int, count: int) -> bytes:
        with file_reader(path) as (own, _):
            return own(at, count)

    return read, size, path
