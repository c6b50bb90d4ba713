"""Messages between the user's process and one that it started: pickled, the size before each."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

SIZE = struct.Struct("<Q")


def received(connection: socket.socket) -> Any:
    """The next message. Raises EOFError at the end."""
    (size,) = SIZE.unpack(_bytes(connection, SIZE.size))
    return pickle.loads(_bytes(connection, size))


def _bytes(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    at = 0
    while at < size:
        count = connection.recv_into(memoryview(data)[at:])
        if count == 0:
            raise EOFError
        at += count
    return data
