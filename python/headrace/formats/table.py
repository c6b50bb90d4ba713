"""The dataset formats: the only place that lists them. A new one is one file and one row here."""

from __future__ import annotations

from headrace import _core
from headrace.formats._format import Format
from headrace.formats.folder import Folder
from headrace.formats.index_file import IndexFile
from headrace.formats.pack_format import Pack

OTHER = IndexFile()

FORMATS: tuple[Format, ...] = (Folder(), Pack(), OTHER)
"""A path is of the last that recognises it: the most special comes last."""


def recognise(path: str) -> Format | None:
    """The format of what is at `path`; None: of none. Raises OSError if that cannot be seen."""
    return next((each for each in reversed(FORMATS) if each.recognises(path)), None)


def format_of(index: _core.Index) -> Format:
    """The format that the index is of."""
    name = index.attributes.get("format", OTHER.name)
    return next((each for each in FORMATS if each.name == name), OTHER)


def described() -> str:
    """What can be opened, for errors."""
    return "headrace opens: " + ", ".join(each.opens for each in FORMATS)
