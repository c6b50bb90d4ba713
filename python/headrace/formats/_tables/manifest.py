"""Manifests: tables with one row a sample, which name its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from headrace import _places
from headrace._arguments import choice, items, shown
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.formats._base.absent import check_absent
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format, later_option
from headrace.formats._base.sounds import check_sounds
from headrace.formats._files.patterns import expand
from headrace.formats._indexing.recorded import file_state
from headrace.formats._tables.cells import Cells, Oddities
from headrace.formats._tables.files import Files
from headrace.formats._tables.pieces import SUFFIXES, read_pieces
from headrace.formats._tables.row_piece import RowPiece
from headrace.formats._tables.scan import Options, Plan, Scan, have_files, holds_bytes
from headrace.formats._tables.writer import Writer

_FOLDER_FILES = ("metadata", "manifest")
_TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
_HEAD_ROWS = 50


@dataclass(frozen=True, kw_only=True)
class Manifest(Format):
    """A table with a row a sample, which names its files: `headrace docs formats/manifests`.

    >>> hr.open("train.csv", format=Manifest(folder="images", labels="species"))
    """

    name: ClassVar[str] = "manifest"
    opens: ClassVar[str] = "a table that names a file a row (.csv, .tsv, .jsonl, .parquet)"

    paths: Mapping[str, str] | None = field(default=None, hash=False)
    """By field, the column that names its file; None: recognised."""
    folder: str | None = None
    """What paths are relative to; None: the table's folder. It may be relative to that, too."""
    columns: tuple[str, ...] | None = None
    """The columns to take; None: all."""
    labels: str | None = None
    """The column that becomes `label`; None: `label`. Texts are numbered in sorted order."""
    text: tuple[str, ...] = ()
    """Columns that stay text, whatever they hold; lists and objects as JSON."""
    split: str | None = None
    """Take the rows whose column `split` has this value."""
    missing: str = "refuse"
    """What to do with rows whose files are missing: "refuse" or "skip"."""
    sounds: tuple[str, ...] = ()
    """Fields of WAV and FLAC files whose lengths the index shall record, for
    `headrace.audio.whole`."""
    floats: str = "float64"
    """The type of numbers with fractions: "float64" or "float32"; not for Parquet."""
    fill: Mapping[str, Any] | None = later_option(None, hash=False)  # type: ignore[assignment]
    """By column, the value of rows that have none."""
    optional: tuple[str, ...] = later_option(())
    """Columns that rows may lack: an extra field, NAME_valid, says which rows have a value. The
    others get that of `fill`, else 0 or an empty value."""
    absent: tuple[str, ...] = later_option(())
    """Cells of CSV and TSV that count as empty, such as "NA"."""
    delimiter: str | None = later_option(None)
    """What separates cells; None: a comma, or a tab in .tsv."""
    quote: str | None = later_option('"')
    """The character that may quote cells; None: none, so quotes are part of the text."""
    strip: bool = later_option(False)
    """Whether blanks around names and cells of CSV and TSV are removed."""

    def recognises(self, path: str) -> bool:
        try:
            if _places.is_folder(path):
                table = _table_in(path)
                return table is not None and have_files(_head(table), path)
            first = expand(path)[0]
            if not first.lower().endswith(SUFFIXES) or not _places.is_file(first):
                return False
            if first.lower().endswith(_TEXT_SUFFIXES):
                return True
            head = _head(first)
            return have_files(head, os.path.dirname(first)) and not holds_bytes(head)
        except (DataLossError, InvalidArgumentError, FailedPreconditionError, NotFoundError):
            return False
        except ImportError:
            return False

    def takes(self, name: str) -> bool:
        return name.lower().endswith(_TEXT_SUFFIXES)

    def root(self, path: str) -> str:
        base = os.path.dirname(self._tables(path)[0])
        return base if self.folder is None else _places.absolute(_places.joined(base, self.folder))

    def _tables(self, path: str) -> list[str]:
        if not _places.is_folder(path):
            return expand(path)
        table = _table_in(path)
        if table is None:
            raise InvalidArgumentError(
                f"indexing {path}: the folder has no table, metadata or manifest with a suffix of "
                f"{', '.join(SUFFIXES)}, or several; open the file itself"
            )
        return [table]

    def _index_into(self, path: str, builder: Builder) -> None:
        self._check_options()
        tables = self._tables(path)
        states = [file_state(table) for table in tables]
        for table in tables:
            builder.depends_on(table)
        if _places.is_folder(path):
            builder.depends_on(path)
        odd = Oddities()
        plan = self._plan(tables, builder.tell, odd)
        check_sounds(path, self.sounds, dict.fromkeys(plan.values, "values") | plan.kinds)
        files = Files(builder, self.root(path), "folder=")
        writer = Writer(builder, plan, files, self._options())
        for table in tables:
            for piece in self._pieces(table):
                writer.add(piece)
        if [file_state(table) for table in tables] != states:
            raise FailedPreconditionError(
                f"indexing {path}: the table changed while it was read; index it again when "
                "nothing writes to it"
            )
        odd.warn(path, self)
        writer.end(path, odd)

    def _check_options(self) -> None:
        choice("manifest missing", self.missing, ("refuse", "skip"))
        choice("manifest floats", self.floats, ("float64", "float32"))
        check_absent("manifest", self.fill, self.optional)
        self._cells().check()
        for name in ("columns", "text", "absent"):
            value: Any = getattr(self, name)
            if value is not None and not all(isinstance(x, str) for x in items(name, value, "str")):
                raise InvalidArgumentError(f"manifest {name}: got {shown(value)}, must be names")
        paths: Any = self.paths
        if paths is not None and not (
            isinstance(paths, Mapping)
            and paths
            and all(isinstance(text, str) for text in (*paths, *paths.values()))
        ):
            raise InvalidArgumentError(
                f"manifest paths: got {shown(paths)}, must be columns by field: "
                'paths={"image": "file_name"}'
            )

    def _options(self) -> Options:
        return Options(
            row=self,
            paths=self.paths,
            columns=self.columns,
            folder=self.folder,
            label=self.labels,
            text=tuple(self.text),
            split=self.split,
            skips=self.missing == "skip",
            floats=self.floats,
            sounds=tuple(self.sounds),
            fill=self.fill or {},
            optional=tuple(self.optional),
        )

    def _cells(self) -> Cells:
        return Cells(self.delimiter, self.quote, self.strip, tuple(self.absent))

    def _pieces(self, table: str, odd: Oddities | None = None) -> Iterator[RowPiece]:
        return read_pieces(table, None, tuple(self.text), self._cells(), odd, self)

    def _plan(
        self, tables: list[str], tell: Callable[[int], None], odd: Oddities | None = None
    ) -> Plan:
        """The first pass: what each column holds; `odd` takes what may be a mistake."""
        odd = odd or Oddities()
        scan: Scan | None = None
        for table in tables:
            for piece in self._pieces(table, odd):
                if scan is None:
                    scan = Scan(piece, self.root(table), self._options(), odd)
                scan.add(piece)
                tell(scan.rows)
        if scan is None:
            raise InvalidArgumentError(
                f"indexing {tables[0]}: it has no rows; open a table that has some"
            )
        return scan.planned()


def names_files(table: str, folder: str) -> bool:
    """Whether the first rows of a table name files that are below a folder."""
    try:
        return have_files(_head(table), folder)
    except HeadraceError:
        return False


def _head(path: str) -> RowPiece | None:
    return next(islice(read_pieces(path, _HEAD_ROWS), 1), None)


def _table_in(folder: str) -> str | None:
    """The one table in a folder of files, or of files and one folder; else None.

    A folder with several folders may be one with a folder for each class, unless its table is named
    manifest.
    """
    with _places.entries(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    tables = []
    for entry in visible:
        stem, suffix = os.path.splitext(entry.name)
        if stem in _FOLDER_FILES and suffix in SUFFIXES and entry.is_file():
            tables.append(entry.name)
    if len(tables) != 1:
        return None
    if not tables[0].startswith("manifest.") and sum(entry.is_dir() for entry in visible) > 1:
        return None
    return os.path.join(folder, tables[0])
