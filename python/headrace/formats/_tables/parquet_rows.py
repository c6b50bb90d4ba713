"""The rows of a Parquet table, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace._text import unread_reason
from headrace.errors import DataLossError, FailedPreconditionError, HeadraceError, NotFoundError
from headrace.formats._tables.piece import Piece


def parquet_pieces(path: str, rows_at_once: int) -> Iterator[Piece]:
    """The rows; a column has the values that pyarrow gives for it."""
    pyarrow = _pyarrow()
    position = 0
    with _reading(path):
        schema = pyarrow.parquet.read_schema(path)
    blobs = {each.name for each in schema if _has_bytes(pyarrow, each.type)}
    for batch in _batches(path, [each for each in schema.names if each not in blobs], rows_at_once):
        with _reading(path):
            values = {
                name: column.to_pylist()
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
        # Bytes are never a value of a manifest, and may be large: they are not read.
        columns = {name: values.get(name, [b""] * batch.num_rows) for name in schema.names}
        places = list(range(position, position + batch.num_rows))
        position += batch.num_rows
        yield Piece(path, columns, places, None, typed=True)


def declared_types(path: str) -> dict[str, str]:
    """The types of the numbers of columns, and of columns with lists of them, as NumPy names them.

    Those inside a column with fields are named as `read_pieces` names them.
    """
    pyarrow = _pyarrow()
    found: dict[str, str] = {}

    def add(name: str, kind: Any) -> None:
        while _is_list(pyarrow, kind):
            kind = kind.value_type
        if pyarrow.types.is_struct(kind):
            for each in kind:
                add(f"{name}_{each.name}", each.type)
        elif (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)) and (
            kind != pyarrow.uint64()
        ):
            found[name] = kind.to_pandas_dtype().__name__

    with _reading(path):
        schema = pyarrow.parquet.read_schema(path)
    for field in schema:
        add(field.name, field.type)
    return found


def _is_list(pyarrow: Any, kind: Any) -> bool:
    return bool(
        pyarrow.types.is_list(kind)
        or pyarrow.types.is_large_list(kind)
        or pyarrow.types.is_fixed_size_list(kind)
    )


def _has_bytes(pyarrow: Any, kind: Any) -> bool:
    if pyarrow.types.is_struct(kind):
        return any(_has_bytes(pyarrow, each.type) for each in kind)
    if _is_list(pyarrow, kind):
        return _has_bytes(pyarrow, kind.value_type)
    return bool(
        pyarrow.types.is_binary(kind)
        or pyarrow.types.is_large_binary(kind)
        or pyarrow.types.is_fixed_size_binary(kind)
    )


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
