"""The table of dataset formats. A new format is one file and one row here."""

from __future__ import annotations

from headrace import _core
from headrace.formats._format import Format
from headrace.formats.folder import Folder
from headrace.formats.index_file import IndexFile
from headrace.formats.pack_format import Pack

OTHER = IndexFile()

FORMATS: tuple[Format, ...] = (Folder(), Pack(), OTHER)
"""The last one that recognises a path is used, so the most specific comes last."""


def recognise(path: str) -> Format | None:
    """The format of `path`; None if no format recognises it. Raises OSError."""
    return next((each for each in reversed(FORMATS) if each.recognises(path)), None)


def format_of(index: _core.Index) -> Format:
    """The format of the dataset that the index describes."""
    name = index.attributes.get("format", OTHER.name)
    return next((each for each in FORMATS if each.name == name), OTHER)


def described() -> str:
    """A list of what headrace opens, for errors."""
    return "headrace opens: " + ", ".join(each.opens for each in FORMATS)
