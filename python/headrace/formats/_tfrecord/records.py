"""The frames of a TFRecord file: of each record its length, a checksum of that, the bytes, theirs.

The length has eight bytes, both checksums four: CRC-32C, masked. Only those of the lengths are
checked; a length that is wrong would lose all that follows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._shards.source import AGAIN, Source

HEAD_BYTES = 12
TAIL_BYTES = 4

_AHEAD_BYTES = 2**20
_SMALL_BYTES = 16 * 1024
_MASK_DELTA = 0xA282EAD8
_COMPRESSED = {b"\x1f\x8b": "GZIP", b"\x78\x9c": "ZLIB", b"\x78\x01": "ZLIB", b"\x78\xda": "ZLIB"}


def _table() -> list[int]:
    """CRC-32C (Castagnoli) of each byte."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(0x82F63B78), values >> 1)
    return [int(value) for value in values]


_CRC = _table()


def masked_crc(data: bytes) -> int:
    """The checksum of a record's length, as it is stored."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


class Ahead:
    """Reads a file from its beginning to its end, parts that are close together at once.

    Thread safety: one thread at a time.
    """

    def __init__(self, source: Source, ahead_bytes: int = _AHEAD_BYTES) -> None:
        """`ahead_bytes`: that are read at once where records are small."""
        self._source = source
        self._ahead_bytes = ahead_bytes
        self._piece: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._at = 0

    def bytes_at(self, offset: int, size: int, ahead: bool) -> bytes:
        """These bytes, which must be in the file; with `ahead` the next ones are read, too."""
        start = offset - self._at
        if start < 0 or start + size > len(self._piece):
            wanted = max(size, self._ahead_bytes) if ahead else size
            self._piece = self._source.part(offset, min(wanted, self._source.size - offset))
            self._at, start = offset, 0
        return self._piece[start : start + size].tobytes()


def records(source: Source, ahead: Ahead) -> Iterator[tuple[int, int]]:
    """Where each record's bytes begin, and how many they are."""
    at, small = 0, True
    while at < source.size:
        if at + HEAD_BYTES > source.size:
            raise source.damaged(
                at, f"the length of a record is cut short: the file ends at byte {source.size}"
            )
        head = ahead.bytes_at(at, HEAD_BYTES, small)
        if int.from_bytes(head[8:], "little") != masked_crc(head[:8]):
            raise _no_record(source, at, head)
        size = int.from_bytes(head[:8], "little")
        end = at + HEAD_BYTES + size + TAIL_BYTES
        if end > source.size:
            raise source.damaged(
                at,
                f"a record of {size} bytes begins here and ends at byte {end}; the file has "
                f"{source.size}",
            )
        yield at + HEAD_BYTES, size
        small = size < _SMALL_BYTES
        at = end


def _no_record(source: Source, at: int, head: bytes) -> Exception:
    how = _COMPRESSED.get(head[:2]) if at == 0 else None
    if how is not None:
        return InvalidArgumentError(
            f"indexing {source.path}: it is compressed as {how}, so that no record can be read "
            "alone; write it without compression, or decompress it once"
        )
    return DataLossError(
        f"indexing {source.path}: byte {at}: no record begins here: the checksum of its length is "
        f"wrong; {AGAIN}"
    )
