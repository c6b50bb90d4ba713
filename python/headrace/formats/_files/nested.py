"""Lists of lists, and lists of texts: two fields of the index are one of the user's.

One has the values of a sample end to end, the other, hidden one the length of each inner list. So
orders, tiers, packs and workers see fields as any other, and batches put them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from headrace.errors import DataLossError

LENGTHS = "[lengths]"
"""Ends the name of the hidden field of a field of numbers or bytes: in entries, or bytes."""
TEXT_LENGTHS = "[text lengths]"
"""The same of a list of texts, whose values are kept as bytes: in bytes."""
LENGTHS_DTYPE = "uint32"
LENGTH_MAX = 2**32 - 1


def hidden_name(name: str, *, is_text: bool) -> str:
    """The name of the field that has the lengths of a nested field's inner lists."""
    return name + (TEXT_LENGTHS if is_text else LENGTHS)


def is_hidden_name(name: str) -> bool:
    """Whether the name is one that `hidden_name` makes."""
    return name.endswith((LENGTHS, TEXT_LENGTHS))


@dataclass(frozen=True)
class NestedField:
    """A field of the user's that is put together."""

    name: str
    values: int
    """The position of the field that has the values."""
    lengths: int
    """The position of the hidden field."""
    is_text: bool

    def row(
        self, values: Any, lengths: Any, convert: Callable[[Any], Any] | None = None
    ) -> list[Any]:
        """The inner lists of a sample: slices of `values`, or `str`; `convert` converts a slice.

        Raises DataLossError if the lengths are not those of the values, or a text is not UTF-8.
        """
        ends = list(accumulate(np.asarray(lengths).tolist(), initial=0))
        if ends[-1] != len(values):
            raise DataLossError(
                f"field {self.name}: its inner lists have {ends[-1]} entries, its values "
                f"{len(values)}; make the index again"
            )
        if self.is_text:
            data = bytes(values)
            try:
                return [data[begin:end].decode() for begin, end in pairwise(ends)]
            except UnicodeDecodeError as error:
                raise DataLossError(
                    f"field {self.name}: its text is not UTF-8 ({error.reason}); write it as "
                    "UTF-8, or leave the field out"
                ) from None
        slices = (values[begin:end] for begin, end in pairwise(ends))
        return list(slices if convert is None else map(convert, slices))


class Nesting:
    """Which fields, of those with these names in this order, are put together."""

    def __init__(self, names: Sequence[str]) -> None:
        position = {name: number for number, name in enumerate(names)}
        self.fields: tuple[NestedField, ...] = tuple(
            NestedField(name, number, position[name + suffix], suffix == TEXT_LENGTHS)
            for number, name in enumerate(names)
            for suffix in (LENGTHS, TEXT_LENGTHS)
            if name + suffix in position
        )
        hidden = {field.lengths for field in self.fields}
        self.visible: tuple[int, ...] = tuple(n for n in range(len(names)) if n not in hidden)
        """The positions of the fields that the user sees."""
        self.names: tuple[str, ...] = tuple(names[number] for number in self.visible)
        """Their names."""
        self.stored_names = self.names
        """Their names in the order of the fields."""
        self._by_values = {field.values: field for field in self.fields}

    def in_order(self, names: Sequence[str]) -> Nesting:
        """The same fields at the same positions; the user sees them in this order."""
        made = copy(self)
        by_name = dict(zip(self.names, self.visible, strict=True))
        made.names, made.visible = tuple(names), tuple(by_name[name] for name in names)
        return made

    def field_at(self, position: int) -> NestedField | None:
        """The nested field whose values are at this position."""
        return self._by_values.get(position)

    def hidden(self, names: Sequence[str]) -> list[str]:
        """The names of the hidden fields of those among `names` that are nested."""
        return [
            hidden_name(field.name, is_text=field.is_text)
            for field in self.fields
            if field.name in names
        ]

    def joined(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """The columns of some samples as the user sees them.

        Raises RowError, with the number of the row.
        """
        if not self.fields:
            return list(columns)
        made: list[Sequence[Any]] = []
        for position in self.visible:
            nested = self.field_at(position)
            column = columns[position]
            made.append(column if nested is None else _rows(nested, column, columns))
        return made


class RowError(DataLossError):
    """A row cannot be put together; `row` is its number among those of its batch."""

    row: int = 0


def _rows(
    nested: NestedField, values: Sequence[Any], columns: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    made = []
    for number, (value, lengths) in enumerate(zip(values, columns[nested.lengths], strict=True)):
        try:
            made.append(nested.row(value, lengths))
        except DataLossError as error:
            wrong = RowError(str(error))
            wrong.row = number
            raise wrong from None
    return made
