"""Rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace import _places
from headrace.formats._json.infinite import as_written, decoded


@dataclass(frozen=True)
class RowPiece:
    """Consecutive rows of a table: by column, the value of each; None: a row has none."""

    path: str
    columns: dict[str, list[Any]]
    places: Sequence[int]
    """Of each row: its first line, from 1; of Parquet its number, from 0."""
    offsets: Sequence[int] | None
    """Where in the file each row begins, in bytes; None: unknown."""
    typed: bool
    """Whether values have types. Otherwise each is a text that may be a number."""

    def __len__(self) -> int:
        return len(self.places)

    def values(self, column: str) -> list[Any]:
        """The values of a column; None for each row if no row has it."""
        return self.columns.get(column) or [None] * len(self)

    def select(self, rows: list[int]) -> RowPiece:
        """These rows alone."""
        if len(rows) == len(self):
            return self
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        offsets = None if self.offsets is None else [self.offsets[row] for row in rows]
        places = [self.places[row] for row in rows]
        return RowPiece(self.path, columns, places, offsets, self.typed)

    def as_written(self, row: int, column: str) -> tuple[str, bool]:
        """The JSON of a value in a file of JSON, with numbers that float64 cannot hold as the line
        has them; and whether there are any."""
        if self.offsets is None:
            return "", False
        with _places.open(self.path) as file:
            file.seek(self.offsets[row])
            line = decoded(file.readline().decode("utf-8-sig"))
        return as_written(_value_of(line, column))

    def where(self, row: int) -> str:
        """Where the row is, for errors."""
        if self.offsets is None:
            return f"indexing {self.path}: row {self.places[row]:,}"
        return f"indexing {self.path}: line {self.places[row]:,} (byte {self.offsets[row]:,})"


def _value_of(row: dict[str, Any], column: str) -> Any:
    """The value of a column, whose name may be that of objects in each other (`read_pieces`)."""
    if column in row:
        return row[column]
    inner = ((key, member) for key, member in row.items() if isinstance(member, dict))
    candidates = (
        _value_of(member, column.removeprefix(f"{key}_"))
        for key, member in inner
        if column.startswith(f"{key}_")
    )
    return next((value for value in candidates if value is not None), None)
