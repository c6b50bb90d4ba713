"""Threads and processes that Python leaves behind when a program ends."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from forks import ForkServer
from loader_data import python_command

SOAK = os.environ.get("HEADRACE_SOAK") == "1"
AT_ONCE = 4  # programs: most of their time they wait
PATIENCE_S = 100.0  # Only against a hang: beside other load a program starts in many seconds.

pytestmark = pytest.mark.timeout(0 if SOAK else 600)

DAEMON = """
import sys, threading
import headrace as hr

arguments = {"job": hr.Job(node=hr.Node())} if sys.argv[2] == "process" else {}
if sys.argv[2] == "workers":
    arguments = {"workers": hr.Workers(2, start="fork"), "transform": lambda sample: sample.label}
loader = hr.Loader(sys.argv[1], batch_size=4, output="numpy", **arguments)
began = threading.Event()
seen = []

def iterate():
    while True:
        for batch in loader:
            seen.append(1)
            if len(seen) > 20:
                began.set()

threading.Thread(target=iterate, daemon=True).start()
began.wait()
"""
DAEMON_RUNS = 300 if SOAK else 8  # Before, a run in three ended with a word, one in ten by SIGABRT.


@pytest.mark.parametrize("where", ["thread", "process", "workers"])
def test_a_daemon_thread_that_iterates_ends_with_the_interpreter_without_a_word(
    numbered: Path, where: str
) -> None:
    ends_without_a_word(python_command(DAEMON, numbered, where), DAEMON_RUNS)


def ends_without_a_word(command: list[str], times: int, run: Any = subprocess.run) -> None:
    """Runs it so often."""
    options = {} if run != subprocess.run else {"capture_output": True, "text": True}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(run, command, timeout=PATIENCE_S, **options) for _ in range(times)]
        ended = {(run.result().returncode, run.result().stderr) for run in runs}
    assert ended == {(0, "")}


DAEMON_DATALOADER = """
import threading
import headrace.torch

processes = {"num_workers": 2, "worker_method": "multiprocessing"}
loader = headrace.torch.DataLoader(list(range(64)), 4, **processes)
began = threading.Event()

def iterate():
    while True:
        for count, batch in enumerate(loader):
            if count == 10:
                began.set()

threading.Thread(target=iterate, daemon=True).start()
began.wait()
"""


def test_a_daemon_thread_with_a_dataloader_ends_with_the_interpreter_without_a_word() -> None:
    command = python_command(DAEMON_DATALOADER)
    ends_without_a_word(command, 1)
    with ForkServer("headrace.torch", options=("-W", "error")) as server:  # It imports torch once.
        ends_without_a_word(command[command.index("-c") :], DAEMON_RUNS // 2 - 1, server.run)


START_AT_EXIT = """
import multiprocessing.popen_fork, multiprocessing.process, threading, time
import headrace.torch

begun, signalled, known = threading.Event(), threading.Event(), threading.Event()

class Children(set):
    def add(self, child):
        super().add(child)
        if child.name.startswith("headrace-"):
            known.set()

class Launched(multiprocessing.popen_fork.Popen):
    def _launch(self, process):
        super()._launch(process)
        begun.set()
        signalled.wait()

multiprocessing.process._children = Children()
other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,), daemon=True)
other.start()
terminate = other._popen.terminate

def terminate_late():  # The hook signals the children that it knows, then joins all.
    terminate()
    signalled.set()
    known.wait()

other._popen.terminate = terminate_late
multiprocessing.context.ForkProcess._Popen = staticmethod(Launched)
loader = headrace.torch.DataLoader(list(range(64)), 4, num_workers=2, pool_size=4)
threading.Thread(target=list, args=(loader,), daemon=True).start()
begun.wait()
"""


def test_a_process_that_a_daemon_thread_starts_while_the_interpreter_ends_is_no_hang() -> None:
    """multiprocessing's exit hook does not know it yet when it signals its children."""
    ends_without_a_word(python_command(START_AT_EXIT), 1)


DAEMON_FETCHER = """
import sys, threading
import headrace as hr
from headrace.papers.redox import RedoxFetcher

loader = hr.Loader(sys.argv[1], 4, transform=hr.image.resize(8))
fetcher = RedoxFetcher(loader, transform=lambda sample: sample.label)
began = threading.Event()

def iterate():  # As torch's DataLoader, whose own C++ aborts in such a thread at the end.
    while True:
        for requests in fetcher.sampler:
            fetcher.__getitems__(requests)
            began.set()

threading.Thread(target=iterate, daemon=True).start()
began.wait()
"""


def test_a_daemon_thread_with_a_fetcher_ends_with_the_interpreter_without_a_word(
    numbered: Path,
) -> None:
    ends_without_a_word(python_command(DAEMON_FETCHER, numbered), DAEMON_RUNS // 4)  # torch


CHILD = """
import multiprocessing, threading
import headrace.torch

def iterate():
    loader = headrace.torch.DataLoader(list(range(64)), 4, num_workers=2)
    for _ in range(3):
        list(loader)

def start():
    threading.Thread(target=iterate).start()  # multiprocessing waits for it, after its own hook.

child = multiprocessing.get_context("fork").Process(target=start)
child.start()
child.join(60)
print("ended" if child.exitcode is not None else "hangs")
child.kill()
"""


def test_a_child_process_ends_though_a_thread_of_it_iterates() -> None:
    done = subprocess.run(python_command(CHILD), capture_output=True, text=True, check=False)
    assert done.stdout == "ended\n", done.stderr


HOOK = """
import atexit, sys
import headrace as hr

loader = hr.Loader(sys.argv[1], batch_size=4, output="numpy", order="exact", seed=1)
atexit.register(lambda: print(len(next(iter(loader)))))
other = hr.Loader(
    sys.argv[1], 4, output="numpy", transform=lambda sample: sample.label,
    workers=hr.Workers(2, start="fork"),
)
next(iter(other))
"""


def test_a_hook_of_the_program_finds_its_loaders_open(numbered: Path) -> None:
    """Though multiprocessing was imported after it was registered."""
    command = python_command(HOOK, numbered)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")
