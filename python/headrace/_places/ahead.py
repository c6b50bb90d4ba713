"""Reads ahead in files that are read in order: of a store each read is a request."""

from __future__ import annotations

from headrace._places.place import Reader

_GAP_BYTES = 2**20  # arrive in the time of a request: such a gap is read along
_AHEAD_BYTES_MAX = 8 * 2**20


class Ahead:
    """A `Reader` of another's file. While one read follows the other, it reads ahead as many bytes
    as were asked for, so at most twice as many.

    Memory: 8 MiB, or one read. Thread safety: one thread at a time.
    """

    descriptor = None

    def __init__(self, reader: Reader) -> None:
        self.size = reader.size
        self._reader = reader
        self._begin, self._kept = 0, b""
        self._run_begin = self._run_end = 0  # of the reads that followed each other

    def read(self, offset: int, count: int, /) -> bytes:
        """As `Reader.read`."""
        if not 0 <= offset - self._run_end <= _GAP_BYTES:
            self._run_begin = offset
        self._run_end = offset + count
        at = offset - self._begin
        if not 0 <= at <= len(self._kept) - min(count, self.size - offset):
            ahead = min(offset - self._run_begin, _AHEAD_BYTES_MAX)
            self._kept = self._reader.read(offset, max(count, ahead))
            self._begin, at = offset, 0
        return self._kept[at : at + count]

    def close(self) -> None:
        """Closes the other reader."""
        self._reader.close()
