"""Worker processes: they start as torch's, end with the loop, and their loss is an error."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from map_data import WAYS, Numbers, OnlyIds, plain
from torch.utils.data import get_worker_info

from headrace.errors import FailedPreconditionError, WorkerLostError
from headrace.torch import DataLoader
from headrace.torch._dataloader.iterations import thread_reader
from headrace.torch._dataloader.workers import processes

HERE = Path(__file__).parent


before: set[Any] = set()
"""Child processes that were there when the test began."""


@pytest.fixture(autouse=True)
def look_at_what_is_there() -> None:
    global before
    before = set(multiprocessing.active_children())


def started() -> set[Any]:
    """Child processes that are there since the test began."""
    return set(multiprocessing.active_children()) - before


def reading_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("headrace-dataloader")]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("way", ["threads", "processes", "pool"])
@pytest.mark.parametrize("steps", [0, 2, 100])
def test_nothing_is_left_after_an_epoch_or_a_part_of_one(way: str, steps: int) -> None:
    others = set(reading_threads())  # Of tests of samples that hang.
    loader = DataLoader(OnlyIds(40), 4, **WAYS[way])
    list(loader)  # What libraries open once.
    opened = descriptors()
    for _ in range(2):
        for step, _batch in enumerate(loader, 1):
            if step == steps:
                break
        assert started() == set()
        assert set(reading_threads()) <= others
    assert descriptors() == opened


def test_persistent_workers_live_until_the_loader_is_closed() -> None:
    loader = DataLoader(WhoReads(40), 4, **WAYS["persistent"])
    first = {pid for batch in loader for pid in batch.tolist()}
    next(iter(loader))
    second = {pid for batch in loader for pid in batch.tolist()}
    children = {each.pid for each in started()}
    assert first | second <= children
    assert len(children) == 2
    loader.close()
    assert started() == set()
    list(loader)  # It starts others.
    del loader
    assert started() == set()


class WhoReads(OnlyIds):
    def __getitem__(self, number: int) -> int:
        return os.getpid()


def test_processes_see_what_changed_in_the_dataset_between_epochs() -> None:
    data = OnlyIds(8)
    data.offset = 0  # type: ignore[attr-defined]
    data.__class__ = Offset
    loader = DataLoader(data, 4, num_workers=2)
    found = []
    for offset in (0, 100):
        data.offset = offset  # type: ignore[attr-defined]
        found += [batch.tolist() for batch in loader]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [100, 101, 102, 103], [104, 105, 106, 107]]


class Offset(OnlyIds):
    offset: int

    def __getitem__(self, number: int) -> int:
        return number + self.offset


class Told(OnlyIds):
    """What a worker knows of itself."""

    def __getitem__(self, number: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert isinstance(info.dataset, Told)
        return info.id, info.num_workers, info.seed - info.id, info.dataset.told, os.getpid()

    told = -1


def tell(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.told = worker  # type: ignore[attr-defined]


def test_worker_init_fn_and_worker_info_are_those_of_torch() -> None:
    loader = DataLoader(
        Told(16), 4, num_workers=2, worker_init_fn=tell, generator=torch.Generator()
    )
    rows = [row for batch in loader for row in zip(*(column.tolist() for column in batch))]  # noqa: B905
    assert {row[0] for row in rows} <= {0, 1}
    assert all(row[0] == row[3] and row[1] == 2 and row[4] != os.getpid() for row in rows)
    base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator()))
    assert {row[2] for row in rows} == {base_seed}


def fail(worker: int) -> None:
    raise LookupError(f"no file for worker {worker}")


def test_an_error_of_worker_init_fn_is_raised() -> None:
    loader = DataLoader(OnlyIds(16), 4, num_workers=2, worker_init_fn=fail)
    with pytest.raises(LookupError, match=r"(?s)calling worker_init_fn.*no file for worker"):
        list(loader)


class Dies(OnlyIds):
    def __getitem__(self, number: int) -> int:
        if number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 17:
            os._exit(7)
        return number


@pytest.mark.parametrize("way", ["processes", "persistent", "pool"])
def test_a_worker_that_dies_is_an_error_at_once_and_the_next_epoch_works(way: str) -> None:
    data = Dies(20)
    loader = DataLoader(data, 4, sampler=range(16), **WAYS[way])
    iterator = iter(loader)
    with pytest.raises(WorkerLostError, match="was killed by SIGKILL") as caught:
        list(iterator)
    assert caught.value.exitcode == -signal.SIGKILL
    with pytest.raises(StopIteration):
        next(iterator)
    later = DataLoader(data, 4, sampler=[17], **WAYS[way])
    with pytest.raises(
        WorkerLostError, match=r"^reading batch 0: DataLoader .* ended with exit code 7$"
    ):
        list(later)
    data.__class__ = OnlyIds
    assert [batch.tolist() for batch in loader][2] == [8, 9, 10, 11]
    loader.close()
    later.close()
    assert started() == set()


class Stuck(OnlyIds):
    def __getitem__(self, number: int) -> int:
        if number == 6:
            threading.Event().wait()
        return number


def test_a_sample_that_hangs_does_not_hold_the_end_of_processes() -> None:
    loader = DataLoader(Stuck(20), 4, num_workers=2)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    assert started() == set()


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_timeout_is_that_of_torch(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_reader, "_JOIN_SECONDS", 0.1)  # Two threads hang for good.
    loader = DataLoader(Stuck(8), 4, sampler=[4, 5, 6, 7, 0], timeout=0.3, **WAYS[way])
    iterator = iter(loader)
    late = r"DataLoader timed out after 0\.3 seconds: reading batch 0, samples \[4, 5, 6, 7\]"
    with pytest.raises(RuntimeError, match=late):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("way", ["threads", "processes", "persistent", "pool"])
def test_a_forked_child_leaves_the_iteration_to_its_parent(way: str) -> None:
    """It ends, also while a lock is held, and the parent's iteration goes on."""
    loader = DataLoader(OnlyIds(12), 4, **WAYS[way])
    iterator = iter(loader)
    first = next(iterator).tolist()
    with getattr(iterator._reader, "_has_tasks", contextlib.nullcontext()):
        child = os.fork()
        if child == 0:
            iterator.close()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert [first, *(batch.tolist() for batch in iterator)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


@pytest.mark.parametrize("way", ["threads", "processes", "persistent", "pool"])
def test_two_iterations_at_once_get_their_own_batches(way: str) -> None:
    """Also if one replaces another that was left, as in ``it = iter(loader)``."""
    loader = DataLoader(OnlyIds(24), 4, **WAYS[way])
    expected = [list(range(first, first + 4)) for first in range(0, 24, 4)]
    iterator = iter(loader)
    found = [next(iterator).tolist()]
    assert [batch.tolist() for batch in loader] == expected
    assert found + [batch.tolist() for batch in iterator] == expected
    assert [batch.tolist() for batch in loader] == expected
    loader.close()
    assert started() == set()


def test_persistent_workers_that_hang_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_IDLE_NS", 10**8)
    keys = list(range(8))
    loader = DataLoader(Stuck(8), 4, sampler=keys, **WAYS["persistent"])
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    keys[4:] = []
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3]]
    loader.close()
    assert started() == set()


class NoPickle:
    def __init__(self, samples: object) -> None:
        pass

    def __reduce__(self) -> Any:
        raise TypeError("this batch cannot be pickled")


@pytest.mark.parametrize("way", ["processes", "pool"])
def test_a_batch_that_cannot_be_pickled_is_an_error(way: str) -> None:
    loader = DataLoader(OnlyIds(8), 4, collate_fn=NoPickle, **WAYS[way])
    with pytest.raises(TypeError, match=r"(?s)sending batch 0 to the.*cannot be pickled"):
        next(iter(loader))


class RaisesOwn(OnlyIds):
    def __getitem__(self, number: int) -> int:
        class LocalError(Exception):
            pass

        raise LocalError(f"no sample {number}")


@pytest.mark.parametrize("way", ["processes", "pool"])
def test_an_error_of_a_local_class_comes_as_its_text(way: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)reading sample (\d) .*LocalError: no sample \1"):
        next(iter(DataLoader(RaisesOwn(4), 4, **WAYS[way])))


def test_a_forked_child_reads_with_workers_of_its_own() -> None:
    loader = DataLoader(OnlyIds(8), 4, **WAYS["persistent"])
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        found = []
        try:
            next(iterator)
        except FailedPreconditionError:
            found = [batch.tolist() for batch in loader]
        loader.close()
        os._exit(0 if found == [[0, 1, 2, 3], [4, 5, 6, 7]] else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert [batch.tolist() for batch in iterator] == [[4, 5, 6, 7]]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods_give_the_same(method: str) -> None:
    expected = [plain(batch) for batch in DataLoader(Numbers(10), 4)]
    loader = DataLoader(Numbers(10), 4, num_workers=1, multiprocessing_context=method)
    assert [plain(batch) for batch in loader] == expected


def test_large_messages_pass() -> None:
    """Long lists of keys, large pickles and many arrays."""
    loader = DataLoader(Large(6000), 3000, num_workers=2, collate_fn=list)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [3000, 3000]
    rows = [row for batch in batches for row in batch]
    assert [row[0] for row in rows] == ["x" * (n % 50) for n in range(6000)]
    assert all(row[1].tolist() == [n] * 3 for n, row in enumerate(rows))
    assert all(row[2].shape == (0, 2) for row in rows)


class Large(OnlyIds):
    def __getitem__(self, number: int) -> Any:
        return "x" * (number % 50), torch.full((3,), number), torch.empty(0, 2)


PROGRAM = """
import multiprocessing, sys, threading
sys.path.insert(0, {here!r})
from map_data import OnlyIds
from headrace.torch import DataLoader

class Waits(OnlyIds):
    def __getitem__(self, number):
        if number == 4:
            threading.Event().wait(60)
        return number

if __name__ == "__main__":
    loader = DataLoader(Waits(40), 4, **{arguments!r})
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    next(iterator)
"""


def begin(arguments: dict[str, Any], tmp_path: Path) -> tuple[subprocess.Popen[str], set[int]]:
    """A program that waits for its second batch, and its processes: one reads, one has no job."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM).format(here=str(HERE), arguments=arguments))
    program = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, program.communicate()[1]
    workers = set(map(int, line.split()))
    assert len(workers) == (0 if "worker_method" in arguments else 2)
    return program, workers


def wait_until_gone(processes: set[int]) -> None:
    for process in processes:
        try:
            watched = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            assert poll.poll(30_000), f"process {process} still runs"
        finally:
            os.close(watched)


@pytest.mark.parametrize("way", ["threads", "processes", "pool"])
def test_ctrl_c_ends_the_program_and_its_workers(way: str, tmp_path: Path) -> None:
    program, workers = begin(WAYS[way], tmp_path)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode in (-signal.SIGINT, 1, 130), errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1, errors
    wait_until_gone(workers)


@pytest.mark.parametrize("way", ["processes", "pool"])
def test_workers_end_when_the_program_is_killed(way: str, tmp_path: Path) -> None:
    program, workers = begin(WAYS[way], tmp_path)
    program.kill()
    wait_until_gone(workers)
    program.communicate(timeout=60)
