"""How encoded images begin, for formats that do not say which values are images."""

from __future__ import annotations

BEGIN_BYTES = 12
"""That `is_image` looks at."""

_BEGINS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def is_image(value: bytes) -> bool:
    """Whether a value begins as a JPEG, PNG or WebP does; the first bytes of it suffice.

    Not TIFF: files of cameras and microscopes, which are no images for a loader, begin as it does.
    """
    return value.startswith(_BEGINS) or (value[:4] == b"RIFF" and value[8:12] == b"WEBP")
