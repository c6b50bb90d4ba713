"""Programs of Python in forks of one process that has imported what they need.

A process that imports numpy and Headrace itself takes a quarter of a second for it, one that
imports torch two seconds. What a fork runs is the same but for that: it has the test's environment,
standard files of its own and the end of an interpreter.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

SERVER = str(Path(__file__).with_name("server.py"))


class Forked:
    """A program that a `ForkServer` started. As subprocess.Popen, of bytes without buffers."""

    def __init__(self, pid: int, end: int, stdin: IO[bytes] | None, stdout: IO[bytes] | None):
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._end = end

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked program", timeout or 0)
            code = os.read(self._end, 16)
            assert code, "the server of a forked program ended"
            os.close(self._end)
            self.returncode = int(code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Starts programs as forks of a process of its own that has imported `modules`.

    Thread safety: everything from any thread.
    """

    def __init__(self, *modules: str, options: Sequence[str] = (), **variables: str) -> None:
        """`options` of the interpreter, and `variables` of its environment while it imports."""
        self._lock = threading.Lock()
        paths = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, *options, SERVER, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths} | variables,
            bufsize=0,
        )

    def start(
        self,
        words: Sequence[object],
        env: Mapping[str, str] | None = None,
        *,
        pipes: bool = False,
        out: int | None = None,
        err: int = 2,
        folder: Path | None = None,
    ) -> Forked:
        """Begins "-c" and code, "-m" and a module, or a script, with its arguments.

        `pipes`: its stdin and stdout are pipes to this process; else stdin is empty, and `out` is
        its stdout. `out` and `err` are open files of this process, and written at their ends.
        """
        end, ends = os.pipe()
        read = write = None
        if pipes:
            stdin, write = os.pipe()
            read, out = os.pipe()
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
        files = [
            f"/proc/{os.getpid()}/fd/{file}" for file in (stdin, 1 if out is None else out, err)
        ]
        task = {
            "words": [*map(str, words)],
            "env": dict(os.environ if env is None else env),
            "files": files,
            "end": f"/proc/{os.getpid()}/fd/{ends}",
            "folder": str(folder or Path.cwd()),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            pid = int(self._process.stdout.readline() or 0)
        assert pid > 0, "the server of forked programs ended"
        for file in (ends, stdin, *([out] if pipes else [])):
            os.close(file)
        if write is None:
            return Forked(pid, end, None, None)
        return Forked(pid, end, os.fdopen(write, "wb", 0), os.fdopen(read, "rb", 0))

    def run(
        self, words: Sequence[object], env: Mapping[str, str] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """A program to its end, with what it printed."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            program = self.start(words, env, out=out.fileno(), err=err.fileno())
            try:
                code = program.wait(timeout)
            finally:
                program.kill()
            printed = [os.pread(file.fileno(), 1 << 24, 0).decode() for file in (out, err)]
        return subprocess.CompletedProcess([*map(str, words)], code, *printed)

    def close(self) -> None:
        """Ends it, and all programs that run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_RANKS = ("numpy", "headrace", "headrace._nodes.process", "loader_data")
_SHARED = {
    "ranks": _RANKS,
    "torch ranks": (*_RANKS, "headrace.torch"),
    "commands": ("headrace.cli.main", "PIL.Image", "pyarrow.parquet", "rich.progress"),
}


def shared_server(kind: str) -> ForkServer:
    """One of this process, until its end: "ranks", "torch ranks" or "commands" (-m headrace)."""
    return _shared_server(os.getpid(), kind)


@functools.cache
def _shared_server(_owner: int, kind: str) -> ForkServer:
    server = ForkServer(*_SHARED[kind], options=("-W", "error"))
    atexit.register(server.close)
    return server
