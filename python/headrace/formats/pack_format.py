"""The format of packs, for the table of formats. `headrace.pack` writes packs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence, Set
from typing import Any, ClassVar

import numpy as np

from headrace import _core, _places
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._base.format import Format, Opened, Wanted, refuse_skip
from headrace.formats._base.index_copy import local_index
from headrace.formats._fields.order import FieldType

PACK_INDEX_NAME = "pack.hri"
_DIGEST_PIECE_BYTES = 4 * 2**20  # `headrace docs pack-format`
PARAMETERS = "pack"
"""The attribute of a pack's index that records, in JSON, how it was made."""
FIELD_ORDER = "fields"
"""The attribute that has, in JSON, the order in which samples have their fields, where it is not
that of the index."""


class Pack(Format):
    """A folder of Arrow files beside their index."""

    name: ClassVar[str] = "pack"
    opens: ClassVar[str] = f"a pack written by `headrace pack` (it holds {PACK_INDEX_NAME})"

    def recognises(self, path: str) -> bool:
        return _places.exists(os.path.join(path, PACK_INDEX_NAME))

    def open(self, path: str, wanted: Wanted) -> Opened:
        refuse_skip(f"opening pack {path}", wanted.skip)
        if wanted.index is not None:
            raise InvalidArgumentError(
                f"opening pack {path}: index={os.fspath(wanted.index)!r} was given, but a pack has "
                f"its own ({PACK_INDEX_NAME}); leave index out"
            )
        return Opened(_core.Index.open(local_index(os.path.join(path, PACK_INDEX_NAME))))

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        names = [field.name for field in fields]
        if FIELD_ORDER not in index.attributes:
            return names
        try:
            chosen: Any = json.loads(index.attributes[FIELD_ORDER])
        except ValueError:
            chosen = None
        if not isinstance(chosen, list) or sorted(map(str, chosen)) != sorted(names):
            raise DataLossError(
                f"opening {index.root}: its list of fields is damaged; {self.remedy(index)}"
            )
        return chosen

    def remedy(self, index: _core.Index) -> str:
        return "copy or create the pack again"

    def file_fault(
        self, index: _core.Index, number: int, read: Callable[[int, int], bytes | bytearray]
    ) -> str | None:
        """Compares all bytes, including Arrow's headers, with the digest in the file's name."""
        name, size, _ = index.object(number)
        written = re.search(r"-([0-9a-f]{16})\.arrow$", name)
        if written is None or file_digest(read, size) == int(written[1], 16):
            return None
        return (
            f"{os.path.join(index.root, name)}: its samples are good, but other bytes of the file "
            "(Arrow headers, labels) are not those that were written"
        )

    def takes(self, name: str) -> bool:
        return name.startswith("shard-") and name.endswith(".arrow")

    def hint(self, suffixes: Set[str]) -> str:
        if ".arrow" not in suffixes:
            return ""
        return f"; if this is a pack, its {PACK_INDEX_NAME} is missing: copy the whole folder again"


def file_digest(read: Callable[[int, int], bytes | bytearray], size: int) -> int:
    """XXH3-64 of the XXH3-64s (8 bytes each, little-endian) of the file's pieces of 4 MiB."""
    pieces = [
        _core.hash64(read(offset, min(_DIGEST_PIECE_BYTES, size - offset)))
        for offset in range(0, size, _DIGEST_PIECE_BYTES)
    ]
    return _core.hash64(np.array(pieces, "<u8").tobytes())


def pack_attributes(parameters: dict[str, Any]) -> dict[str, str]:
    """The attributes of a pack's index that record how it was made."""
    return {
        "format": Pack.name,
        PARAMETERS: json.dumps({"version": 1} | parameters),
    }


def pack_parameters(index: _core.Index) -> dict[str, Any] | None:
    """How the pack was made; None if the index does not describe a pack."""
    try:
        parameters = json.loads(index.attributes.get(PARAMETERS, "null"))
    except ValueError:
        return None
    return parameters if isinstance(parameters, dict) else None


def stored_shuffled(index: _core.Index) -> bool:
    """Whether the samples were stored in a random order, as a pack's are by default."""
    return (pack_parameters(index) or {}).get("order") == "shuffled"
