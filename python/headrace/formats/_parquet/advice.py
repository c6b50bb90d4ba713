"""What to do about nulls in Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.formats._base.absent import left_out, ways_out
from headrace.formats._base.format import Format
from headrace.formats._parquet.parquet_column import ParquetColumn

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TYPED_MAX = 60  # characters of a value that a message advises to type
_GROUPS_MAX = 8  # that are looked at
_ROWS_AT_ONCE = 65_536


class NullAdvice:
    """What to do about nulls of a column, in words behind the error."""

    def __init__(
        self,
        row: Format,
        file: pq.ParquetFile,
        columns: Sequence[ParquetColumn],
        beside: Sequence[str] = (),
    ) -> None:
        """`beside`: columns that folders name."""
        self._row, self._file, self._columns, self._beside = row, file, columns, beside

    def __call__(self, column: ParquetColumn, inside: bool) -> str:
        """`inside`: they are in its lists, not in rows."""
        names = list(dict.fromkeys([*(column.name for column in self._columns), *self._beside]))
        embed = ""
        if column.child is not None:
            embed = "if they are files, write their bytes into the table, with datasets: "
            embed += "embed_external_files=True; or "
        if inside or column.kind == "image":
            left = left_out(self._row, [column.name], names)
            return f"{embed}write the file without{left}"
        lack = {column.name, *self._others_that_lack(column)}
        lacking = {x.name: short_zero(x) for x in self._columns if x.name in lack}
        return embed + ways_out(self._row, lacking, names)

    def _others_that_lack(self, column: ParquetColumn) -> set[str]:
        """The other columns that have nulls in the first row groups, for which nothing stands.

        Their values are read: what pyarrow says of a column of a row group ends the process if the
        file is damaged (footer.py).
        """
        others = [
            other
            for other in self._columns
            if other is not column
            and not (other.has_stand_in or other.kind == "image" or other.shape or other.child)
        ]
        if not others:
            return set()
        batches = self._file.iter_batches(
            batch_size=_ROWS_AT_ONCE,
            row_groups=range(min(self._file.metadata.num_row_groups, _GROUPS_MAX)),
            columns=[other.name for other in others],
            use_threads=False,
        )
        lacking: set[str] = set()
        for batch in batches:
            columns = zip(batch.schema.names, batch.columns, strict=True)
            lacking.update(name for name, values in columns if values.null_count)
            if len(lacking) == len(others):
                break
        return lacking


def short_zero(column: ParquetColumn) -> Any:
    """What may stand for a value; None: nothing does, or it is too much to type."""
    zero = None if column.kind == "image" else column.zero
    return zero if len(repr(zero)) <= _TYPED_MAX else None
