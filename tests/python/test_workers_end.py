"""Worker processes end, whatever ends their host; and nothing is left of them."""

from __future__ import annotations

import functools
import itertools
import multiprocessing.connection
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import worker_functions as functions
from rank_scripts import run_script
from worker_functions import write_records

import headrace as hr
from headrace import errors
from headrace._workers import PooledCore, _pool
from headrace._workers._pool import WorkerProcesses

BATCH = 10


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(tmp_path_factory.mktemp("records"))


LEAKS = """
import gc, os, sys, time
from pathlib import Path
import headrace as hr
import worker_functions as functions

def descriptors():
    gc.collect()
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                  if os.path.exists(f"/proc/self/fd/{fd}") or os.path.islink(f"/proc/self/fd/{fd}"))

def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

def run(how):
    loader = hr.Loader(sys.argv[1], 10, transform=functions.record, output="numpy",
                       workers=hr.Workers(2, start=sys.argv[2]))
    for number, batch in enumerate(loader):
        if how == "break" and number == 3:
            break
    if how != "drop":
        loader.close()

if __name__ == "__main__":
    run("close")  # What multiprocessing starts once stays.
    before = [children(), len(descriptors()), len(os.listdir("/proc/self/task"))]
    for how in ("close", "break", "drop"):
        run(how)
        assert [children(), len(descriptors()), len(os.listdir("/proc/self/task"))] == before, how
    print("clean", [name for name in os.listdir("/dev/shm") if "headrace" in name])
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_nothing_is_left_of_a_closed_loader(path: Path, tmp_path: Path, start: str) -> None:
    script = tmp_path / "leaks.py"
    script.write_text(LEAKS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(path), start],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
    )
    assert (done.stdout, done.stderr) == ("clean []\n", "")
    assert sorted(each.name for each in tmp_path.iterdir() if each.name != "cache") == ["leaks.py"]


HANGING = """
import sys
import headrace as hr
import worker_functions as functions

if __name__ == "__main__":
    loader = hr.Loader(sys.argv[1], 10, transform=functions.hang_after_start, output="numpy",
                       workers=hr.Workers(2, start=sys.argv[2]))
    list(loader)
"""


@contextmanager
def hanging(
    path: Path, tmp_path: Path, start: str
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A host whose workers hang, and descriptors of these: a number may soon be another process."""
    script = tmp_path / "hanging.py"
    script.write_text(HANGING)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(script), str(path), start],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    workers: list[int] = []
    with process:
        try:
            assert process.stdout is not None
            for line in itertools.islice(process.stdout, 2):
                workers.append(os.pidfd_open(int(line)))
            if len(workers) < 2:
                raise AssertionError(f"workers did not start: {process.communicate()}")
            yield process, workers
        finally:
            process.kill()
            for worker in workers:
                os.close(worker)


def wait_for_end(workers: list[int]) -> None:
    """Waits for processes that are not ours to wait for."""
    for worker in workers:
        assert select.select([worker], [], [], 30)[0], "a worker goes on"


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_busy_workers_end_when_their_host_is_killed(path: Path, tmp_path: Path, start: str) -> None:
    with hanging(path, tmp_path, start) as (process, workers):
        process.kill()
        process.wait()
        wait_for_end(workers)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_ctrl_c_ends_all(path: Path, tmp_path: Path, start: str) -> None:
    with hanging(path, tmp_path, start) as (process, workers):
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does: workers get it too.
        _, stderr = process.communicate(timeout=280)
        assert stderr.splitlines()[-1] == "KeyboardInterrupt"
        assert stderr.count("Traceback") == 1
        wait_for_end(workers)


STARTING = """
import os, sys
import headrace as hr
import worker_functions as functions

if __name__ == "__main__":
    loader = hr.Loader(sys.argv[1], 10, transform=functions.record, output="numpy", workers=1)
    list(loader)
else:
    with open(sys.argv[2], "w") as told:  # In a worker, which imports its host's script.
        print("importing", file=told)
    open(sys.argv[3])  # Waits for a writer, which never comes.
"""


def test_ctrl_c_while_a_worker_starts_has_one_traceback(path: Path, tmp_path: Path) -> None:
    script, told, never = (tmp_path / name for name in ("starting.py", "told", "never"))
    script.write_text(STARTING)
    os.mkfifo(told)
    os.mkfifo(never)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(script), str(path), str(told), str(never)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert told.read_text() == "importing\n"
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=280)
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert stderr.count("Traceback") == 1


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_a_worker_s_end_is_known_though_a_child_that_it_forked_lives_on(
    path: Path, tmp_path: Path, start: str
) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    transform = functools.partial(functions.fork_and_die, pipe=pipe)
    with hr.Loader(path, BATCH, transform=transform, workers=hr.Workers(1, start=start)) as loader:
        with pytest.raises(errors.WorkerLostError, match="was killed by SIGKILL"):
            next(iter(loader))
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # An error, if the child has ended.


def test_close_kills_workers_that_are_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    transform = functools.partial(functions.hang_after_telling, pipe=writer)
    loader = hr.Loader(path, BATCH, transform=transform, workers=hr.Workers(2, start="fork"))
    iteration = iter(loader)
    for _ in range(2):
        assert select.select([reader], [], [], 60)[0], "a worker does not begin"
        os.read(reader, 1)
    assert loader._transformer is not None
    assert loader._transformer._workers is not None
    ended = []
    for process in loader._transformer._workers.processes:
        at_end = functools.partial(lambda process: ended.append(process.exitcode), process)
        monkeypatch.setattr(process, "close", at_end)
    assert loader._transformer._workers.processes
    monkeypatch.setattr(_pool, "END_SECONDS", 0.0)
    loader.close()
    assert ended == [-signal.SIGKILL] * 2
    del iteration  # Its end is the end of the run: not before the loader's.
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("call", ["attach", "detach", "running", "stop"])
def test_workers_that_another_thread_dismisses_meanwhile_are_no_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with hr.Loader(path, BATCH, transform=functions.record, workers=1) as loader:
        assert loader._transformer is not None
        workers = loader._transformer._workers
        assert workers is not None
        core = workers._core
        host = mock.Mock(broken=False)
        with monkeypatch.context() as patch:
            # Whoever reads it again finds it gone.
            reads = itertools.chain([host], itertools.repeat(None))
            patch.setattr(WorkerProcesses, "_host", property(lambda _: next(reads)), raising=False)
            getattr(workers, call)(*([core] if call in ("attach", "detach") else []))
        assert len(host.method_calls) == (call != "running")


@pytest.mark.parametrize("call", ["attach", "running"])
def test_workers_that_were_dismissed_say_that_the_loader_is_closed(path: Path, call: str) -> None:
    with hr.Loader(path, BATCH, transform=functions.record, workers=1) as loader:
        assert loader._transformer is not None
        workers = loader._transformer._workers
        assert workers is not None
        core = workers._core
        workers.dismiss()
        with pytest.raises(errors.FailedPreconditionError, match="the loader is closed"):
            getattr(workers, call)(*([core] if call == "attach" else []))
        assert len(workers.processes) == 1  # No others were started.


def test_workers_end_while_the_core_loader_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = hr.Loader(path, BATCH, transform=functions.record, workers=hr.Workers(1, start="fork"))
    assert loader._transformer is not None
    assert loader._transformer._workers is not None
    (worker,) = loader._transformer._workers.processes
    next(iter(loader))  # It has started.
    ended = []
    close = PooledCore.close

    def close_later(core: PooledCore) -> None:
        ended.append(bool(multiprocessing.connection.wait([worker.sentinel], 60)))
        close(core)

    monkeypatch.setattr(PooledCore, "close", close_later)
    loader.close()
    assert ended == [True]
    with pytest.raises(errors.FailedPreconditionError, match="the loader is closed"):
        loader._transformer._workers.running()  # Not workers anew.


LOADER = """
for batch in hr.Loader(sys.argv[1], transform=functions.record, output="numpy",
                       workers=hr.Workers(2, start=START)):
    pass
"""
DATALOADER = """
from headrace.torch import DataLoader
dataset = [1, 2, 3]
for batch in DataLoader(dataset, num_workers=1, multiprocessing_context=START, collate_fn=list):
    pass
"""


def run_unguarded(path: Path, tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "unguarded.py"
    imports = "import sys\nimport headrace as hr\nimport worker_functions as functions\n"
    script.write_text(imports + code)
    return subprocess.run(
        [sys.executable, str(script), str(path)],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.parametrize(
    ("code", "what", "start"),
    [
        (LOADER, "worker", "spawn"),
        (LOADER, "worker", "forkserver"),
        (DATALOADER, "DataLoader worker", "spawn"),
    ],
)
def test_a_script_without_a_guard_ends_in_two_lines_that_say_what_to_add(
    path: Path, tmp_path: Path, code: str, what: str, start: str
) -> None:
    code = code.replace("START", repr(start))
    done = run_unguarded(path, tmp_path, code)
    assert done.returncode == 1
    first, guard = done.stderr.splitlines()[-2:]
    assert re.fullmatch(
        rf"headrace.errors.FailedPreconditionError: starting {what} [01]: it imports "
        "unguarded.py, and came to the line that starts processes; put the code of unguarded.py "
        "that makes and uses loaders under this line:",
        first,
    )
    assert done.stderr.count("Traceback") == 1  # Its own, none of a worker.
    # Typed as it stands, it helps.
    guarded = guard.strip() + code.replace("\n", "\n    ") + "\n"
    done = run_unguarded(path, tmp_path, guarded)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_of_the_user_s_that_imports_an_unguarded_script_says_so_too(
    path: Path, tmp_path: Path
) -> None:
    code = """
import multiprocessing
context = multiprocessing.get_context("spawn")
if multiprocessing.current_process().name == "MainProcess":
    process = context.Process(target=print)
    process.start()
    process.join()
else:
    hr.Loader(sys.argv[1], transform=functions.record, output="numpy", workers=2)
"""
    error = run_unguarded(path, tmp_path, code).stderr
    assert '\n    if __name__ == "__main__":' in error, error


IGNORED = """
import functools, os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
import headrace as hr
import worker_functions as functions

class Dies:
    def __len__(self):
        return 40

    def __getitem__(self, number):
        if number == 20:
            os._exit(7)
        return number

if __name__ == "__main__":
    from headrace.torch import DataLoader  # Here: spawned workers need no torch.

    path = sys.argv[1]
    for start in sys.argv[2:]:
        way = hr.Workers(2, start=start)
        with hr.Loader(path, 10, transform=functions.record, workers=way) as loader:
            print(start, sum(map(len, loader)))
        loader = hr.Loader(path, 10, transform=functions.exit_at_50, workers=way, shuffle=False)
        try:
            list(loader)
        except hr.errors.WorkerLostError as error:
            print(str(error).partition(") ")[2].partition(", with")[0], error.exitcode)
        loader.close()
    reader, writer = os.pipe()
    hang = functools.partial(functions.hang_after_telling, pipe=writer)
    with hr.Loader(path, 10, transform=hang, workers=hr.Workers(1, start="fork")) as loader:
        hanging = iter(loader)
        os.read(reader, 1)
    for persistent in (False, True):
        loader = DataLoader(range(40), 4, num_workers=2, persistent_workers=persistent,
                            multiprocessing_context="fork", collate_fn=list)
        print(sum(map(len, loader)), sum(map(len, loader)))
        loader.close()
    try:
        list(DataLoader(Dies(), 4, num_workers=1, multiprocessing_context="fork"))
    except hr.errors.WorkerLostError as error:
        print(str(error).partition(") ")[2], error.exitcode)
    with hr.Loader(path, 10, job=hr.Job(node=hr.Node())) as loader:
        print(sum(len(batch[0]) for batch in loader))
"""


def test_processes_end_as_ever_where_the_system_keeps_no_exit_codes(
    path: Path, tmp_path: Path
) -> None:
    script = tmp_path / "ignored.py"
    script.write_text(IGNORED)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = run_script(script, path, "fork", "spawn", "forkserver", env=env)
    unknown = "ended, and the system kept no exit code None"
    assert done.err == ""
    assert done.out.splitlines() == [
        "fork 103",
        unknown,
        "spawn 103",
        unknown,
        "forkserver 103",
        "ended with exit code 7 7",  # The fork server does not ignore it.
        "40 40",
        "40 40",
        unknown,
        "103",
    ]
