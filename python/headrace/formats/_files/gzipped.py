"""Gzip files inside of others: what they decode to, from their front and their end."""

from __future__ import annotations

import zlib

from headrace.errors import DataLossError
from headrace.formats._files.npy import Read

DEFLATE_RATIO_MAX = 1032
"""The most bytes that one byte of deflate decodes to."""

_LEAST = 18  # bytes of a gzip file
_FRONTS = (1024, 128 * 1024)  # compressed bytes of the front that are read
_GZIP = 31  # for zlib: the stream has a header of gzip


def decoded_size(read: Read, size: int, what: str) -> int:
    """The bytes that a gzip file of `size` bytes says it decodes to, which is modulo 2**32.

    `what` names the file in errors.
    """
    if size < _LEAST:
        raise DataLossError(f"indexing {what}: {size} bytes, a gzip file has {_LEAST} at least")
    decoded = int.from_bytes(read(size - 4, 4), "little")
    if decoded > size * DEFLATE_RATIO_MAX:
        raise DataLossError(
            f"indexing {what}: it ends with a size of {decoded:,} bytes, but {size:,} bytes of "
            f"gzip decode to {size * DEFLATE_RATIO_MAX:,} at most: it is cut short, or no gzip; "
            "copy or write the file again, or keep its bytes with raw="
        )
    return decoded


def decoded_front(read: Read, size: int, what: str) -> Read:
    """Reads the first bytes that a gzip file of `size` bytes decodes to."""
    fronts = [min(size, front) for front in _FRONTS]
    front = read(0, fronts[0])

    def read_decoded(offset: int, count: int) -> bytes:
        nonlocal front
        decoded = _decoded(front, offset + count, what)
        if len(decoded) < offset + count and len(front) < fronts[1]:
            front = read(0, fronts[1])
            decoded = _decoded(front, offset + count, what)
        return decoded[offset:]

    return read_decoded


def _decoded(front: bytes, count: int, what: str) -> bytes:
    try:
        return zlib.decompressobj(_GZIP).decompress(front, count)
    except zlib.error as error:
        raise DataLossError(
            f"indexing {what}: it is no gzip file, or damaged: {error}; copy or write the file "
            "again, or keep its bytes with raw="
        ) from error
