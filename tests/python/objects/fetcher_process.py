"""A fetcher, driven as the store drives it: packets over a socket, cells in shared memory."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import subprocess
from dataclasses import dataclass
from typing import Any

from headrace._objects.clients.failures import Result
from headrace._objects.clients.version import version_of
from headrace._process.helpers import command_of

CELL_BYTES = 1 << 22
_HEADER = struct.Struct("<IHH")


@dataclass
class End:
    result: Result
    received: int
    cause: str
    reports: list[int]  # bytes that were reported before
    retry_after_ns: int = -1


class Fetcher:
    """A running fetcher, and the memory of its cells: attempt N has the N-th, modulo `cells`."""

    def __init__(self, environment: dict[str, str], cells: int = 16, command: Any = None) -> None:
        self.cells = cells
        self.code = 0  # with which the process is to end
        self.store, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.store.settimeout(60)
        descriptor = os.memfd_create("headrace-test-cells", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, cells * CELL_BYTES)
        self.memory = mmap.mmap(descriptor, cells * CELL_BYTES)
        arguments = [str(other.fileno()), str(os.getpid())]
        self.process = subprocess.Popen(
            [*(command or command_of("fetcher")), *arguments],
            env={**os.environ, **environment},
            pass_fds=[other.fileno()],
        )
        other.close()
        memory = struct.pack("<BQ", 0, cells * CELL_BYTES)
        socket.send_fds(self.store, [_HEADER.pack(len(memory), 1, 0) + memory], [descriptor])
        os.close(descriptor)
        self._reports: dict[int, list[int]] = {}
        self._ended: dict[int, End] = {}
        self._next = 0

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        assert self.process.wait(20) == self.code
        self.memory.close()

    def start(self, *ranges: dict[str, Any]) -> list[int]:
        """Starts attempts, in one packet: see record(). Their numbers."""
        numbers = list(range(self._next, self._next + len(ranges)))
        self._next += len(ranges)
        self.send(b"".join(self.record(n, **one) for n, one in zip(numbers, ranges, strict=True)))
        return numbers

    def record(
        self,
        number: int,
        *,
        url: str | bytes,
        size: int,
        offset: int = 0,
        object_bytes: int,
        version: int | str = 0,
        cell: int | None = None,
    ) -> bytes:
        """`version`: the number, or an ETag. `cell`: another than the attempt's."""
        name = url.encode() if isinstance(url, str) else url
        version = version if isinstance(version, int) else version_of(version, None)
        at = (number if cell is None else cell) % self.cells * CELL_BYTES
        fields = (1, number, offset, size, at, object_bytes, version, len(name))
        return struct.pack("<BQQQQQqI", *fields) + name

    def cancel(self, number: int) -> None:
        self.send(struct.pack("<BQ", 2, number))

    def send(self, records: bytes) -> None:
        self.store.send(_HEADER.pack(len(records), 0, 0) + records)

    def end(self, number: int) -> End:
        """Waits for it."""
        while number not in self._ended:
            self._receive()
        return self._ended.pop(number)

    def next_end(self) -> tuple[int, End]:
        """Waits for the end of any attempt."""
        while not self._ended:
            self._receive()
        return self._ended.popitem()

    def reported(self, number: int) -> int:
        """Waits until bytes of the attempt are reported, before its end; how many."""
        while not self._reports.get(number):
            assert number not in self._ended
            self._receive()
        return self._reports[number][-1]

    def read(self, **one: Any) -> tuple[End, bytes]:
        """One attempt, and the bytes that are right in its cell."""
        (number,) = self.start(one)
        end = self.end(number)
        return end, self.cell(number, end.received)

    def cell(self, number: int, count: int) -> bytes:
        at = number % self.cells * CELL_BYTES
        return self.memory[at : at + count]

    def _receive(self) -> None:
        packet = self.store.recv((32 << 10) + _HEADER.size)
        assert packet, "the fetcher has ended"
        size, descriptors, kind = _HEADER.unpack_from(packet)
        assert (size, descriptors, kind) == (len(packet) - _HEADER.size, 0, 0)
        at = _HEADER.size
        while at < len(packet):
            if packet[at] == 1:
                _, number, count = struct.unpack_from("<BQQ", packet, at)
                at += 17
                self._reports.setdefault(number, []).append(count)
                assert number not in self._ended
                continue
            assert packet[at] == 2
            fields = struct.unpack_from("<BQBQqI", packet, at)
            _, number, result, count, retry_after_ns, text_bytes = fields
            at += 30
            text = packet[at : at + text_bytes].decode()
            at += text_bytes
            assert number not in self._ended
            reports = self._reports.pop(number, [])
            self._ended[number] = End(Result(result), count, text, reports, retry_after_ns)
