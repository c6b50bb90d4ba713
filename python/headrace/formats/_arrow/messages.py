"""The messages of an Arrow IPC file or stream: where each one begins, without its body.

pyarrow reads the messages; this module says beforehand where they are, whether a body is compressed
and whether the stream is complete, which pyarrow does not tell. The metadata of a message are a
flatbuffer (https://flatbuffers.dev); no offset of it is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import DataLossError, InvalidArgumentError

MAGIC = b"ARROW1"
_FEATHER_1 = b"FEA1"
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY, _RECORDS = 2, 3  # types of messages
_AGAIN = "copy or write the file again"
_HEADER_BYTES = 4096  # that hold most headers of messages
_FOOTER_BYTES = 64 * 1024


@dataclass(frozen=True)
class Message:
    """A message, and where it begins."""

    offset: int
    end: int
    is_records: bool
    """Whether it is a record batch."""


def is_file_format(data: Any, path: str) -> bool:
    """Whether the bytes are an IPC file, with a footer; otherwise a stream."""
    front = bytes(data[:8])
    if front[:4] == _FEATHER_1:
        raise InvalidArgumentError(
            f"indexing {path}: Feather of version 1; write it again with "
            "pyarrow.feather.write_feather(table, path, compression='uncompressed')"
        )
    return front[:6] == MAGIC


def schema_end(data: Any) -> int:
    """Where the message ends that a stream begins with, if it is none of damage."""
    mark, length = struct.unpack("<II", bytes(data[:8]).ljust(8, b"\0"))
    return 8 + int(length if mark == _CONTINUATION else mark)


Ahead = Callable[[int, int], object]
"""Called with the offset and the size of what is looked at next, for it to be read."""


def stream_messages(data: Any, path: str, ahead: Ahead) -> Iterator[Message]:
    """The messages of a stream after its schema. Raises if the stream has no end mark."""
    at, is_schema = 0, True
    while True:
        message = _message(data, at, len(data), path, ahead)
        if message is None:
            end = at + (8 if _u32(data, at, len(data), path) == _CONTINUATION else 4)
            if end != len(data):
                raise _damaged(
                    path,
                    at,
                    f"the end mark of the stream, but {len(data) - end} bytes follow: streams were "
                    "joined; open the files one by one, as a pattern",
                )
            return
        if not is_schema:
            yield message
        at, is_schema = message.end, False


def file_messages(data: Any, path: str, ahead: Ahead) -> list[Message]:
    """The dictionaries, then the record batches, that the footer of an IPC file lists."""
    size = len(data)
    ahead(max(0, size - _FOOTER_BYTES), _FOOTER_BYTES)
    if size < 18 or bytes(data[size - 6 :]) != MAGIC:
        raise _damaged(path, size, f"no {MAGIC.decode()} at the end: the file was cut short")
    length = _u32(data, size - 10, size, path)
    start = size - 10 - length
    if start < 8:
        raise _damaged(path, size - 10, f"the footer has {length} bytes, the file {size}")
    ahead(start, length)
    flat = _Flat(data, start, size - 10, path)
    footer = flat.indirect(start)
    messages = []
    for field in (2, 3):  # dictionaries, record batches: 24 bytes each
        vector = flat.field(footer, field)
        if vector is None:
            continue
        vector = flat.indirect(vector)
        count = flat.u32(vector)
        flat.check(vector + 4, 24 * count)
        for block in range(vector + 4, vector + 4 + 24 * count, 24):
            offset = flat.i64(block)
            if not 8 <= offset < start:
                raise _damaged(path, block, f"a message is at byte {offset}, the file has {size}")
            message = _message(data, offset, start, path, ahead)
            if message is None or message.is_records != (field == 3):
                raise _damaged(path, offset, "not the message that the footer lists")
            messages.append(message)
    return messages


def _message(data: Any, at: int, limit: int, path: str, ahead: Ahead) -> Message | None:
    """The message at `at`; None for the end mark."""
    ahead(at, _HEADER_BYTES)
    length, head = _u32(data, at, limit, path), 4
    if length == _CONTINUATION:  # Not in files before Arrow 0.15.
        length, head = _u32(data, at + 4, limit, path), 8
    if length == 0:
        return None
    start = at + head
    if length > limit - start:
        raise _damaged(
            path, at, f"a message of {length} bytes, and {limit - start} follow: cut short"
        )
    if length > _HEADER_BYTES - head:
        ahead(start, length)
    flat = _Flat(data, start, start + length, path)
    message = flat.indirect(start)
    kind_at = flat.field(message, 1)
    kind = flat.u8(kind_at) if kind_at is not None else 0
    body_at = flat.field(message, 3)
    body = flat.i64(body_at) if body_at is not None else 0
    end = start + length + body
    if body < 0 or end > limit:
        raise _damaged(
            path,
            at,
            f"a message with a body of {body} bytes, {limit - start - length} follow: cut short",
        )
    if kind in (_DICTIONARY, _RECORDS):
        header = flat.field(message, 2)
        if header is None:
            raise _damaged(path, at, "a message without a header")
        records = flat.indirect(header)
        if kind == _DICTIONARY:
            inner = flat.field(records, 1)
            if inner is None:
                raise _damaged(path, at, "a dictionary without values")
            records = flat.indirect(inner)
        _check_lengths(flat, records, path)
        if flat.field(records, 3) is not None:
            raise InvalidArgumentError(
                f"indexing {path}: byte {at}: the record batch is compressed, so no row can be "
                "read alone; write the file without: pyarrow.ipc.IpcWriteOptions(compression="
                "None), or write_feather(..., compression='uncompressed')"
            )
    return Message(at, end, kind == _RECORDS)


def _check_lengths(flat: _Flat, records: int, path: str) -> None:
    """Raises if a column has a negative length: pyarrow would end the process."""
    nodes = flat.field(records, 1)
    if nodes is None:
        return
    nodes = flat.indirect(nodes)
    count = flat.u32(nodes)
    flat.check(nodes + 4, 16 * count)
    for at in range(nodes + 4, nodes + 4 + 16 * count, 16):
        if flat.i64(at) < 0:
            raise _damaged(path, at, f"a column has {flat.i64(at)} rows")


class _Flat:
    """Reads a flatbuffer that lies in bytes [start, end) of a file."""

    def __init__(self, data: Any, start: int, end: int, path: str) -> None:
        self._data, self._start, self._end, self._path = data, start, end, path

    def check(self, at: int, size: int) -> None:
        """Raises if these bytes lie outside."""
        if at < self._start or size > self._end - at:
            raise _damaged(
                self._path,
                at,
                f"outside the metadata of its message, bytes [{self._start}, {self._end})",
            )

    def _read(self, form: str, at: int) -> int:
        self.check(at, struct.calcsize(form))
        (value,) = struct.unpack_from(form, self._data, at)
        return int(value)

    def u8(self, at: int) -> int:
        """The byte at `at`."""
        return self._read("<B", at)

    def u32(self, at: int) -> int:
        """Four bytes."""
        return self._read("<I", at)

    def i64(self, at: int) -> int:
        """Eight bytes, signed."""
        return self._read("<q", at)

    def indirect(self, at: int) -> int:
        """Where the table or vector is to which the offset at `at` leads."""
        return at + self.u32(at)

    def field(self, table: int, number: int) -> int | None:
        """Where a field of a table is; None if it has its default."""
        entries = table - self._read("<i", table)
        at = 4 + 2 * number
        if at + 2 > self._read("<H", entries):
            return None
        offset = self._read("<H", entries + at)
        return table + offset if offset else None


def _u32(data: Any, at: int, limit: int, path: str) -> int:
    if at + 4 > limit:
        raise _damaged(path, at, "no end mark and no further message: the file was cut short")
    (value,) = struct.unpack_from("<I", data, at)
    return int(value)


def _damaged(path: str, offset: int, why: str) -> DataLossError:
    return DataLossError(f"indexing {path}: byte {offset}: {why}; {_AGAIN}")
