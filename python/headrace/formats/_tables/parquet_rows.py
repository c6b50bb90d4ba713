"""The rows of a Parquet table, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace._text import unread_reason
from headrace.errors import DataLossError, FailedPreconditionError, HeadraceError, NotFoundError
from headrace.formats._arrow_types.fields import bytes_of, entries_of, number_of
from headrace.formats._tables.row_piece import RowPiece


def parquet_pieces(path: str, rows_at_once: int) -> Iterator[RowPiece]:
    """The rows; a column has the values that pyarrow gives for it."""
    pyarrow = _pyarrow()
    position = 0
    with _reading(path):
        schema = pyarrow.parquet.read_schema(path)
    blobs = {field.name for field in schema if _has_bytes(pyarrow, field.type)}
    names = [name for name in schema.names if name not in blobs]
    for batch in _batches(path, names, rows_at_once):
        with _reading(path):
            values = {
                name: column.to_pylist()
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
        # Bytes are never a value of a manifest, and may be large: they are not read.
        columns = {name: values.get(name, [b""] * batch.num_rows) for name in schema.names}
        places = list(range(position, position + batch.num_rows))
        position += batch.num_rows
        yield RowPiece(path, columns, places, None, typed=True)


def declared_types(path: str) -> dict[str, str]:
    """The types of the numbers of columns, and of columns with lists of them, as NumPy names them.

    Those inside a column with fields are named as `read_pieces` names them.
    """
    pyarrow = _pyarrow()
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

    with _reading(path):
        schema = pyarrow.parquet.read_schema(path)
    for field in schema:
        add(field.name, field.type)
    return declared


def _has_bytes(pyarrow: Any, arrow_type: Any) -> bool:
    if pyarrow.types.is_struct(arrow_type):
        return any(_has_bytes(pyarrow, part.type) for part in arrow_type)
    entries = entries_of(arrow_type)
    if entries is not None:
        return _has_bytes(pyarrow, entries)
    of_bytes = bytes_of(arrow_type)
    return of_bytes is not None and of_bytes[0] == "bytes"


def _batches(path: str, names: list[str], rows_at_once: int) -> Iterator[Any]:
    pyarrow = _pyarrow()
    with _reading(path):
        file = pyarrow.parquet.ParquetFile(path)
    with file:
        batches = file.iter_batches(batch_size=rows_at_once, columns=names)
        while True:
            with _reading(path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


class _reading:  # noqa: N801  # Used as a function.
    """Turns errors of pyarrow into those of headrace."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None or isinstance(error, HeadraceError) or not isinstance(error, Exception):
            return
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(f"indexing {self._path}: no such file") from error
        if isinstance(error, PermissionError):
            raise FailedPreconditionError(
                f"indexing {self._path}: {unread_reason(error)}"
            ) from error
        raise DataLossError(
            f"indexing {self._path}: pyarrow cannot read it: {str(error).splitlines()[0]:.200}; "
            "copy or write the file again"
        ) from error


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ImportError(
            "a manifest in Parquet needs pyarrow: pip install 'headrace[pack]'"
        ) from error
    return pyarrow
