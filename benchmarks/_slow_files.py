"""Files that come slowly, as objects from afar: nbdkit behind FUSE.

A file consists of slots of `SLOT_BYTES`, an object in each. A byte of an object comes as late as if
its object were sent at `bytes_per_s` from its first byte on, whatever else is read at the time: so
each read waits for itself, and a large object takes longer than a small one.

Each folder has a server and a mount of its own, since libfuse answers 10 requests of a mount at a
time, and the kernel makes several of a large read. This file is also what nbdkit's Python plugin
runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

SLOT_BYTES = 2**19

_STARTING_S = 20.0
_CONNECTIONS = 12  # to each server: a little more than the requests of a mount


def can_slow() -> bool:
    """Whether `SlowFiles` can work here."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        return False
    if not all(shutil.which(program) for program in ("nbdkit", "nbdfuse", "umount")):
        return False
    plugin = subprocess.run(["nbdkit", "python", "--version"], capture_output=True, check=False)
    return plugin.returncode == 0


class SlowFiles:
    """`mounts[i]/name` reads as `folders[i]/name`, slowly, as long as the `with` lasts."""

    def __init__(
        self, folders: Sequence[Path], mounts: Sequence[Path], name: str, bytes_per_s: int
    ) -> None:
        self._folders = folders
        self._mounts = mounts
        self._name = name
        self._bytes_per_s = bytes_per_s
        self._servers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SlowFiles:
        try:
            for folder, mount in zip(self._folders, self._mounts, strict=True):
                mount.mkdir(parents=True, exist_ok=True)
                client = (
                    f"exec nbdfuse -r -C {_CONNECTIONS} '{mount / self._name}' "
                    '--unix "$unixsocket"'
                )
                self._servers.append(
                    subprocess.Popen(
                        ["nbdkit", "-U", "-", "-r", "-t", str(_CONNECTIONS), "python", __file__,
                         f"file={folder / self._name}", f"bytes_per_s={self._bytes_per_s}",
                         "--run", client]
                    )
                )  # fmt: skip
            self._wait_until_mounted()
        except BaseException:
            self._unmount()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._unmount()

    def _wait_until_mounted(self) -> None:
        end = time.monotonic() + _STARTING_S
        for server, mount in zip(self._servers, self._mounts, strict=True):
            while not mount.is_mount():
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"serving {mount} by nbdkit and nbdfuse: it is not mounted")
                time.sleep(0.02)

    def _unmount(self) -> None:
        for server, mount in zip(self._servers, self._mounts, strict=False):
            subprocess.run(["umount", mount], check=False, stderr=subprocess.DEVNULL)
            try:
                server.wait(timeout=_STARTING_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        self._servers.clear()


# nbdkit calls these: https://libguestfs.org/nbdkit-python-plugin.3.html

API_VERSION = 2
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
    sent = offset % SLOT_BYTES + len(buffer)
    time.sleep(sent / int(_served["bytes_per_s"]))
    if os.preadv(fd, [buffer], offset) != len(buffer):
        raise OSError(f"reading {len(buffer)} bytes at {offset}: the file is shorter")
