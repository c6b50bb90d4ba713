"""The version of an object as one number: what an index has beside the size."""

from __future__ import annotations

import hashlib
from datetime import datetime


def version_of(etag: str | None, last_modified: datetime | None) -> int:
    """At least 1 and below 2^63: a hash of the ETag, or of the time where the server gives no ETag;
    0, which is not compared, where it gives neither."""
    if etag:
        text = opaque(etag)
    elif last_modified is not None and last_modified.timestamp() > 0:
        # obstore's time for none is 0.
        text = f"{last_modified.timestamp():.0f}"
    else:
        return 0
    hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(hashed, "little") % (2**63 - 1) + 1


def opaque(etag: str) -> str:
    """The ETag without what differs between a server's GET and its lists: W/ and quotes."""
    return etag.removeprefix("W/").strip('"')
