"""Readers of row groups that are forks of one process, which has imported pyarrow and Headrace.

A loader starts one by a command, and importing takes each a quarter of a second. Here the command
gives its socket to the server, whose fork is the reader, and ends with it. What a reader does and
how the core treats it are the same.

Usage: forks/group_readers.py SOCKET: the server, until its stdin ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from headrace._process import helpers
from headrace.formats import _row_group_reader as reader

ADDRESS = "HEADRACE_TEST_GROUP_READERS"  # in the environment: the server's socket
_IMPORTED = ("numpy", "pyarrow.parquet", "pyarrow.compute", "pyarrow.dataset", "zstandard")

# Of an interpreter that imports nothing else: of an address, the command of other helpers, and what
# a store adds. Waits for the fork, which has the other end.
_RELAY = """
import _socket, sys
if sys.argv[-3] != "group-reader":
    import posix
    posix.execv(sys.argv[2], sys.argv[2:])
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect(sys.argv[1])
handle = int(sys.argv[-2]).to_bytes(4, sys.byteorder)
server.sendmsg([sys.argv[-1].encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handle)])
_socket.close(int(sys.argv[-2]))
server.recv(1)
"""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Serves below a folder; the variables with which `use_server` finds it."""
    address = str(folder / "readers")
    server = subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"serves\n"
        yield {ADDRESS: address}
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


def use_server() -> None:
    """Loaders of this process and its nodes start such readers, if the environment has a server."""
    address = os.environ.get(ADDRESS)
    if address is not None:
        words = [sys.executable, "-I", "-S", "-c", _RELAY, address, *helpers.helper_command()]
        helpers.helper_command = lambda: words
        helpers.set_helper_command()


def main(address: str) -> None:
    for name in _IMPORTED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("serves", flush=True)
        readers: list[int] = []
        while True:
            ready, _, _ = select.select([server, 0], [], [])
            if 0 in ready:
                for pid in readers:  # One that a process keeps does not end by itself.
                    os.kill(pid, signal.SIGKILL)
            for pid in list(readers):  # Waited for, so that their time is counted.
                if os.waitpid(pid, 0 if 0 in ready else os.WNOHANG)[0] != 0:
                    readers.remove(pid)
            if 0 in ready:
                return
            client, _ = server.accept()
            text, handles, _, _ = socket.recv_fds(client, 32, 1)
            if handles:
                readers.append(os.fork())
                if readers[-1] == 0:
                    server.close()
                    _read(handles[0], text.decode())
            for handle in handles:
                os.close(handle)
            client.close()


def _read(handle: int, process: str) -> None:
    """The reader, in the fork; `client` closes with it."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    sys.argv = ["reader", str(handle), process]
    try:
        reader.main()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
