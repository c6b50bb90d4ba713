"""Files that come slowly, as objects from afar: nbdkit behind FUSE.

Either each read takes `delay_s`, whatever else is read at the time. Or a file consists of slots of
512 KiB, an object in each, and a byte of an object comes as late as if its object were sent at
`bytes_per_s` from its first byte on: a large object takes longer than a small one.

Each folder has a server and a mount of its own, since libfuse answers 10 requests of a mount at a
time, and the kernel makes several of a large read. `served.py` serves slots; it takes much
processor time, so reads that all take as long have a filter of nbdkit in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_SERVED = Path(__file__).parent / "served.py"
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
        self,
        folders: Sequence[Path],
        mounts: Sequence[Path],
        name: str,
        *,
        bytes_per_s: int = 0,
        delay_s: float = 0.0,
    ) -> None:
        self._folders = folders
        self._mounts = mounts
        self._name = name
        self._bytes_per_s = bytes_per_s
        self._delay_s = delay_s
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
                        ["nbdkit", "-U", "-", "-r", "-t", str(_CONNECTIONS),
                         *self._served(folder / self._name), "--run", client]
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

    def _served(self, file: Path) -> list[str]:
        """The words of nbdkit that say what it serves, and how."""
        if self._delay_s:
            milliseconds = round(1000 * self._delay_s)
            return ["--filter=delay", "file", f"file={file}", f"rdelay={milliseconds}ms"]
        return ["python", str(_SERVED), f"file={file}", f"bytes_per_s={self._bytes_per_s}"]

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
