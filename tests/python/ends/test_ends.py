"""A run ends in its middle, whatever storage does: in time, as Python's own, and nothing is left.

Each cell is a process of its own over a mount of its own. HEADRACE_SOAK=1 has 200 seeds a cell,
HEADRACE_ENDS=n has n; HEADRACE_SEED says which, and a failure names its own: run that alone with
HEADRACE_SEED=... HEADRACE_ENDS=1.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ends_program
import fuse_server
import pytest
from forks import ForkServer
from fuse_server import mounted
from loader_data import python_command
from matrix_data import write_row_groups, write_zstd_shards

import headrace as hr

SOAK = os.environ.get("HEADRACE_SOAK") == "1"
SEEDS = int(os.environ.get("HEADRACE_ENDS", "200" if SOAK else "1"))
FIRST_SEED = int(os.environ.get("HEADRACE_SEED", "0")) % 2**32
AT_ONCE = 4  # cells: most of their time they wait
PATIENCE_S = 100.0  # Only against a hang: beside other load a program starts in many seconds.
IN_TIME_S = 20.0  # from the signal, or the loop's own end, to that of the last process
EXPECTED_S = 2.0

HOWS = ("SIGINT", "SIGTERM", "exit", "exception")
STORAGES = ("answers", "slow", "frozen")
EXIT_CODES = {
    "SIGINT": -signal.SIGINT,
    "SIGTERM": -signal.SIGTERM,
    "exit": 0,
    "exception": 1,
}
LAST_LINES = {"SIGINT": "KeyboardInterrupt", "exception": "ZeroDivisionError"}
NOISE = ("Exception ignored", "Exception in thread", "leak", "Fatal")
ALIKE = "ignore:headrace:RuntimeWarning"  # Labels in blocks of such small datasets are alike.
MARK = "HEADRACE_TEST_CELL"  # in the environment of all processes of a cell

needs_mounts = pytest.mark.skipif(
    fuse_server.why_not() is not None, reason=f"FUSE: {fuse_server.why_not()}"
)
pytestmark = pytest.mark.timeout(0 if SOAK or SEEDS > 1 else 600)


@dataclass(frozen=True)
class Cell:
    """One run."""

    how: str
    storage: str
    isolation: str
    workers: int
    seed: int

    def __str__(self) -> str:
        return f"{self.how}-{self.storage}-{self.isolation}-workers{self.workers}, seed {self.seed}"

    def plan(self, sources: dict[str, Path], mount: Path) -> tuple[Path, dict[str, Any]]:
        """What is served at `mount`, and what the program does."""
        chance = random.Random(str(self))
        kind = chance.choice(sorted(sources))
        where = chance.choice(["bare", "with", "daemon"])
        loader: dict[str, Any] = {
            "dataset": str(mount),
            "batch_size": chance.choice([1, 4, 10]),
            "order": chance.choice(["exact", "batch", "epoch"]),
            "seed": self.seed,
            "prefetch": chance.choice([1, 3]),
            "threads": chance.choice([1, 2]),
            "isolation": self.isolation,
        }
        if self.workers:
            start = chance.choice(["fork", "spawn"])
            loader |= {"workers": self.workers, "start": start}
        return sources[kind], {
            "how": self.how,
            "storage": self.storage,
            "step": chance.randrange(12),
            "delay_ms": chance.choice([0, chance.randrange(20), chance.randrange(200)]),
            "where": where,
            "loader": loader,
        }


@dataclass(frozen=True)
class Ended:
    """How a cell went. Seconds are from the signal, or the program's own end of its loop."""

    cell: Cell
    wrong: str  # empty: nothing
    main_s: float = 0.0  # to the end of the main process
    all_s: float = 0.0  # to that of the last one


def processes_of(mark: str) -> list[int]:
    """Those with this mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # It has ended, or is not ours.
            continue
    return found


def await_processes(mark: str, until: float) -> list[int]:
    """Those that have not ended by then."""
    while pids := processes_of(mark):
        left_s = until - time.monotonic()
        if left_s <= 0:
            return pids
        try:
            process = os.pidfd_open(pids[0])
        except ProcessLookupError:
            continue
        select.select([process], [], [], left_s)
        os.close(process)
    return []


def left_behind(pid: int, folder: Path, there_before: set[str]) -> str:
    """What is left of the processes of a cell that have ended. Shared memory that was there before
    is of other processes, which may have had the same numbers."""
    sockets = [
        line.split()[-1]
        for line in Path("/proc/net/unix").read_text().splitlines()
        if "@headrace-" in line and f"-{pid}-" in line
    ]
    whole_number = re.compile(rf"(?<!\d){pid}(?!\d)")  # Names of others have long random numbers.
    made = set(os.listdir("/dev/shm")) - there_before
    shared = sorted(name for name in made if whole_number.search(name))
    files = [str(path) for path in folder.rglob("*")]
    return ", ".join(sockets + shared + files)


def start(
    served: fuse_server.Mount, program: str, argument: str, folder: Path, **given: Any
) -> subprocess.Popen[bytes]:
    """A program that may command the mount; what it says goes to files: workers have them, too."""
    environment = dict(os.environ) | {
        MARK: str(folder),
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": str(Path(__file__).parent),
    }
    (folder / "tmp").mkdir(parents=True)
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return subprocess.Popen(
            [
                sys.executable,
                "-W",
                "error",
                "-W",
                ALIKE,
                program,
                str(served.control.fileno()),
                argument,
            ],
            pass_fds=[served.control.fileno()],
            stdout=out,
            stderr=err,
            env=environment,
            **given,
        )


def run_cell(cell: Cell, sources: dict[str, Path], folder: Path) -> Ended:
    """Runs it, and looks at everything it leaves."""
    mount = folder / "mount"
    source, plan = cell.plan(sources, mount)
    there_before = set(os.listdir("/dev/shm"))
    with mounted(source, mount) as served:
        program = start(served, ends_program.__file__, json.dumps(plan), folder)
        try:
            code = program.wait(PATIENCE_S)
            main_ended = time.monotonic()
            left = await_processes(str(folder), main_ended + PATIENCE_S)
            all_ended = time.monotonic()
        except subprocess.TimeoutExpired:
            return Ended(cell, f"did not end in {PATIENCE_S} s: {plan}")
        finally:
            for pid in processes_of(str(folder)):
                os.kill(pid, signal.SIGKILL)
            program.wait()
        if left:
            return Ended(cell, f"processes {left} were left: {plan}")
        said = (folder / "out").read_text()
        if not said and select.select([served.control], [], [], 0)[0]:
            said = served.control.recv(64).decode()
    behind = left_behind(program.pid, folder / "tmp", there_before)
    if served.was_held:
        behind += " open files"
    err = (folder / "err").read_text()
    lines = err.splitlines()
    expected = LAST_LINES.get(cell.how)
    silent = lines == [] if expected is None else lines[-1:] == [expected]
    noisy = [line for line in lines if any(word in line for word in NOISE)]
    wrong = ""
    if code != EXIT_CODES[cell.how] or not silent or noisy or behind:
        wrong = f"exit code {code}, left behind: {behind or 'nothing'}, stderr: {err!r}: {plan}"
    if not said.strip().isdigit():  # It ended before its time.
        return Ended(cell, wrong or f"ended by itself: {plan}")
    ended_at = int(said) / 1e9
    main_s, all_s = main_ended - ended_at, all_ended - ended_at
    if not wrong and all_s > IN_TIME_S:
        wrong = f"took {all_s:.1f} s to end: {plan}"
    return Ended(cell, wrong, main_s, all_s)


@pytest.fixture(scope="module")
def sources(
    numbered: Path, source_pack: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Datasets to be served. Of the last two files, or parts of them, are decoded as a whole."""
    folder = tmp_path_factory.mktemp("sources")
    write_zstd_shards(hr.open(source_pack), folder / "shards")
    write_row_groups(hr.open(source_pack), folder / "row-groups")
    return {
        "folder": numbered,
        "pack": source_pack,
        "shards": folder / "shards",
        "row-groups": folder / "row-groups",
    }


def distribution(seconds: list[float]) -> str:
    """In one line."""
    ordered = sorted(seconds)
    at = {share: ordered[int(share / 100 * (len(ordered) - 1))] for share in (50, 90, 99, 100)}
    return ", ".join(f"p{share} {value:.2f}" for share, value in at.items())


@needs_mounts
@pytest.mark.parametrize("how", HOWS)
def test_a_run_ends_in_time_as_pythons_own_and_leaves_nothing(
    how: str, sources: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        Cell(how, storage, isolation, workers, FIRST_SEED + seed)
        for seed in range(SEEDS)
        for storage, isolation, workers in itertools.product(
            STORAGES, ("thread", "process"), (0, 2)
        )
    ]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        ended = list(
            pool.map(
                lambda numbered_cell: run_cell(
                    numbered_cell[1], sources, tmp_path / f"{how}-{numbered_cell[0]}"
                ),
                enumerate(cells),
            )
        )
    wrong = [f"{each.cell}: {each.wrong}" for each in ended if each.wrong]
    late = sorted((each for each in ended if each.all_s > EXPECTED_S), key=lambda each: each.all_s)
    with capsys.disabled():
        for storage in STORAGES:
            of = [each for each in ended if each.cell.storage == storage and not each.wrong]
            main, last = [each.main_s for each in of], [each.all_s for each in of]
            if of:
                print(
                    f"\n{how} while storage {storage}: {len(of)} runs from seed {FIRST_SEED}; "
                    f"seconds to the end: {distribution(main)}; of the last process: "
                    f"{distribution(last)}",
                    end="",
                )
        for each in late:
            print(f"\n{each.all_s:.2f} s: {each.cell}", end="")
        print()
    assert not wrong, "\n".join(wrong)


# Ctrl-C in a loop that the program goes on after, as in a notebook.

GOES_ON = """
import json, os, sys
import headrace as hr
import ends_program

control, arguments = int(sys.argv[1]), json.loads(sys.argv[2])
loader = ends_program.made(arguments | {"prefetch": 1, "batch_size": 4})

def freeze():
    os.write(control, b"freeze\\n")
    assert os.read(control, 64) == b"ok\\n"

def interrupt():
    os.write(control, f"signal 2 {os.getpid()} 100\\n".encode())

def iterate():
    given = 0
    try:
        for batch in loader:
            given += 1
            if given == 3:
                freeze()
                interrupt()
    except KeyboardInterrupt:
        os.read(control, 64)  # When the signal was sent.
        return given

given = iterate()
assert given >= 3
taken = loader.stats()["batches"]
assert taken == given, (taken, given)
interrupt()
assert iterate() == 0  # The reads of the run before have the memory.
stats = loader.stats()
assert stats["batches"] == taken
loader.close()
assert loader.stats()["batches"] == taken
print("closed")
"""


@needs_mounts
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_after_ctrl_c_on_storage_that_hangs_stats_stop_and_close_return(
    isolation: str, workers: int, numbered: Path, tmp_path: Path
) -> None:
    folder = tmp_path / f"{isolation}-{workers}"
    script = tmp_path / "goes_on.py"
    script.write_text(GOES_ON)
    arguments: dict[str, Any] = {"dataset": str(folder / "mount"), "isolation": isolation}
    if workers:
        arguments |= {"workers": workers, "start": "fork"}
    with mounted(numbered, folder / "mount") as served:
        program = start(served, str(script), json.dumps(arguments), folder)
        try:
            program.wait(PATIENCE_S)
        finally:
            program.kill()
            program.wait()
        assert await_processes(str(folder), time.monotonic() + PATIENCE_S) == []
    said = (folder / "out").read_text(), (folder / "err").read_text(), program.returncode
    assert said == ("closed\n", "", 0)


# Threads that Python leaves behind.

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
