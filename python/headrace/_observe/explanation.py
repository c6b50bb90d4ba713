"""What `explain()` returns of a step: where each row comes from."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from headrace import _html as html
from headrace._text import printable
from headrace._units import format_bytes

_INDEX = "index"  # the source of inline fields
_ROWS_MAX = 64  # of an explanation in a notebook


class ExplainedRow(TypedDict):
    """Where one field of one row comes from."""

    slot: int
    sample: int
    field: str
    source: str
    """as planned: "index", "block", "storage", or the name of a tier"""
    actual: str | None
    """where it came from; None: it was not delivered yet, or long ago"""
    object: str
    """the file's name, as os.fsdecode() makes it"""
    offset: int
    size: int


class ExplainedParameter(NamedTuple):
    """A parameter of the order, and where its value comes from."""

    value: int | str
    origin: str
    """ "given", "default", "default, limited by memory", "default, from the profile" or "from the
    state" """


class Explanation:
    """Where each row of a step comes from, and each parameter of the order: `rows`, `parameters`;
    or `print()` it."""

    def __init__(
        self,
        epoch: int,
        step: int,
        rows: list[tuple[int, int, str, str, str, int, int, str]],
        order: str,
        parameters: dict[str, ExplainedParameter],
    ) -> None:
        self.epoch = epoch
        self.step = step
        self.order = order
        self.parameters = parameters
        self.rows = [
            ExplainedRow(
                slot=slot,
                sample=sample,
                field=field,
                source=source,
                actual=actual or None,
                object=where,
                offset=offset,
                size=size,
            )
            for slot, sample, field, source, where, offset, size, actual in rows
        ]

    def _repr_html_(self) -> str:
        """For notebooks: the first rows."""
        shown = [_cells(row) for row in self.rows[:_ROWS_MAX]]
        left = len(self.rows) - len(shown)
        head = ("slot", "sample", "field", "from", "where")
        return html.block(
            html.title(f"epoch {self.epoch}, step {self.step}, order {self.order}"),
            html.table(
                [(name, f"{value} ({origin})") for name, (value, origin) in self.parameters.items()]
            ),
            html.table(shown, head=head),
            html.paragraph(f"and {left:,} more rows: print it") if left else html.Html(""),
        )

    def __str__(self) -> str:
        lines = [f"epoch {self.epoch} step {self.step}"]
        if self.parameters:
            parameters = (
                f"{name} {value} ({origin})" for name, (value, origin) in self.parameters.items()
            )
            lines.append(f"  order {self.order}: {', '.join(parameters)}")
        for row in self.rows:
            *_, source, where = _cells(row)
            from_where = f"{source}: {where}" if where else source
            lines.append(
                f"  slot {row['slot']:>4}  sample {row['sample']:>9}  {row['field']}: {from_where}"
            )
        return printable("\n".join(lines))

    def __repr__(self) -> str:
        return f"<headrace explanation of epoch {self.epoch} step {self.step}; print it>"


def _cells(row: ExplainedRow) -> tuple[str, str, str, str, str]:
    """Slot, sample, field, source, and where it lies there."""
    source, where = row["source"], ""
    if source != _INDEX:
        if row["actual"] not in (None, source):
            source = f"{source} (was {row['actual']})"
        end = row["offset"] + row["size"]
        where = f"{row['object']} [{row['offset']}, {end}) {format_bytes(row['size'])}"
    return str(row["slot"]), str(row["sample"]), row["field"], source, where
