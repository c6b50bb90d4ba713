"""A message that one node sends to another, made by hand: what it plans (`Compare` of peers.proto).
HTTP/2 as far as one unary call of gRPC needs it, so that no test needs a gRPC library."""

from __future__ import annotations

import socket
import struct

TOKEN = "the secret of a test"  # As node_ranks.py gives it to the ranks.

_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4


def tell_plan(address: str, *, node: int, step: int, sums: tuple[int, int, int]) -> None:
    """Says to the node at `address` what `node` comes to with a step of epoch 0 of the first run.
    Returns when it has answered."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": "/headrace.peers.v1.Peers/Compare",
            ":authority": address,
            "content-type": "application/grpc",
            "te": "trailers",
            "headrace-token": TOKEN,
        }
        packed = struct.pack("<3Q", *sums)
        plan = bytes([0x08, node, 0x10, 1, 0x20, step, 0x2A, len(packed)]) + packed
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, 1, b"".join(map(_header, headers.items())))
            + _frame(_DATA, _END_STREAM, 1, struct.pack(">BI", 0, len(plan)) + plan)
        )
        answer = connection.makefile("rb")
        while True:
            head = answer.read(9)
            assert len(head) == 9, "the node closed the connection"
            kind, flags = head[3], head[4]
            answer.read(int.from_bytes(head[:3], "big"))
            if kind == _HEADERS and flags & _END_STREAM:
                return


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _header(field: tuple[str, str]) -> bytes:
    """As a literal that is not indexed."""
    parts = [part.encode() for part in field]
    return b"\0" + b"".join(bytes([len(part)]) + part for part in parts)
