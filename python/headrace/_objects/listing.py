"""What stores say of objects: what the lister and the user's process tell each other."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

SIZE = struct.Struct("<Q")
"""In front of each message between them."""

RAW = 1 << 63
"""Of the size of a message with bytes as they are. Such messages, one after the other, are a range
of an object; one that is pickled is an error, which ends it."""


class StoreError(OSError):
    """A store did not answer, or answered something else. The text is the cause."""

    path = ""
    """Of the object that was read, if one was."""


class StoreDeniedError(StoreError, PermissionError):
    """This user may not."""


@dataclass(frozen=True, slots=True)
class Object:
    """What a store says of an object."""

    size: int
    version: int
    """As `version.version_of`; 0: not known."""


Head = Object | OSError | None
"""Of an object: what the store says, or why it does not; None: there is no such object."""


@dataclass(frozen=True)
class Listing:
    """What lies below a prefix, up to the next "/": of nothing, there is nothing."""

    folders: frozenset[str] = frozenset()
    objects: dict[str, Object] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.folders) + len(self.objects)

    def is_folder(self, name: str) -> bool:
        """Whether keys begin with the name and "/", and no object hides them.

        Some programs write an empty object for each folder.
        """
        known = self.objects.get(name)
        return name in self.folders and (known is None or known.size == 0)

    @property
    def version(self) -> int:
        """A number that differs when names come or go, as a folder's time of change does."""
        import hashlib  # It takes long to import.

        names = (*self.objects, *(f"{name}/" for name in self.folders))
        text = "\0".join(sorted(names)).encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1 or 1
