"""A read-only FUSE file system that answers, answers late, or not at all.

Its own implementation of the kernel's protocol (linux/fuse.h): no package is needed. Run as a
program it serves one mount; commands come as lines on its socket, each is acknowledged by a line:

    answer            every request at once
    slow MS           reads MS milliseconds late
    freeze            nothing any more, as a server that hangs
    signal N PID MS   sends signal N to the process PID in MS milliseconds; answers when, in ns

`mounted()` is for tests: it mounts, starts the server, and cleans up whatever happened.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import heapq
import os
import select
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
MS_NOSUID_NODEV_RDONLY = 2 | 4 | 1
VALID_S = 3600  # that names and attributes may be kept
LET_GO_S = 5  # for the kernel to end the io_uring of a process that has ended
MESSAGE_BYTES = (1 << 20) + (1 << 16)

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT = 26, 27, 28, 29, 36
DESTROY, BATCH_FORGET = 38, 42
# The kernel waits for the answer to a flush even in a process that is killed: with a server that
# serves it, and hangs, no process that has a file open can end, whatever it does.
OPEN_NO_FLUSH = 1 << 5
ASYNC_READ, ASYNC_DIO, PARALLEL_DIROPS, MAX_PAGES = 1 << 0, 1 << 15, 1 << 18, 1 << 22

IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")


class Server:
    """Serves the files of `source`."""

    def __init__(self, fuse: int, control: socket.socket, source: str) -> None:
        self._fuse = fuse
        self._control = control
        self._source = source
        self._paths = {1: source}
        self._nodes = {source: 1}
        self._frozen = False
        self._slow_s = 0.0
        self._later: list[tuple[float, int, Callable[[], None]]] = []  # a heap
        self._number = 0

    def run(self) -> None:
        """Until the control connection ends."""
        while True:
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            timeout = max(0.0, self._later[0][0] - now) if self._later else None
            watched = [self._control.fileno()] + ([] if self._frozen else [self._fuse])
            ready, _, _ = select.select(watched, [], [], timeout)
            if self._control.fileno() in ready and not self._command():
                return
            if self._fuse in ready and not self._frozen:
                self._request()

    def _command(self) -> bool:
        try:
            data = self._control.recv(4096)
        except ConnectionError:
            return False
        if not data:
            return False
        for line in data.decode().splitlines():
            name, *arguments = line.split()
            if name == "signal":
                number, pid, ms = map(int, arguments)
                self._at(ms / 1000, functools.partial(self._signal, number, pid))
                continue
            self._frozen = name == "freeze"
            self._slow_s = int(arguments[0]) / 1000 if name == "slow" else 0.0
            self._control.sendall(b"ok\n")
        return True

    def _signal(self, number: int, pid: int) -> None:
        now_ns = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        self._control.sendall(f"{now_ns}\n".encode())

    def _at(self, seconds: float, work: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._later, (time.monotonic() + seconds, self._number, work))

    def _request(self) -> None:
        try:
            message = os.read(self._fuse, MESSAGE_BYTES)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                return
            raise SystemExit(0) from error  # Unmounted.
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(message)
        body = message[IN_HEADER.size :]
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        try:
            reply = self._answer(opcode, node, body)
            code = 0
        except OSError as error:
            reply, code = b"", -(error.errno or errno.EIO)
        if opcode == READ and self._slow_s > 0:
            self._at(self._slow_s, lambda: self._reply(unique, code, reply))
        else:
            self._reply(unique, code, reply)

    def _reply(self, unique: int, code: int, reply: bytes) -> None:
        if self._frozen:
            return
        with contextlib.suppress(OSError):  # Who asked was killed.
            os.write(
                self._fuse, OUT_HEADER.pack(OUT_HEADER.size + len(reply), code, unique) + reply
            )

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes:
        if opcode == INIT:
            flags = ASYNC_READ | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES
            return struct.pack(
                "<IIIIHHIIHHI28x", 7, 31, 1 << 17, flags, 64, 48, 1 << 20, 1, 256, 0, 0
            )
        path = self._paths[node]
        if opcode == LOOKUP:
            child = os.path.join(path, os.fsdecode(body.split(b"\0", 1)[0]))
            attributes = self._attributes(child)
            found = self._nodes.setdefault(child, len(self._nodes) + 1)
            self._paths[found] = child
            return struct.pack("<QQQQII", found, 0, VALID_S, VALID_S, 0, 0) + attributes
        if opcode == GETATTR:
            return struct.pack("<QII", VALID_S, 0, 0) + self._attributes(path)
        if opcode == OPEN:
            return struct.pack("<QIi", os.open(path, os.O_RDONLY), OPEN_NO_FLUSH, 0)
        if opcode == READ:
            handle, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(handle, size, offset)
        if opcode == RELEASE:
            os.close(struct.unpack_from("<Q", body)[0])
            return b""
        if opcode == OPENDIR:
            return struct.pack("<QIi", 0, 0, 0)
        if opcode == READDIR:
            _, offset, size = struct.unpack_from("<QQI", body)
            return self._entries(path, offset, size)
        if opcode == STATFS:
            return struct.pack("<QQQQQIIII24x", 1 << 20, 0, 0, 1 << 20, 0, 4096, 255, 4096, 0)
        if opcode in (RELEASEDIR, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not served")

    @staticmethod
    def _attributes(path: str) -> bytes:
        it = os.stat(path)
        times = [it.st_atime_ns, it.st_mtime_ns, it.st_ctime_ns]
        seconds, rest = [t // 10**9 for t in times], [t % 10**9 for t in times]
        own = [it.st_mode, it.st_nlink, it.st_uid, it.st_gid, 0, 4096, 0]
        return ATTRIBUTES.pack(it.st_ino, it.st_size, it.st_blocks, *seconds, *rest, *own)

    @staticmethod
    def _entries(path: str, offset: int, size: int) -> bytes:
        packed = b""
        for number, name in enumerate(sorted(os.listdir(path)), 1):
            if number <= offset:
                continue
            it = os.stat(os.path.join(path, name))
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", it.st_ino, number, len(raw), stat.S_IFMT(it.st_mode) >> 12)
            entry += raw + b"\0" * (-len(raw) % 8)
            if len(packed) + len(entry) > size:
                break
            packed += entry
        return packed


def why_not() -> str | None:
    """Why no file system can be mounted here; None: it can."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    if os.geteuid() != 0:
        return "mounting needs root"
    if LIBC.unshare(0) != 0:
        return "mounting is not permitted"
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    return None if capabilities >> 21 & 1 else "mounting needs CAP_SYS_ADMIN"


class Mount:
    """A file system that is served."""

    def __init__(self, root: Path, control: socket.socket) -> None:
        self.root = root
        self.control = control  # may be handed to another process, which then commands
        self.was_held = False  # at the end a process had something of it open

    def tell(self, command: str) -> str:
        """Commands the server; its answer."""
        self.control.sendall(f"{command}\n".encode())
        return self.control.recv(4096).decode()


@contextlib.contextmanager
def mounted(source: Path, root: Path) -> Iterator[Mount]:
    """`source` served at `root`. Whatever hung there is freed at the end."""
    root.mkdir(parents=True, exist_ok=True)
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    ours, theirs = socket.socketpair()
    server, mount = None, Mount(root, ours)
    options = f"fd={fuse},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    try:
        done = LIBC.mount(
            b"headrace-test", os.fsencode(root), b"fuse", MS_NOSUID_NODEV_RDONLY, options.encode()
        )
        if done != 0:
            raise OSError(ctypes.get_errno(), f"mounting {root}")
        server = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__, str(fuse), str(theirs.fileno()), str(source)],
            pass_fds=[fuse, theirs.fileno()],
        )
        theirs.close()
        os.close(fuse)
        fuse = -1
        yield mount
    finally:
        if server is not None:
            server.kill()  # The last that has the descriptor: every request fails from here on.
            server.wait()
        if fuse >= 0:
            os.close(fuse)
        ours.close()
        until = time.monotonic() + LET_GO_S
        while LIBC.umount2(os.fsencode(root), 0) != 0 and ctypes.get_errno() == errno.EBUSY:
            if time.monotonic() > until:
                mount.was_held = LIBC.umount2(os.fsencode(root), MNT_DETACH) == 0
                break
            os.sched_yield()


if __name__ == "__main__":
    Server(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), sys.argv[3]).run()
