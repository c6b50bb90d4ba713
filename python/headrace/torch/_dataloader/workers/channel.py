"""Messages between two processes: pickles, with tensors and arrays in a file in memory.

A message is a header, which tells its kind and bytes. Small ones follow it; for others the header
brings the descriptor of a file: sizes of the parts, then the parts, each at a multiple of 64 bytes:
the pickle, and the memory of each large array. The receiver maps the file, and keeps no descriptor
of it; arrays are views.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

import torch

_HEADER = struct.Struct("=BQ")
_INLINE, _FILE = range(2)
_INLINE_BYTES_MAX = 16 * 1024
"""A larger message is a file: so that what waits in a socket's buffer never blocks its sender."""
_IN_PICKLE_BYTES_MAX = 2 * 1024
"""Larger arrays are parts of their own."""
_ALIGNMENT = 64
_WRITTEN_AT_ONCE = 1024  # parts: IOV_MAX


class Channel:
    """One end of a connection to another process.

    Thread safety: one thread sends, one receives; `shut` from any.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, value: Any) -> None:
        """Raises: BrokenPipeError or ConnectionResetError if the other end is gone; whatever
        pickling raises."""
        parts = _dumped(value)
        bytes_ = sum(part.nbytes for part in parts)
        if len(parts) == 1 and bytes_ <= _INLINE_BYTES_MAX:
            self._connection.sendall(_HEADER.pack(_INLINE, bytes_) + bytes(parts[0]))
            return
        file = os.memfd_create("headrace-message", os.MFD_CLOEXEC)
        try:
            total = _write(file, parts)
            socket.send_fds(self._connection, [_HEADER.pack(_FILE, total)], [file])
        finally:
            os.close(file)

    def receive(self) -> Any:
        """The next message. Raises: EOFError if the other end is gone."""
        try:
            header, files, _, _ = socket.recv_fds(
                self._connection, _HEADER.size, 1, socket.MSG_CMSG_CLOEXEC
            )
            header += self._exactly(_HEADER.size - len(header)) if header else b""
        except ConnectionResetError:
            raise EOFError from None
        if not header:
            raise EOFError
        kind, bytes_ = _HEADER.unpack(header)
        if kind == _INLINE:
            return pickle.loads(self._exactly(bytes_))
        try:
            memory = _mapped(files[0], bytes_)
        finally:
            for file in files:
                os.close(file)
        return _loaded(memory)

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            more = self._connection.recv(count - len(found))
            if not more:
                raise EOFError
            found += more
        return bytes(found)

    def shut(self) -> None:
        """Both ends get no more messages, also one that waits, and those of forked processes."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or not _is_plain(value):
            return NotImplemented
        if not value.numel():
            return _empty, (value.dtype, tuple(value.shape))
        flat: Any = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _to_tensor, (pickle.PickleBuffer(flat), value.dtype, tuple(value.shape))


def _is_plain(value: torch.Tensor) -> bool:
    return (
        value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.requires_grad
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
    )


def _empty(dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)  # frombuffer() takes no empty buffer.


def _to_tensor(buffer: Any, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)


def _dumped(value: Any) -> list[memoryview]:
    """The pickle and the memory of its arrays."""
    buffers: list[pickle.PickleBuffer] = []

    def is_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        small = buffer.raw().nbytes <= _IN_PICKLE_BYTES_MAX
        if not small:
            buffers.append(buffer)
        return small

    target = io.BytesIO()
    _Pickler(target, protocol=5, buffer_callback=is_in_pickle).dump(value)
    return [target.getbuffer(), *(each.raw() for each in buffers)]


def _write(file: int, parts: Sequence[memoryview]) -> int:
    """Writes a message's file; returns its bytes."""
    sizes = struct.pack(f"={len(parts) + 1}Q", len(parts), *(part.nbytes for part in parts))
    pieces: list[Any] = []
    for part in (memoryview(sizes), *parts):
        pieces += [part] if part.nbytes else []
        pieces += [bytes(-part.nbytes % _ALIGNMENT)] if part.nbytes % _ALIGNMENT else []
    total = 0
    while pieces:
        group = pieces[:_WRITTEN_AT_ONCE]
        written = os.writev(file, group)
        total += written
        while pieces and written >= len(pieces[0]):
            written -= len(pieces.pop(0))
        if written:
            pieces[0] = memoryview(pieces[0])[written:]
    return total


def _mapped(file: int, bytes_: int) -> memoryview:
    """The file's memory, which lives as long as its views. mmap would keep a descriptor."""
    storage: Any = torch.UntypedStorage.from_file(f"/proc/self/fd/{file}", True, bytes_)
    array: Any = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return memoryview(array)


def _loaded(memory: memoryview) -> Any:
    (count,) = struct.unpack_from("=Q", memory)
    sizes = struct.unpack_from(f"={count}Q", memory, 8)
    at = _aligned(8 * (count + 1))
    parts = []
    for size in sizes:
        parts.append(memory[at : at + size])
        at += _aligned(size)
    return pickle.loads(parts[0], buffers=parts[1:])


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
