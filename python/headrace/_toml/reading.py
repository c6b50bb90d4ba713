"""Reads a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

from headrace._text import os_reason
from headrace._toml.table import TomlTable
from headrace.errors import InvalidArgumentError, NotFoundError

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")


def read_toml(path: Path, what: str) -> TomlTable:
    """The values of a file. Errors of the table name their lines.

    Raises: NotFoundError, InvalidArgumentError: it is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except FileNotFoundError as error:
        raise NotFoundError(f"{what} {path}: no such file") from error
    except OSError as error:
        raise InvalidArgumentError(
            f"{what} {path}: cannot be read: {os_reason(error)}; give the path of a file"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{what} {path}: byte {error.start}: no UTF-8; save the file as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(
            f"{what} {path}: not TOML: {error}; correct the file there"
        ) from error
    return TomlTable(str(path), "", values, _lines_of(text))


def _lines_of(text: str) -> dict[str, int]:
    """Of each key by its whole name, as "tiers[1].threads"; of a table, where it begins.

    Not of keys in quotes, nor of those after a text of several lines that looks like a table.
    """
    lines: dict[str, int] = {}
    counts: Counter[str] = Counter()
    place = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            name = header[2]
            if header[1] == "[[":
                counts[name] += 1
                name = f"{name}[{counts[name] - 1}]"
            lines[name] = number
            place = f"{name}."
        elif key := _KEY.match(line):
            lines[place + key[1]] = number
    return lines
