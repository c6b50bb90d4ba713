"""The files of datasets, wherever they lie: formats list, stat and read them by these functions.

A path is text, and what it begins with ("s3://") chooses the place; without that it is one of the
local file system. The table of places is `_places/table.py`; `_places/place.py` is what a place
has to do. The functions raise OSErrors as `os` does: FileNotFoundError, NotADirectoryError,
PermissionError, others; and `exists`, `is_folder`, `is_file`, `match` and `walk` take what cannot
be read as not being there.

What headrace itself writes is local, and does not pass here: indexes and those that are
unfinished, packs as they are written, temporary files, lists of `skip=`. The same holds for /proc
and for files in which a library or the core is given a path: `local_path` says which these are.
"""

from __future__ import annotations

from headrace._objects.listing import StoreError
from headrace._objects.memory import expect, remembering
from headrace._places.files import (
    entries,
    exists,
    is_file,
    is_folder,
    look_ahead,
    names,
    open,
    open_ahead,
    reader,
    stat,
    walk,
)
from headrace._places.local import spelled
from headrace._places.patterns import escape, has_magic, match
from headrace._places.place import Entry, Place, Reader, Stat
from headrace._places.table import absolute, is_local, joined, local_path

__all__ = [
    "Entry",
    "Place",
    "Reader",
    "Stat",
    "StoreError",
    "absolute",
    "entries",
    "escape",
    "exists",
    "expect",
    "has_magic",
    "is_file",
    "is_folder",
    "is_local",
    "joined",
    "local_path",
    "look_ahead",
    "match",
    "names",
    "open",
    "open_ahead",
    "reader",
    "remembering",
    "spelled",
    "stat",
    "walk",
]
