"""Keeps files in the page cache while a run lasts.

A file whose pages nobody maps can lose them at any time: some virtual machines return memory to
their host steadily. Locked pages stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import _harness
import numpy as np

_PAGE = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)


class NotResidentError(Exception):
    """Pages are missing."""


@contextlib.contextmanager
def resident(files: Sequence[Path]) -> Iterator[None]:
    """All pages of the files are in the page cache, and locked there if the limit permits.

    Raises:
        NotResidentError: pages are missing right after they were read.
    """
    with contextlib.ExitStack() as stack:
        for path in files:
            if path.stat().st_size:
                stack.enter_context(_locked(path))
        wanted = sum(-(-path.stat().st_size // _PAGE) * _PAGE for path in files)
        if (missing := wanted - _harness.resident_bytes(files)) > 0:
            raise NotResidentError(f"{missing} bytes of {files[0].parent.name} left the page cache")
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.frombuffer(mapped, np.uint8)
        address, size = ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(len(pages))
        if _libc.mlock(address, size) != 0:
            _harness.make_warm([path])
        del pages
        yield
