"""Cold starts: takes files out of the page cache, and looks whether they are out."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


def files_under(root: Path) -> list[Path]:
    """All files under `root`, sorted."""
    return sorted(path for path in root.rglob("*") if path.is_file())


def evict(files: Iterable[Path]) -> None:
    """Drops the files' clean pages from the page cache; needs no rights beyond reading them."""
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def forget_names() -> bool:
    """Drops names and inodes that nothing uses, of the whole machine; False if not allowed.

    Not the page cache too: with the pages of Python's and torch's libraries gone, what worker
    processes then read is mostly those.
    """
    try:
        Path("/proc/sys/vm/drop_caches").write_text("2", encoding="ascii")
    except OSError:
        return False
    return True


def resident_bytes(files: Iterable[Path]) -> int:
    """Bytes of the files that are in the page cache, by mincore(2), in whole pages."""
    return sum(_resident_pages(file) for file in files) * mmap.PAGESIZE


def _resident_pages(file: Path) -> int:
    fd = os.open(file, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return 0
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "mmap", str(file))
        try:
            pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
            if _libc.mincore(address, size, pages) != 0:
                raise OSError(ctypes.get_errno(), "mincore", str(file))
        finally:
            _libc.munmap(address, size)
    finally:
        os.close(fd)
    return sum(page & 1 for page in pages.raw)
