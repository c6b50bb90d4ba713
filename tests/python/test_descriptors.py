"""Who answers other processes, where descriptors are many or run out."""

from __future__ import annotations

import errno
import os
import resource
import selectors
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import hungry_program
import pytest

import headrace as hr
from headrace import _descriptors
from headrace._descriptors import Acceptor
from headrace._observe.monitor import Address, find_loaders

HANG_S = 300.0  # Where the machine is busy, an import of torch alone takes a minute.

pytestmark = pytest.mark.timeout(HANG_S + 60)


class Listener(socket.socket):
    """That has no room for a while."""

    room = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.room:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_who_connects_while_there_is_no_room_is_left_for_a_pause_and_told_of_once() -> None:
    now = 10.0
    with (
        Listener(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as client,
        selectors.PollSelector() as selector,
    ):
        listener.bind("")
        listener.listen(1)
        acceptor = Acceptor(selector, listener, "testing", lambda: now)
        client.connect(listener.getsockname())
        assert acceptor.select(0) == [listener]
        with pytest.warns(RuntimeWarning, match=r"headrace: testing: Too many open .*ulimit -n"):
            assert acceptor.accept() is None
        assert acceptor.select(0) == []
        now += _descriptors._PAUSE_S
        assert acceptor.select(0) == [listener]
        assert acceptor.accept() is None  # and says nothing: warnings are errors here
        assert acceptor.select(0) == []
        listener.room = True
        now += _descriptors._PAUSE_S
        assert acceptor.select() == [listener]
        accepted = acceptor.accept()
        assert accepted is not None
        accepted.close()


def test_a_warning_that_cannot_be_shown_without_a_descriptor_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def imports(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "tracemalloc.py")

    with (
        warnings.catch_warnings(),
        Listener(socket.AF_UNIX) as listener,
        selectors.PollSelector() as selector,
    ):
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", imports)
        assert Acceptor(selector, listener, "testing").accept() is None


def run(program: str, dataset: Path) -> None:
    """Runs a program of hungry_program.py: this process itself must not run out of descriptors."""
    command = [sys.executable, "-W", "error", hungry_program.__file__, program, str(dataset)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_loader_answers_in_a_process_of_very_many_descriptors(numbered: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2048:
        pytest.skip("more descriptors than select() can name are not allowed here")
    run("many", numbered)


def test_who_asks_a_loader_is_answered_when_a_descriptor_is_free(numbered: Path) -> None:
    run("asked", numbered)


@pytest.mark.parametrize("program", ["refused_monitor", "refused_node"])
def test_a_loader_that_finds_no_descriptor_says_what_for_and_keeps_none(
    numbered: Path, program: str
) -> None:
    run(program, numbered)


def test_a_node_process_s_name_is_not_taken_for_a_loader_s(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._nodes.process._alone", {})
    monkeypatch.setattr(os, "urandom", lambda count: b"\x12" * count)
    with hr.Loader(
        numbered, 10, job=hr.Job(node=hr.Node()), engine=hr.EngineOptions(monitor=True)
    ) as loader:
        assert loader._monitor is not None
        found = [each for each in find_loaders() if each.pid == os.getpid()]
        assert found == [Address(os.getpid(), loader._monitor.ordinal)]
