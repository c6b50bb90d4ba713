"""How the cells of CSV and TSV are written, and what in them may be a mistake."""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace._arguments import shown
from headrace.errors import InvalidArgumentError
from headrace.formats._base.findings import Finding, FindingCounts, callers_level
from headrace.formats._base.format import Format, written

_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")
ABSENT_WORDS = {"NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none", "nil", "-", "?"}
"""Cells that stand for no value in tables of other programs."""
_HEADER_SHOWN = 1000  # characters
_LONG_LINES = 10  # of a quoted value, of which most are like rows


@dataclass(frozen=True)
class Cells:
    """The options of `Manifest` that say how cells are written."""

    delimiter: str | None = None
    """None: by the suffix."""
    quote: str | None = '"'
    strip: bool = False
    absent: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises InvalidArgumentError for values that cannot be."""
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote)):
            is_one = isinstance(value, str) and len(value.encode(errors="replace")) == 1
            if value is not None and (not is_one or value in "\r\n\0"):
                raise InvalidArgumentError(
                    f"manifest {name}: got {shown(value)}, must be one ASCII character, such as "
                    f"{name}={';' if name == 'delimiter' else chr(34)!r}, or None"
                )
        if self.delimiter is not None and self.delimiter == self.quote:
            raise InvalidArgumentError(
                f"manifest quote: got {self.quote!r}, which is the delimiter, too; cells without "
                "quotes: quote=None"
            )
        if not isinstance(self.strip, bool):
            raise InvalidArgumentError(
                f"manifest strip: got {shown(self.strip)}, must be True or False"
            )

    def taken(self, columns: list[list[str]]) -> list[list[str]]:
        """Cells as they count: without blanks, and empty where they say so."""
        if self.strip:
            columns = [[cell.strip() for cell in cells] for cells in columns]
        if self.absent:
            none = set(self.absent)
            columns = [["" if cell in none else cell for cell in cells] for cells in columns]
        return columns

    def delimiter_of(self, path: str) -> str:
        """What divides the cells of this table."""
        if self.delimiter is not None:
            return self.delimiter
        return "\t" if os.path.splitext(path)[1].lower() == ".tsv" else ","

    def reader(self, lines: Any, path: str) -> Any:
        """A reader of its rows."""
        delimiter = self.delimiter_of(path)
        if self.quote is None:
            return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(
            lines,
            delimiter=delimiter,
            quotechar=self.quote,
            strict=True,
            skipinitialspace=self.strip,
        )


def column_names(path: str, header: list[str], delimiter: str) -> list[str]:
    """The names of the columns: those of the header; where a cell is empty, by its number.

    pandas writes its index so; where its columns have no names either, their numbers follow.
    """
    if not header:
        raise InvalidArgumentError(
            f"indexing {path}: line 1 must name the columns; it is empty; write a line with the "
            "names, divided as the cells are, as line 1"
        )
    numbered = [str(number) for number in range(len(header) - 1)]
    if not header[0].strip() and header[1:] == numbered and numbered:
        return ["column1", *(f"column{number}" for number in range(2, len(header) + 1))]
    names = [cell if cell.strip() else f"column{at}" for at, cell in enumerate(header, 1)]
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidArgumentError(
                f"indexing {path}: line 1 names the column {name!r} {count} "
                "times; give each column a name of its own"
            )
    for position, name in enumerate(names, 1):
        if _NUMBER.fullmatch(name):
            example = delimiter.join(f"column{number}" for number in range(1, len(names) + 1))
            raise InvalidArgumentError(
                f"indexing {path}: line 1 must name the columns; cell {position} is {name!r}; if "
                f"it is a name, write it with a letter, as 'y{name}'; otherwise add a header: a "
                f"line in front of it, such as {example[:_HEADER_SHOWN]}"
            )
    return names


def check_delimiter(path: str, header: Sequence[str], second: str, row: Format | None) -> None:
    """Raises if line 1 has one cell, and it and line 2 look as if divided by something else."""
    if len(header) != 1 or row is None:
        return
    for delimiter, name in _DELIMITERS.items():
        widths = {len(_cells_of(line, delimiter)) for line in (header[0], second)}
        if len(widths) == 1 and max(widths) > 1:
            other = "," if delimiter != "," else "\t"
            raise InvalidArgumentError(
                f"indexing {path}: line 1, {header[0]!r:.200}, is one cell, but looks as if "
                f"separated by {name}: give format={written(row, delimiter=delimiter)}; if it is "
                f"one cell: give format={written(row, delimiter=other)}"
            )


def _cells_of(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


@dataclass
class Oddities:
    """What in a table may be a mistake, of which a warning tells and `Dataset.report`."""

    counts: FindingCounts = field(default_factory=FindingCounts)
    columns: dict[str, dict[str, None]] = field(default_factory=dict)
    """By kind the columns."""

    def add(self, kind: str, example: str, column: str | None = None) -> None:
        """Counts one; the first few are examples."""
        self.counts.add(kind, example)
        if column is not None:
            self.columns.setdefault(kind, {})[column] = None

    def note_header(self, names: Sequence[str]) -> None:
        """Notes names with blanks around them."""
        for name in names:
            if name != name.strip():
                self.add("blanks", name)

    def note_lines(self, row: Sequence[str], delimiter: str, line: int) -> None:
        """Notes values of a row over several lines that look like rows themselves."""
        for at, cell in enumerate(row):
            if "\n" in cell and _is_like_rows(cell, delimiter, at, len(row)):
                self.add("rows_in_quotes", f"line {line:,}")

    def report(self, into: FindingCounts) -> None:
        """Has `Dataset.report` name them."""
        into.by_kind.update(self.counts.by_kind)

    def warn(self, table: str, row: Any) -> None:
        """One warning, with what to type."""
        said = []
        for kind, (count, examples) in self.counts.by_kind.items():
            columns = tuple(self.columns.get(kind, ()))
            options: dict[str, Any] | None = {"text": (*row.text, *columns)}
            if kind == "blanks":
                options = {"strip": True}
            elif kind == "rows_in_quotes":
                options = {"quote": None}
            elif kind == "numbers_as_text":
                options = {"absent": (*row.absent, *columns)}
            elif kind == "too_large":
                options = {"floats": "float64"}
            elif kind == "member_twice":
                options = None
            way_out = _WHY[kind] if options is None else f"{_WHY[kind]}: {_format(row, options)}"
            said.append(f"{Finding(kind, count, tuple(examples))}; {way_out}")
        if said:
            warnings.warn(
                f"headrace: indexing {table}: {'. '.join(said)}",
                RuntimeWarning,
                stacklevel=callers_level(),
            )


def _format(row: Any, options: dict[str, Any]) -> str:
    return f"format={written(row, **options)}"


_WHY = {
    "member_twice": "write each member once",
    "blanks": "to take blanks off names and cells",
    "rows_in_quotes": "if the quotes are part of the text",
    "infinite": "to keep the column as text",
    "too_large": "for numbers of 64 bits",
    "numbers_as_text": "if these cells have no value",
    "spellings": "if they are different names, keep the column as text",
}
"""By kind of finding what the way out is for."""


def _is_like_rows(cell: str, delimiter: str, at: int, width: int) -> bool:
    """Whether the lines of a cell, the one at `at` of its row, may be rows themselves."""
    if width == 1 or (delimiter == "," and ", " in cell):  # Prose has blanks behind commas.
        return False
    counts = [line.count(delimiter) for line in cell.split("\n")]
    inner = sum(count == width - 1 for count in counts[1:-1])
    if counts[0] == width - 1 - at and counts[-1] == at and inner == len(counts) - 2:
        return sum(counts) > 0
    return len(counts) > _LONG_LINES and inner > 0.8 * len(counts)


def bare_number(cell: str) -> str | None:
    """A number without zeros at its end; None of one without a fraction, or with an exponent."""
    whole, point, fraction = cell.partition(".")
    short = fraction.rstrip("0")
    return f"{whole}.{short}" if point and short.isdigit() else None
