"""What tests must not leave: processes, sockets, memory files, files in a folder for temporary
ones.

They disturb the next test: it counts processes, finds a port taken, or waits for memory. `Watch` is
made before the tests of a file; `left()` says what is there afterwards and was not before.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import select
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

# Each program that a test starts inherits it, also through others and as a daemon. One that was
# only forked is seen if it is a child.
MARK = "HEADRACE_TESTS_OF"
ENDS_WITHIN_S = 5.0  # of a process that is about to end, such as one that a pool has asked to

# torch's launcher and compiler leave these, Python's processes when they are killed, and Streaming.
# Folders of benchmarks are in shared memory while tests of another process run them.
_NOT_OURS = re.compile(
    r"(torchelastic_|torchinductor_|pytorch-errorfile-|pymp-|headrace-(side|cluster)-).*"
    r"|\d+_\w+_filelock"
)

# They live as long as the process that first used multiprocessing.
_LASTING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_LASTING_THREAD = "fork-server"  # so forks/server.py calls its own; its forks have its command


class Watch:
    """Remembers what there is when it is made. Looks at this process, what it started, and the
    folders for temporary files and shared memory."""

    def __init__(self) -> None:
        self._before = {**_descriptors(), **_files()}
        self._processes = set(_processes())

    def left(self) -> list[str]:
        """One line for each thing that is new. Waits for processes that end."""
        gc.collect()
        running = {pid: name for pid, name in _processes().items() if pid not in self._processes}
        lines = [f"process {pid}: {name}" for pid, name in _wait(running).items()]
        until = time.monotonic() + ENDS_WITHIN_S
        memory: set[str] | None = None  # files that were there without a user at each look
        while True:
            now = {**_descriptors(), **_files()}
            new = [text for key, text in now.items() if key not in self._before]
            looked = {text for text in new if text.startswith("memory file")}
            # Other programs have them, too, of which nobody has one open for a moment.
            memory = looked if memory is None else memory & looked
            if not memory or time.monotonic() > until:
                return lines + [text for text in new if text in memory or text not in looked]
            select.select((), (), (), 0.1)

    def kill(self) -> None:
        """Ends the processes that `left()` named, for the tests that follow."""
        for pid in _processes().keys() - self._processes:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def mark_processes() -> None:
    """Called once, before the first test: what is started from now on is known as this
    process's."""
    os.environ[MARK] = str(os.getpid())


def _processes() -> dict[int, str]:
    """What carries the mark of this process, or is its child: number and command."""
    own, mark = os.getpid(), f"{MARK}={os.getpid()}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == own:
            continue
        folder = Path("/proc", entry)
        try:
            is_ours = (
                mark in (folder / "environ").read_bytes().split(b"\0") or _parent(folder) == own
            )
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
            thread = (folder / "comm").read_text().strip()
        except OSError:
            continue  # It ended, or is somebody else's.
        lasts = thread == _LASTING_THREAD or any(name in command for name in _LASTING)
        if is_ours and command and not lasts:
            found[int(entry)] = command.strip()[:300]
    return found


def _parent(folder: Path) -> int:
    return int((folder / "stat").read_text().rpartition(")")[2].split()[1])


def _wait(processes: dict[int, str]) -> dict[int, str]:
    """Those of the processes that do not end within the time for it."""
    until = time.monotonic() + ENDS_WITHIN_S
    for pid in list(processes):
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            del processes[pid]
            continue
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if poll.poll(max(0.0, until - time.monotonic()) * 1000):
                del processes[pid]
        finally:
            os.close(handle)
    return processes


def _descriptors() -> dict[str, str]:
    """Sockets and memory files that this process has open."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith(("socket:", "/memfd:", "/dev/shm/")):
            found[f"{name} {target}"] = f"descriptor {name}: {target}"
    return found


def _files() -> dict[str, str]:
    """What lies in the folder for temporary files, and in shared memory without a user."""
    found = {str(path): f"file {path}" for path in _entries(tempfile.gettempdir())}
    shared = _numbered(_entries("/dev/shm"))
    if shared:
        used = _in_use()
        # Those of other programs go at any time: named before, not used, and gone now.
        still = _numbered(shared)
        found.update(
            (str(path), f"memory file {path}")
            for path, file in shared.items()
            if file not in used and still.get(path) == file
        )
    return found


_File = tuple[int, int]  # its device and its number there


def _numbered(paths: Iterable[Path]) -> dict[Path, _File]:
    """Those that are there."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[path] = _number(os.lstat(path))
    return found


def _number(stat: os.stat_result) -> _File:
    return stat.st_dev, stat.st_ino


def _entries(folder: str) -> Iterator[Path]:
    try:
        entries = list(Path(folder).iterdir())
    except OSError:
        return
    yield from (path for path in entries if not _NOT_OURS.fullmatch(path.name))


def _in_use() -> set[_File]:
    """The files of shared memory that any process has open or mapped.

    By their numbers: a process that makes a semaphore maps it by another name, and then renames it.
    """
    used: set[_File] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{entry}/maps") as maps:
            used.update(_mapped(line) for line in maps if "/dev/shm/" in line)
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{entry}/fd"):
                with contextlib.suppress(OSError):
                    used.add(_number(os.stat(f"/proc/{entry}/fd/{name}")))
    return used


def _mapped(line: str) -> _File:
    """The file of a line of /proc/PID/maps."""
    device, inode = line.split(maxsplit=5)[3:5]
    major, minor = device.split(":")
    return os.makedev(int(major, 16), int(minor, 16)), int(inode)
