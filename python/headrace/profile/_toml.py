"""Writes a profile as TOML, with comments that explain it."""

from __future__ import annotations

import datetime
import json
from typing import Any

_HEAD = """\
# A machine profile of headrace, made by `headrace profile`; `headrace docs model` explains it.
#
# Rates are bytes a second of all users together, medians of some short slices. `spread` is
# (largest - smallest slice) / median: a rate with a spread of 0.5 is known to about a quarter.
"""

_COMMENTS = {
    "host": "Where it was measured.",
    "dataset": "What was read: rates of storage and decode are of it, on this file system.",
    "storage": "Cold random reads, by size and by how many are in flight. `cold_share`: bytes of\n"
    "# devices / bytes read; far below 1, a cache answered.",
    "copy": "From memory to memory, by threads.",
    "decode": "From stored bytes to rows of a batch, by threads.",
    "tier": "A folder that may hold copies: reads and writes by size and threads.",
    "preprocess": "What loaders saw one sample take on one of so many threads; `transform` is a\n"
    "# hash of the fields and the transform.",
    "peers": "From one other node. Not measured: written by hand.",
}


def to_toml(plain: dict[str, Any]) -> str:
    """A document of tables, tables in them, and lists of tables."""
    lines = [_HEAD]
    _write(lines, "", plain)
    return "\n".join(lines) + "\n"


def _write(lines: list[str], place: str, values: dict[str, Any]) -> None:
    """Plain values first: a table goes on to the end or the next one."""
    inner = {}
    for key, value in values.items():
        if isinstance(value, dict) or (isinstance(value, list) and _holds_tables(value)):
            inner[key] = value
        else:
            lines.append(f"{key} = {_literal(value)}")
    for key, value in inner.items():
        if isinstance(value, dict):
            _open(lines, f"[{place}{key}]", key if not place else None)
            _write(lines, f"{place}{key}.", value)
            continue
        for position, entry in enumerate(value):
            _open(lines, f"[[{place}{key}]]", key if not place and position == 0 else None)
            _write(lines, f"{place}{key}.", entry)


def _open(lines: list[str], header: str, commented: str | None) -> None:
    lines.append("")
    if commented in _COMMENTS:
        lines.append(f"# {_COMMENTS[commented]}")
    lines.append(header)


def _holds_tables(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], dict)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's basic strings escape as JSON does, except for DEL, which JSON does not escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return repr(value)
