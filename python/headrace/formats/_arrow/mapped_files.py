"""Where memory that pyarrow names lies in files."""

from __future__ import annotations

import bisect
import contextlib
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
from headrace.formats._indexing.in_order import in_order

Bytes = npt.NDArray[np.uint8]
_AHEAD_BYTES = 256 * 1024  # of one read
_PIECE_BYTES = 8 * 2**20  # of a copy


class MappedFile:
    """A file in memory, of which only the pages that are used are read.

    Thread safety: one thread at a time.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0  # in the builder
        self._scratch = bytearray()
        try:
            self._fd = (
                os.open(_places.local_path(path), os.O_RDONLY | os.O_CLOEXEC)
                if _places.is_local(path)
                else _copied(path)
            )
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

    def read_ahead(self, offset: int, size: int) -> None:
        """Has the system read these bytes, as far as the file has them.

        Other threads run meanwhile, which they do not while the mapping reads a page.
        """
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


def _copied(path: str) -> int:
    """An unnamed temporary file with the bytes of one that cannot be mapped; its descriptor.

    Rows are described by values that lie all over the file, so all of it is read.
    """
    import tempfile  # It takes long to import.

    with contextlib.closing(_places.reader(path)) as source, tempfile.TemporaryFile() as file:
        pieces = range(0, source.size, _PIECE_BYTES)
        with contextlib.closing(in_order(lambda at: source.read(at, _PIECE_BYTES), pieces)) as read:
            for piece in read:
                try:
                    file.write(piece)
                except OSError as error:
                    raise ResourceExhaustedError(
                        f"reading {path}: copying its {format_bytes(source.size)} to a temporary "
                        f"file in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a "
                        "folder with more room, or index the data on a disk"
                    ) from error
        file.flush()
        return os.dup(file.fileno())


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
