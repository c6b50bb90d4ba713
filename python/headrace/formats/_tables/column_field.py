"""The values that the fields of a table hold, as they are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.absent import NOT_GIVEN, valid_field
from headrace.formats._base.builder import Builder
from headrace.formats._tables.row_piece import RowPiece

NAMES = {
    "NoneType": "null", "bool": "bool", "int": "integer", "float": "float", "str": "text",
    "list": "list", "dict": "object",
}  # fmt: skip


@dataclass(frozen=True)
class ColumnField:
    """What a column's field is."""

    what: str
    """text, classes, number or list."""
    dtype: str = "int64"
    shape: tuple[int, ...] = ()
    stand_in: Any = NOT_GIVEN
    """Of rows without a value."""
    is_optional: bool = False
    """Whether another field says which rows have a value."""

    def filled(self, values: list[Any], typed: bool) -> tuple[list[Any], np.ndarray[Any, Any]]:
        """Values, with what stands for those that are absent; which rows have one."""
        absent = None if typed else ""
        valid = np.array([value != absent for value in values], np.bool_)
        if self.stand_in is NOT_GIVEN or valid.all():
            return values, valid
        own = self.stand_in
        if self.what == "classes" and not isinstance(own, str):
            own = None  # `add_values` has it among the classes.
        elif not typed and self.what == "number":
            own = repr(own)  # As the others are.
        return [own if value == absent else value for value in values], valid


def add_field(builder: Builder, name: str, column_field: ColumnField) -> None:
    """Adds the inline field, and the one that says which rows have it."""
    if column_field.what == "text":
        builder.add_field(name, "text", inline=True)
    elif column_field.what == "list":
        builder.add_field(
            name, "array", column_field.dtype, (None, *column_field.shape), inline=True
        )
    else:
        builder.add_field(name, "array", column_field.dtype, inline=True)
    if column_field.is_optional:
        builder.add_field(valid_field(name), "array", "bool", inline=True)


def add_values(
    builder: Builder,
    name: str,
    column_field: ColumnField,
    values: list[Any],
    classes: dict[str, int],
    piece: RowPiece,
) -> None:
    """Adds rows of a field: their values in the piece.

    Raises:
        FailedPreconditionError: the values are not of the types that the first pass saw.
    """
    values, valid = column_field.filled(values, piece.typed)
    if column_field.is_optional:
        builder.add_values(valid_field(name), valid)
    try:
        if column_field.what == "text":
            encoded = [text.encode() for text in _texts(values, name, piece)]
            builder.add_ragged(name, b"".join(encoded), list(map(len, encoded)))
        elif column_field.what == "classes":
            builder.add_values(name, _labels(values, classes, column_field))
        elif column_field.what == "list":
            flat = flat_list(values, column_field.shape)
            if isinstance(flat, str):
                raise _changed(piece, name, flat)
            entries = _numbers(flat[0], column_field.dtype).reshape(-1, *column_field.shape)
            builder.add_ragged(name, entries, list(map(len, values)))
        else:
            builder.add_values(name, _numbers(values, column_field.dtype))
    except UnicodeEncodeError as error:
        row = next(i for i, value in enumerate(values) if not _is_unicode(value))
        raise InvalidArgumentError(
            f"{piece.where(row)}: {name!r} is no valid Unicode: half of a surrogate pair; correct "
            "it, or leave the column out with columns="
        ) from error
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
        raise _changed(piece, name, type(error).__name__) from error


def _changed(piece: RowPiece, name: str, why: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{piece.where(0)}: {name!r} is not what it was in a first pass over the table ({why}); "
        "index it again when nothing writes to it"
    )


def _labels(
    values: list[Any], classes: dict[str, int], column_field: ColumnField
) -> np.ndarray[Any, Any]:
    if column_field.stand_in is not NOT_GIVEN and not isinstance(column_field.stand_in, str):
        classes = {**classes, None: column_field.stand_in}  # type: ignore[dict-item]
    return np.array([classes[value] for value in values], np.int64)


def as_text(value: Any) -> str:
    """The value of a text field: a text itself, or its JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _texts(values: list[Any], column: str, piece: RowPiece) -> list[str]:
    texts = list(map(as_text, values))
    if piece.typed and piece.offsets is not None:
        for row, text in enumerate(texts):
            if "Infinity" in text and not isinstance(values[row], str):
                texts[row] = piece.as_written(row, column)[0]
    return texts


def _numbers(values: list[Any], dtype: str) -> np.ndarray[Any, Any]:
    if values and isinstance(values[0], str):
        values = list(map(float if dtype.startswith("float") else int, values))
    with np.errstate(over="ignore"):  # `note_infinite` has told of them.
        return np.array(values, dtype)


def _is_unicode(value: Any) -> bool:
    try:
        as_text(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def flat_list(
    lists: list[list[Any]], shape: tuple[int, ...] | None
) -> tuple[list[Any], tuple[int, ...]] | str:
    """The numbers in the lists and the shape of an entry, or why there is none.

    `shape`: of entries of other rows, if known.
    """
    leaves: list[Any] = list(chain.from_iterable(lists))
    own_shape: list[int] = []
    while list in (kinds := set(map(type, leaves))):
        if len(kinds) > 1:
            return "of numbers beside lists"
        sizes = set(map(len, leaves))
        if len(sizes) > 1:
            return f"whose inner lists differ in length: {min(sizes)} and {max(sizes)}"
        if sizes == {0}:
            return "of empty lists"
        own_shape.append(sizes.pop())
        leaves = list(chain.from_iterable(leaves))
    others = kinds - {int, float, bool}
    if others:
        return f"of {NAMES.get(*[others.pop().__name__] * 2)}"
    if leaves and shape is not None and tuple(own_shape) != shape:
        return f"of entries of shape {own_shape}, in other rows of {list(shape)}"
    return leaves, tuple(own_shape)
