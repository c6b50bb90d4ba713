"""The rows of a Parquet table, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.formats._arrow_types.fields import bytes_of, entries_of, number_of
from headrace.formats._parquet.files import arrow, opened
from headrace.formats._tables.row_piece import RowPiece

Values = dict[str, list[Any]]


def parquet_pieces(path: str, rows_at_once: int) -> Iterator[RowPiece]:
    """The rows; a column has the values that pyarrow gives for it."""
    pyarrow = arrow()
    position = 0
    schema = _schema(path)
    blobs = {field.name for field in schema if _has_bytes(pyarrow, field.type)}
    names = [name for name in schema.names if name not in blobs]
    for rows, values in _batches(path, names, rows_at_once):
        # Bytes are never a value of a manifest, and may be large: they are not read.
        columns = {name: values.get(name, [b""] * rows) for name in schema.names}
        places = list(range(position, position + rows))
        position += rows
        yield RowPiece(path, columns, places, None, typed=True)


def declared_types(path: str) -> dict[str, str]:
    """The types of the numbers of columns, and of columns with lists of them, as NumPy names them.

    Those inside a column with fields are named as `read_pieces` names them.
    """
    pyarrow = arrow()
    declared: dict[str, str] = {}

    def add(name: str, arrow_type: Any) -> None:
        while (entries := entries_of(arrow_type)) is not None:
            arrow_type = entries
        if pyarrow.types.is_struct(arrow_type):
            for part in arrow_type:
                add(f"{name}_{part.name}", part.type)
            return
        number = number_of(arrow_type, times=False)
        if number not in (None, "bool", "uint64"):
            declared[name] = str(number)

    for field in _schema(path):
        add(field.name, field.type)
    return declared


def _schema(path: str) -> Any:
    with opened(path) as file:
        return file.schema_arrow


def _has_bytes(pyarrow: Any, arrow_type: Any) -> bool:
    if pyarrow.types.is_struct(arrow_type):
        return any(_has_bytes(pyarrow, part.type) for part in arrow_type)
    entries = entries_of(arrow_type)
    if entries is not None:
        return _has_bytes(pyarrow, entries)
    of_bytes = bytes_of(arrow_type)
    return of_bytes is not None and of_bytes[0] == "bytes"


def _batches(path: str, names: list[str], rows_at_once: int) -> Iterator[tuple[int, Values]]:
    """The rows of each batch, and their values by column."""
    with opened(path) as file:
        for batch in file.iter_batches(batch_size=rows_at_once, columns=names):
            columns = zip(batch.schema.names, batch.columns, strict=True)
            yield batch.num_rows, {name: column.to_pylist() for name, column in columns}
