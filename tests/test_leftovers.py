"""tests/leftovers.py sees each kind of thing that a test may leave, and nothing that ended in
time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import leftovers
import pytest

WAITS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


def start() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "ENDS_WITHIN_S", 0.05)


@pytest.mark.usefixtures("short_wait")
def test_a_process_is_seen_until_it_ended() -> None:
    watch = leftovers.Watch()
    with start() as process:
        assert [line for line in watch.left() if line.startswith(f"process {process.pid}: ")]
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    assert watch.left() == []


def test_a_daemon_whose_parent_ended_is_seen_by_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import subprocess; nowhere = subprocess.DEVNULL; print(subprocess.Popen("
        f"{WAITS!r}, stdin=0, stdout=nowhere, stderr=nowhere, start_new_session=True).pid)"
    )
    watch = leftovers.Watch()
    read, write = os.pipe()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdin=read, stdout=subprocess.PIPE, check=True)
    os.close(read)
    with monkeypatch.context() as patch:
        patch.setattr(leftovers, "ENDS_WITHIN_S", 0.05)
        name = f"process {int(done.stdout)}: "
        assert [line for line in watch.left() if line.startswith(name)]
    os.close(write)  # It ends.
    assert watch.left() == []


def open_socket() -> Any:
    import socket

    return socket.create_server(("127.0.0.1", 0))


def open_memory() -> Any:
    return os.fdopen(os.memfd_create("left"))


def write_temporary() -> Any:
    return tempfile.NamedTemporaryFile()


@pytest.mark.parametrize(
    ("leave", "name"),
    [(open_socket, "socket:"), (open_memory, "/memfd:left"), (write_temporary, "file ")],
)
def test_what_is_open_or_lies_about_is_seen_until_it_is_closed(
    leave: Callable[[], Any], name: str
) -> None:
    watch = leftovers.Watch()
    with leave():
        assert any(name in line for line in watch.left())
    assert watch.left() == []


@pytest.mark.usefixtures("short_wait")
def test_shared_memory_that_nobody_uses_is_seen_and_what_somebody_uses_is_not() -> None:
    watch = leftovers.Watch()
    memory = shared_memory.SharedMemory(create=True, size=4096)
    path = Path("/dev/shm", memory.name)
    assert not any(str(path) in line for line in watch.left() if line.startswith("memory file"))
    memory.close()
    assert f"memory file {path}" in watch.left()
    memory.unlink()
    assert watch.left() == []


FOREIGN = """
import sys
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=4096)
print(memory.name, flush=True)
sys.stdin.readline()
memory.unlink()
"""


@pytest.mark.usefixtures("short_wait")
def test_shared_memory_of_a_process_that_is_not_this_one_s_is_not_seen() -> None:
    """A file has an inode that another process maps, whatever its name is, as that of a semaphore:
    it is made under one name, and gets its own then."""
    watch = leftovers.Watch()
    environment = {name: value for name, value in os.environ.items() if name != leftovers.MARK}
    with subprocess.Popen(
        [sys.executable, "-c", FOREIGN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        made = Path("/dev/shm", process.stdout.readline().strip())
        other = made.with_name(f"sem.mp-{os.getpid()}")
        os.link(made, other)
        try:
            assert not [line for line in watch.left() if line.startswith("memory file")]
            print(file=process.stdin, flush=True)
            process.wait()
            assert [line for line in watch.left() if line.startswith("memory file")] == [
                f"memory file {other}"
            ]
        finally:
            other.unlink()
    assert watch.left() == []


def test_what_was_gone_at_one_of_the_looks_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As memory of other programs, which comes and goes, each time with another name."""
    watch = leftovers.Watch()
    names = iter("abc")
    monkeypatch.setattr(
        leftovers, "_files", lambda: {name: f"memory file {name}" for name in [next(names)]}
    )
    assert watch.left() == []
    assert next(names) == "c"
