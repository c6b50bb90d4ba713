"""What nbdkit's Python plugin runs: a file whose objects are sent slowly.

https://libguestfs.org/nbdkit-python-plugin.3.html
"""

from __future__ import annotations

import os
import time

API_VERSION = 2

_SLOT_BYTES = 2**19
_served = {"file": "", "bytes_per_s": ""}


def thread_model() -> int:
    import nbdkit

    return int(nbdkit.THREAD_MODEL_PARALLEL)


def config(key: str, value: str) -> None:
    _served[key] = value


def open(readonly: bool) -> int:
    return os.open(_served["file"], os.O_RDONLY)


def close(fd: int) -> None:
    os.close(fd)


def get_size(fd: int) -> int:
    return os.fstat(fd).st_size


def can_multi_conn(fd: int) -> bool:
    return True  # or nbdfuse takes one connection


def pread(fd: int, buffer: bytearray, offset: int, flags: int) -> None:
    sent = offset % _SLOT_BYTES + len(buffer)
    time.sleep(sent / int(_served["bytes_per_s"]))
    if os.preadv(fd, [buffer], offset) != len(buffer):
        raise OSError(f"reading {len(buffer)} bytes at {offset}: the file is shorter")
