"""Names of columns that cannot be those of fields."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import InvalidArgumentError


def check_column_names(what: str, taken: Sequence[str], names: Sequence[str], row: str) -> None:
    """Raises InvalidArgumentError for a column that is `taken` without a name of its own.

    `names`: of all columns. `row`: the class of the format.
    """
    for name in taken:
        if name and names.count(name) < 2:
            continue
        others = tuple(other for other in names if other and names.count(other) == 1)
        way = f", or take the others, format=hr.formats.{row}(columns={others!r})" if others else ""
        why = f"{names.count(name)} columns are named {name!r}"
        if not name:
            why = f"column {names.index(name) + 1} has no name"
        raise InvalidArgumentError(
            f"indexing {what}: {why}; write the file with a name for each (pyarrow: "
            f"table.rename_columns){way}"
        )
