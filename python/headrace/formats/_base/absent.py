"""Values that rows lack: `fill=` says what stands for them, `optional=` which rows have one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from headrace._arguments import items, shown
from headrace.errors import InvalidArgumentError
from headrace.formats._base.format import Format, written

_VALID = "_valid"


class _Nothing(Enum):
    """One in each process: columns are sent to others."""

    NOT_GIVEN = 0


NOT_GIVEN: Any = _Nothing.NOT_GIVEN
"""Where nothing stands for a value that a row lacks."""


def valid_field(column: str) -> str:
    """The field that says which rows have a value."""
    return column + _VALID


def check_absent(format_name: str, fill: object, optional: Any) -> None:
    """Raises unless the two options are of the types that they must be."""
    is_mapping = isinstance(fill, Mapping) and all(isinstance(name, str) for name in fill)
    if fill is not None and not is_mapping:
        raise InvalidArgumentError(
            f"{format_name} fill: got {shown(fill)}, must be values by column: "
            'fill={"age": 0, "caption": ""}'
        )
    names = items(f"{format_name} optional", optional, "str")
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(
            f"{format_name} optional: got {shown(optional)}, must be names of columns: "
            'optional=("age",)'
        )


def check_known(
    path: str, row: Format, columns: Mapping[str, Any], label: str | None = None
) -> None:
    """Raises unless the two options of `row` name columns that are taken.

    `columns`: what may stand for a value of each, as for `ways_out`. `label`: the column whose
    field is `label`.
    """
    options: Any = row
    fill, optional = options.fill or {}, tuple(options.optional)
    for option, names in (("fill", fill), ("optional", optional)):
        for name in names:
            if name not in columns:
                raise InvalidArgumentError(
                    f"indexing {path}: {option}=: no column {name!r} is taken; there are "
                    f"{', '.join(map(repr, columns))}"
                )
    taken = [name for name in optional if _added(name, label) in columns]
    if taken:
        zeros = {name: columns[name] for name in taken if columns[name] is not None}
        others = tuple(other for other in optional if other not in taken)
        instead = written(row, optional=others, fill={**zeros, **fill} or None)
        raise InvalidArgumentError(
            f"indexing {path}: optional=: {taken[0]!r} adds the field "
            f"{_added(taken[0], label)!r}, which is a column; give rows a value instead, "
            f"format={instead}"
        )


def _added(column: str, label: str | None) -> str:
    """The field that `optional=` adds for a column."""
    return valid_field("label" if column == label else column)


def ways_out(
    row: Format, lacking: Mapping[str, Any], taken: Sequence[str], label: str | None = None
) -> str:
    """What to type where rows of these columns have no value; by column what may stand for it.

    None: too much to type. `taken`: all columns. `label`: the one whose field is `label`.
    """
    options: Any = row
    short = {name: zero for name, zero in lacking.items() if zero is not None}
    fill = {**(options.fill or {}), **short}
    free = [column for column in lacking if _added(column, label) not in taken]
    said = ""
    if free and all(column in short for column in lacking if column not in free):
        optional = (
            *options.optional,
            *(column for column in free if column not in options.optional),
        )
        kept = {name: value for name, value in fill.items() if name not in free}
        names = ", ".join(repr(_added(column, label)) for column in free)
        masked = written(row, optional=optional, fill=kept or None)
        said = f"have {names} say which rows have one, format={masked}"
    filled = f"say what stands for it, format={written(row, fill=fill)}" if short else ""
    left = left_out(row, list(lacking), taken)
    return ", or ".join(filter(None, (filled, said))) + left if filled or said else left[5:]


def left_out(row: Format, names: Sequence[str], taken: Sequence[str]) -> str:
    """The words that leave these columns out, with a comma before them; none if all are these."""
    others = tuple(other for other in taken if other not in names)
    if not others:
        return ""
    options: Any = row
    changes: dict[str, Any] = {"columns": others}
    for option in ("optional", "text"):
        chosen = getattr(options, option, ())
        if any(name in names for name in chosen):
            changes[option] = tuple(name for name in chosen if name not in names)
    if getattr(options, "labels", None) in names:
        changes["labels"] = None
    if any(name in names for name in options.fill or ()):
        changes["fill"] = {k: v for k, v in options.fill.items() if k not in names} or None
    them = "them" if len(names) > 1 else "it"
    return f", or leave {them} out, format={written(row, **changes)}"
