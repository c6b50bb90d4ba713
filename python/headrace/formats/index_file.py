"""An index file of a dataset in any format."""

from __future__ import annotations

from typing import ClassVar

from headrace import _core, _places
from headrace.formats._base.cache import INDEX_SUFFIX
from headrace.formats._base.format import Format, Opened, Wanted, refuse_skip
from headrace.formats._base.index_copy import local_index


class IndexFile(Format):
    """Also used for indexes whose format is not in the table."""

    name: ClassVar[str] = "unknown"
    opens: ClassVar[str] = f"an index file ({INDEX_SUFFIX})"

    def recognises(self, path: str) -> bool:
        return path.endswith(INDEX_SUFFIX) and _places.is_file(path)

    def open(self, path: str, wanted: Wanted) -> Opened:
        refuse_skip(f"opening index {path}", wanted.skip)
        return Opened(_core.Index.open(local_index(path)))

    def remedy(self, index: _core.Index) -> str:
        return "copy or create the dataset again"
