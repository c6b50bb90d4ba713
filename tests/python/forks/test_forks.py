"""A fork of forks/server.py is as a program that was started: what it gets, does and leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forks import ForkServer

PROGRAM = """
import atexit, os, sys, threading
atexit.register(print, "at its end")
say = sys.stdout.write  # At once: two threads may write.
threading.Thread(target=say, args=["of a thread\\n"]).start()
say(f"{__name__} {sys.argv[1:]} {os.environ['OWN']} {os.getcwd()} {len(os.environ)}\\n")
print("told", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("json", options=("-W", "error")) as made:
        yield made


@pytest.mark.parametrize("way", ["-c", "script"])
def test_it_has_words_variables_and_a_folder_and_ends_as_an_interpreter(
    server: ForkServer, tmp_path: Path, way: str
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    words = ["-c", PROGRAM, "7"] if way == "-c" else [str(script), "7"]
    environment = {"OWN": "a value", "PATH": os.environ["PATH"], "LC_CTYPE": "C.UTF-8"}
    started = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )
    forked = server.run(words, environment)
    ours, theirs = sorted(forked.stdout.splitlines()), sorted(started.stdout.splitlines())
    assert ours == theirs
    assert forked.stderr == started.stderr == "told\n"
    assert forked.returncode == started.returncode == 7


def test_what_it_raises_is_its_traceback(server: ForkServer) -> None:
    done = server.run(["-c", "raise ZeroDivisionError('of the program')"])
    assert done.stderr.endswith("ZeroDivisionError: of the program\n")
    assert done.returncode == 1
    assert server.run(["-c", "import warnings; warnings.warn('one')"]).returncode == 1


def test_it_is_talked_to_and_killed(server: ForkServer) -> None:
    program = server.start(["-c", "print(input(), flush=True); input()"], pipes=True)
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(b"a line\n")
    assert program.stdout.readline() == b"a line\n"
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert program.wait(60) == program.poll() == -signal.SIGTERM
    program.stdin.close()
    program.stdout.close()


def test_all_end_with_the_server() -> None:
    with ForkServer() as server:
        program = server.start(["-c", "print(flush=True); input()"], pipes=True)
        assert program.stdout is not None
        assert program.stdout.readline() == b"\n"
    assert program.stdout.read() == b""
    for pipe in (program.stdin, program.stdout):
        assert pipe is not None
        pipe.close()
