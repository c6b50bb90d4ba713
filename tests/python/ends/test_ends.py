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
from fuse_server import mounted
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
