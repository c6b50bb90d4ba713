"""What programs and files give to the simulator, checked in the same way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

from headrace._toml import TomlTable

Check = Callable[[TomlTable, str], Any]
"""Takes the value of a key out of a table: as it should be kept, or an error."""
Kind = TypeVar("Kind")


class Checked:
    """Base of dataclasses whose values are checked when an object is made.

    Numbers of NumPy become Python's, and texts as "64 MB/s" numbers, as in a scenario's file.

    Raises: InvalidArgumentError: names class, field, value and what it must be.
    """

    _checks: ClassVar[Mapping[str, Check]]
    """By the names of the fields."""

    def __post_init__(self) -> None:
        kind = type(self)
        table = TomlTable("", f"{kind.__name__}.", dict(vars(self)))
        for field in dataclasses.fields(cast(Any, kind)):
            value = getattr(self, field.name)
            if value is field.default or (value is None and _may_be_none(field)):
                continue
            checked = kind._checks[field.name](table, field.name)
            object.__setattr__(self, field.name, checked)


def taken(kind: type[Checked], table: TomlTable, keys: Mapping[str, str]) -> dict[str, Any]:
    """Values of fields out of a table of a file, but of those that have a default and no key there.
    `keys`: by fields."""
    fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
    values: dict[str, Any] = {}
    for name, key in keys.items():
        has_default = fields[name].default is not dataclasses.MISSING
        if not (has_default or _may_be_none(fields[name])) or table.has(key):
            values[name] = kind._checks[name](table, key)
        elif not has_default:
            values[name] = None
    return values


def _may_be_none(field: dataclasses.Field[Any]) -> bool:
    return str(field.type).endswith("| None")


def read(kind: type[Kind], table: TomlTable, one_of: Sequence[str] = ()) -> Kind:
    """The object of a table of a file, whose keys are the names of the fields.

    Raises: InvalidArgumentError: names file, line, key, value and what it must be.
    """
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    values = taken(cast(Any, kind), table, {name: name for name in names})
    table.finish(one_of)
    return kind(**values)
