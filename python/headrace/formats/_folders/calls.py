"""Calls of `hr.open`, for messages: they work as they stand."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from headrace.formats._base.format import Format, written

_LISTED_MAX = 5


def lists_many(path: str) -> bool:
    """Whether a path lists more names in braces than a message shows: {a.png,b.png,...}."""
    return any(braces.count(",") >= _LISTED_MAX for braces in re.findall(r"\{[^{}]*\}", path))


def open_call(
    path: str, row: Format | None = None, split: str | None = None, skip: Sequence[str] = ()
) -> str:
    """The call that opens `path` with these arguments."""
    parts = [repr(path)]
    if split is not None:
        parts.append(f"split={split!r}")
    if skip:
        parts.append(f"skip={list(skip)!r}")
    if row is not None:
        known = row.comes_with_headrace and dataclasses.is_dataclass(row)
        parts.append(f"format={written(row) if known else repr(row.name)}")
    return f"hr.open({', '.join(parts)})"
