"""The packets between a store and its fetchers: `docs/design/objects.md` has the records, and
src/ipc/packet.h the header."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

HEADER = struct.Struct("<IHH")  # bytes of the records, descriptors, kind
PACKET_BYTES_MAX = 32 << 10
_MEMORY, _START, _CANCEL = 0, 1, 2
_RECEIVED, _ENDED = 1, 2
_INLINE = 0
_HEAD = struct.Struct("<BQ")
_REST_OF_START = struct.Struct("<QQQQqI")
_RECEIVED_RECORD = struct.Struct("<BQQ")
_ENDED_RECORD = struct.Struct("<BQBQqI")
_CAUSE_BYTES_MAX = 1000


class Memory(NamedTuple):
    bytes: int


class Start(NamedTuple):
    attempt: int
    offset: int  # in the object
    size: int
    cell: int  # where it begins in the memory
    object_bytes: int
    version: int  # 0: not known
    url: bytes


class Cancel(NamedTuple):
    attempt: int


def records_of(packet: bytes) -> Iterator[Memory | Start | Cancel]:
    """Raises ValueError or struct.error: not such a packet."""
    size, _, kind = HEADER.unpack_from(packet)
    if kind != _INLINE or size + HEADER.size != len(packet):
        raise ValueError(f"a packet of {len(packet)} bytes whose header says {size}, kind {kind}")
    at = HEADER.size
    while at < len(packet):
        record, number = _HEAD.unpack_from(packet, at)
        at += _HEAD.size
        if record == _MEMORY:
            yield Memory(number)
        elif record == _CANCEL:
            yield Cancel(number)
        elif record == _START:
            *fields, url_bytes = _REST_OF_START.unpack_from(packet, at)
            at += _REST_OF_START.size
            url = packet[at : at + url_bytes]
            at += url_bytes
            if len(url) != url_bytes:
                raise ValueError(f"a URL of {url_bytes} bytes, of which {len(url)} are there")
            yield Start._make((number, *fields, url))
        else:
            raise ValueError(f"unknown record {record}")


def received(attempt: int, count: int) -> bytes:
    return _RECEIVED_RECORD.pack(_RECEIVED, attempt, count)


def ended(attempt: int, result: int, count: int, cause: str = "") -> bytes:
    # obstore does not tell how long the server asks to wait.
    text = cause.encode("utf-8", "replace")[:_CAUSE_BYTES_MAX]
    text = text.decode("utf-8", "ignore").encode()
    return _ENDED_RECORD.pack(_ENDED, attempt, result, count, -1, len(text)) + text


def packet_of(records: bytes) -> bytes:
    return HEADER.pack(len(records), 0, _INLINE) + records
