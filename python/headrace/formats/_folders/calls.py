"""Calls of `hr.open`, for messages: they work as they stand."""

from __future__ import annotations

import dataclasses
from typing import Any

from headrace.formats._format import Format

_OWN = "headrace.formats."


def open_call(path: str, row: Format | None = None, split: str | None = None) -> str:
    """The call that opens `path` with these arguments."""
    parts = [repr(path)]
    if split is not None:
        parts.append(f"split={split!r}")
    if row is not None:
        parts.append(f"format={_expression(row)}")
    return f"hr.open({', '.join(parts)})"


def _expression(row: Any) -> str:
    if not type(row).__module__.startswith(_OWN) or not dataclasses.is_dataclass(row):
        return repr(row.name)  # As it is registered.
    given = [
        f"{each.name}={getattr(row, each.name)!r}"
        for each in dataclasses.fields(row)
        if getattr(row, each.name) != each.default
    ]
    return f"hr.formats.{type(row).__name__}({', '.join(given)})"
