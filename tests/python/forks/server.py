"""Starts programs as forks of this process, which has imported what they need: forks/__init__.py.

Usage: forks/server.py MODULE...: imports these, and starts no thread. A line of JSON on stdin is a
program to start, and the line that answers on stdout is its process id. Its code of exit goes to a
pipe of the client. All programs end with this process, and it ends with its stdin.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

SERVER_NAME = "fork-server"  # of its thread, by which tests/leftovers.py knows it
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_LIBC = ctypes.CDLL(None)
_AS_AT_THE_START = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)


def main(modules: list[str]) -> None:
    task = serve(modules)
    if task is not None:  # This is a fork. It ends as any interpreter.
        run(task["words"])


def serve(modules: list[str]) -> dict[str, Any] | None:
    """To the end of stdin. In a fork: what it has to run."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # Each program's end collects garbage: not among all that was imported here.
    _LIBC.prctl(_PR_SET_NAME, SERVER_NAME.encode())
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ends: dict[int, int] = {}  # by process: the pipe for its code
    own = (woken, wakes)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            tell_ends(ends)
        if 0 in ready:
            line = read_line()
            if not line:
                return None
            task = json.loads(line)
            child = start(task, ends, own)
            if child == 0:
                return dict(task)
            os.write(1, f"{child}\n".encode())


def read_line() -> bytes:
    """The client sends one and waits for the answer."""
    line = b""
    while not line.endswith(b"\n"):
        got = os.read(0, 1 << 16)
        if not got:
            return b""
        line += got
    return line


def tell_ends(ends: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            pid, status = ended
            with contextlib.suppress(BrokenPipeError):
                os.write(ends[pid], str(os.waitstatus_to_exitcode(status)).encode())
            os.close(ends.pop(pid))


def start(task: Mapping[str, Any], ends: dict[int, int], own: Sequence[int]) -> int:
    """Forks the process of a program; 0 in it. The task's files are open files of the client."""
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)
    files = [os.open(path, flag) for path, flag in zip(task["files"], flags, strict=True)]
    end = os.open(task["end"], os.O_WRONLY)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        for number, file in enumerate(files):
            os.dup2(file, number)
        for file in (*files, end, *own, *ends.values()):
            os.close(file)
        os.setsid()
        os.chdir(task["folder"])
        begin(task["env"])
        return 0
    for file in files:
        os.close(file)
    ends[child] = end
    return child


def begin(environment: Mapping[str, str]) -> None:
    """In a process that was just forked: as it would be if it had been started."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _LIBC.prctl(_PR_SET_NAME, b"forked")
    for number in _AS_AT_THE_START:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)


def run(words: list[str]) -> None:
    """A program: "-c" and code, "-m" and a module, or a script."""
    kind = words[0]
    if kind == "-c":
        sys.argv = ["-c", *words[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        path = os.path.abspath(kind)  # Workers that are spawned import it, from another folder.
        sys.path[0] = str(Path(path).parent)
        runpy.run_path(path, run_name="__main__")


def run_and_end(words: list[str], environment: Mapping[str, str]) -> NoReturn:
    """The same, in a process that was just forked. It does not return to what called this."""
    code = 1
    try:
        begin(environment)
        run(words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for its threads
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


class ForkedPopen(subprocess.Popen[bytes]):
    """For a program of a fork that starts others: `python -u SCRIPT ...` in a fork of its own."""

    def _execute_child(self, args: Sequence[str], *others: Any) -> None:
        environment = others[5]  # as subprocess orders them
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            words = list(args[1:])
            run_and_end(words[1:] if words[0] == "-u" else words, environment or dict(os.environ))
        self._child_created = True


if __name__ == "__main__":
    main(sys.argv[1:])
