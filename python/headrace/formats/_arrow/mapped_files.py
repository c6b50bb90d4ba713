"""Where memory that pyarrow names lies in files."""

from __future__ import annotations

import bisect
import mmap
import os
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import _places
from headrace._text import unread_reason
from headrace._units import format_bytes
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    HeadraceError,
    NotFoundError,
    ResourceExhaustedError,
)

Bytes = npt.NDArray[np.uint8]
_AHEAD_BYTES = 256 * 1024  # of one read
_BLOCK_BYTES = 256 * 1024  # of a file that is no local one
_BLOCKS_AHEAD_MAX = 32
_REQUEST_BYTES = 32 * 2**20


class MappedFile:
    """A file in memory, of which only the pages that are used are read.

    One that does not lie on a disk has only what `range`, `fill` or `read_ahead` asked for:
    elsewhere `map` has zeros.

    Thread safety: one thread at a time.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0  # in the builder
        self._scratch = bytearray()
        try:
            self._blocks = None if _places.is_local(path) else _Blocks(path)
            if self._blocks is not None:
                self._fd = self._blocks.descriptor
            else:
                self._fd = os.open(_places.local_path(path), os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._fd)
            size = os.fstat(self._fd).st_size
            if size == 0:
                raise DataLossError(f"indexing {path}: the file is empty; copy it again")
            self._map = mmap.mmap(self._fd, size, prot=mmap.PROT_READ)
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        except HeadraceError:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"reading {path}: no such file") from error
        except OSError as error:
            raise FailedPreconditionError(f"reading {path}: {unread_reason(error)}") from error
        self._map.madvise(mmap.MADV_RANDOM)
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8)
        self.base = int(self.bytes.ctypes.data)

    @property
    def map(self) -> mmap.mmap:
        """The mapping."""
        return self._map

    def range(self, offset: int, size: int) -> Bytes:
        """These bytes, which the file has."""
        self.read_ahead(offset, size)
        return self.bytes[offset : offset + size]

    def fill(self, offset: int, size: int) -> None:
        """Of a file that does not lie on a disk: reads these bytes, as far as it has them."""
        if self._blocks is not None:
            self._blocks.fill(offset, size)

    def read_ahead(self, offset: int, size: int) -> None:
        """Has the system read these bytes, as far as the file has them.

        Other threads run meanwhile, which they do not while the mapping reads a page.
        """
        self.fill(offset, size)
        if self._blocks is not None:
            return
        self._scratch = self._scratch or bytearray(_AHEAD_BYTES)
        for at in range(offset, offset + size, _AHEAD_BYTES):
            into = memoryview(self._scratch)[: offset + size - at]
            try:
                if os.preadv(self._fd, [into], at) == 0:
                    return
            except OSError as error:
                raise FailedPreconditionError(
                    f"reading {self.path}: {unread_reason(error)}"
                ) from error

    def forget(self) -> None:
        """Gives back the memory of pages that were read; they can be read again."""
        self._map.madvise(mmap.MADV_DONTNEED)


class _Blocks:
    """An unnamed temporary file that gets the blocks of one that cannot be mapped, as they are
    asked for. Its user closes the descriptor."""

    def __init__(self, path: str) -> None:
        import tempfile  # It takes long to import.

        self._path = path
        self._reader = _places.reader(path)
        self._filled = bytearray(-(-self._reader.size // _BLOCK_BYTES))
        with tempfile.TemporaryFile() as file:
            self.descriptor = os.dup(file.fileno())
        os.ftruncate(self.descriptor, self._reader.size)

    def fill(self, offset: int, size: int) -> None:
        """Reads these bytes, as far as the file has them; and ahead, where the blocks before them
        were read, too: as many again, at most."""
        at = offset // _BLOCK_BYTES
        end = min(-(-(offset + size) // _BLOCK_BYTES), len(self._filled))
        while (at := self._filled.find(0, at, end)) >= 0:
            before = self._filled.rfind(0, 0, at) + 1
            ahead = min(at - before, _BLOCKS_AHEAD_MAX)
            last = min(max(end, at + ahead), at + _REQUEST_BYTES // _BLOCK_BYTES)
            stop = self._filled.find(1, at, last)
            at = self._read(at, stop if stop >= 0 else min(last, len(self._filled)))

    def _read(self, first: int, end: int) -> int:
        """Reads blocks; returns the number of the next one."""
        data = self._reader.read(first * _BLOCK_BYTES, (end - first) * _BLOCK_BYTES)
        at = first * _BLOCK_BYTES
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self.descriptor, memoryview(data)[done:], at + done)
        except OSError as error:
            raise ResourceExhaustedError(
                f"reading {self._path}: writing {format_bytes(len(data))} to a temporary file: "
                f"{error.strerror}; set TMPDIR to a folder with more room, or index the data on a "
                "disk"
            ) from error
        self._filled[first:end] = b"\1" * (end - first)
        return end


class Places:
    """Finds the file, and the offset in it, of an address: in mappings [base, base + size)."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._mappings: list[tuple[int, int, MappedFile]] = []  # size, offset in the file

    def add(self, base: int, size: int, offset: int, file: MappedFile) -> None:
        """Memory that holds the bytes of a file from `offset` on."""
        at = bisect.bisect(self._bases, base)
        self._bases.insert(at, base)
        self._mappings.insert(at, (size, offset, file))

    def files(self) -> dict[int, MappedFile]:
        """The files, by their numbers."""
        return {file.number: file for _, _, file in self._mappings}

    def locate(self, buffer: Any) -> tuple[MappedFile, int] | None:
        """The file and the offset of pyarrow's buffer; None if it lies in other memory."""
        address, needed = int(buffer.address), int(buffer.size)
        at = bisect.bisect(self._bases, address) - 1
        if at < 0:
            return None
        size, offset, file = self._mappings[at]
        inside = address - self._bases[at]
        if inside + needed > size or offset + inside + needed > file.bytes.size:
            return None
        return file, offset + inside

    def view(self, buffer: Any, start: int, size: int) -> Bytes | None:
        """Bytes [start, start + size) of a buffer, from its file; None if it has fewer."""
        if start < 0 or size < 0 or start + size > buffer.size:
            return None
        place = self.locate(buffer)
        if place is None:
            return np.frombuffer(buffer, np.uint8)[start : start + size]
        file, offset = place
        return file.range(offset + start, size)
