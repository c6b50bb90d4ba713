"""However a loop ends, nothing is left: no thread, file, shared memory, hang or message."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from loader_data import (
    COUNT,
    FLAT,
    epoch_ids,
    flat,
    interrupt,
    python_command,
    run_python,
    shared_names,
)
from PIL import Image

import headrace as hr
from headrace import errors


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def open_files() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{fd}: {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:  # the one that lists
            continue
    return found


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture
def dataset(numbered: Path) -> hr.Dataset:
    dataset = hr.open(numbered)
    with hr.Loader(dataset, batch_size=8, transform=FLAT) as loader:
        flat(epoch_ids(loader))  # what is made once a process is made
    return dataset


@pytest.fixture
def leaves_nothing(dataset: hr.Dataset) -> Iterator[None]:
    gc.collect()
    before = tasks(), open_files(), shared_names()
    yield
    gc.collect()
    assert (tasks(), open_files(), shared_names()) == before


@pytest.mark.usefixtures("leaves_nothing")
def test_a_with_block_leaves_nothing(dataset: hr.Dataset) -> None:
    for _ in range(3):
        with hr.Loader(dataset, batch_size=8, transform=FLAT, threads=3) as loader:
            assert len(tasks()) >= 4
            assert len(flat(epoch_ids(loader))) == COUNT
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            iter(loader)
        loader.close()  # again


@pytest.mark.parametrize("io", ["threads", "auto"])
@pytest.mark.usefixtures("leaves_nothing")
def test_a_break_in_a_with_block_leaves_nothing(source_pack: Path, io: str) -> None:
    with hr.Loader(source_pack, batch_size=4, engine=hr.EngineOptions(io=io)) as loader:
        for _ in loader:
            break


@pytest.mark.usefixtures("leaves_nothing")
def test_an_exception_in_the_loop_leaves_nothing_and_is_the_one_that_is_seen(
    dataset: hr.Dataset,
) -> None:
    def train() -> None:
        with hr.Loader(dataset, batch_size=8, transform=FLAT) as loader:
            for _ in loader:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()


@pytest.mark.usefixtures("leaves_nothing")
def test_a_loader_that_is_dropped_leaves_nothing(dataset: hr.Dataset) -> None:
    for _ in range(3):
        iteration = iter(hr.Loader(dataset, batch_size=8, transform=FLAT))
        next(iteration)
        del iteration


@pytest.mark.usefixtures("leaves_nothing")
def test_a_loader_that_can_not_be_made_leaves_nothing(dataset: hr.Dataset) -> None:
    for options in (
        {"memory": 1},
        {"output": hr.Output(fields=["x"])},
        {"batch_size": 0},
        {"drop_last": 3},
    ):
        with pytest.raises(errors.InvalidArgumentError):
            hr.Loader(dataset, **{"batch_size": 1} | options)


def test_loaders_do_not_pile_up_memory(dataset: hr.Dataset) -> None:
    def once() -> int:
        with hr.Loader(dataset, batch_size=8, transform=FLAT, threads=2) as loader:
            epoch_ids(loader)
        gc.collect()
        return mappings()

    for _ in range(3):
        before = once()
    for _ in range(5):
        after = once()
    assert after <= before + 2  # the allocator may map an arena of its own


def test_closing_from_another_thread_ends_the_wait_of_the_one_that_iterates(
    dataset: hr.Dataset,
) -> None:
    loader = hr.Loader(dataset, batch_size=8, transform=FLAT)
    given = 0

    def iterate() -> None:
        nonlocal given
        while True:
            for _ in loader:
                given += 1
                began.set()

    began = threading.Event()
    seen: list[BaseException] = []

    def work() -> None:
        try:
            iterate()
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(60)
    loader.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(seen[0], (errors.FailedPreconditionError, errors.CancelledError))


def test_a_loader_can_not_be_pickled_and_the_error_says_what_to_do(dataset: hr.Dataset) -> None:
    with (
        hr.Loader(dataset, transform=FLAT) as loader,
        pytest.raises(TypeError, match=r"Loader cannot be pickled.*state_dict"),
    ):
        pickle.dumps(loader)


# Fork.


def test_a_forked_child_gets_an_error_and_the_parent_goes_on(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=8, transform=FLAT) as loader:
        iteration = iter(loader)
        held = next(iteration)
        before = held.image.clone()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for use in (lambda: next(iteration), lambda: iter(loader), loader.stats):
                    try:
                        use()
                    except errors.FailedPreconditionError as error:
                        os.write(writer, str(error).encode() + b"\n")
                assert (held.image == before).all()
                del iteration, held
                loader.close()
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told = pipe.read().splitlines()
        assert os.waitpid(child, 0)[1] == 0
        assert len(told) == 3
        assert all("make the loader in the child" in each for each in told)
        assert len(flat(epoch_ids(iteration))) == COUNT - 8
        assert (held.image == before).all()


FORK_AND_EXIT = """
import os, sys, threading, warnings
import headrace as hr

warnings.simplefilter("ignore")  # Python warns of forks of a process with threads.
loader = hr.Loader(sys.argv[1], batch_size=4, output="numpy", transform=hr.image.train(8),
                   engine=hr.EngineOptions(monitor=sys.argv[2] == "monitored"))
iteration = iter(loader)
held = next(iteration)
taken, over = threading.Event(), threading.Event()

def hold():
    other = hr.Loader(sys.argv[1], batch_size=4, output="numpy")
    mine = iter(other)
    batch = next(mine)
    taken.set()
    over.wait()

if sys.argv[2] == "threaded":
    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
child = os.fork()
if child == 0:
    sys.exit(0)  # an interpreter's whole end, with everything still there
assert os.waitpid(child, 0)[1] == 0
over.set()
print(sum(len(batch.label) for batch in iteration))
"""


@pytest.mark.parametrize("how", ["alone", "monitored", "threaded"])
def test_a_forked_child_ends_its_interpreter_in_peace(numbered: Path, how: str) -> None:
    assert run_python(FORK_AND_EXIT, numbered, how) == f"{COUNT - 4}\n"


FORK_AT_EXIT = """
import os, sys, threading, warnings
import headrace as hr
from headrace import _core

warnings.simplefilter("ignore")  # Python warns of forks of a process with threads.
began = threading.Event()
ends = []

def fork():
    began.wait()
    child = os.fork()
    if child == 0:
        with hr.Loader(sys.argv[1], batch_size=4, output="numpy") as loader:
            os._exit(len(list(loader)))
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

thread = threading.Thread(target=fork)
thread.start()
_core.begin_exit()  # What the hook does first when the interpreter ends.
began.set()
thread.join()
print(ends)
"""


def test_a_child_that_a_thread_forks_while_the_interpreter_ends_uses_loaders(
    numbered: Path,
) -> None:
    assert run_python(FORK_AT_EXIT, numbered) == f"[{-(-COUNT // 4)}]\n"


class ByHeadrace(torch.utils.data.IterableDataset[int]):
    """A loader made in each worker, beside one that the parent uses."""

    def __init__(self, path: Path, workers: int) -> None:
        self.path = path
        self.workers = workers

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        with hr.Loader(
            self.path,
            batch_size=8,
            transform=FLAT,
            job=hr.Job(rank=info.id, world_size=self.workers),
        ) as loader:
            yield from flat(epoch_ids(loader))


# On one core torch warns that two workers are many.
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_forked_workers_of_torch_make_loaders_of_their_own(
    dataset: hr.Dataset, numbered: Path
) -> None:
    with hr.Loader(dataset, batch_size=8, transform=FLAT) as loader:
        iteration = iter(loader)
        next(iteration)
        workers = torch.utils.data.DataLoader(
            ByHeadrace(numbered, 2), batch_size=None, num_workers=2, multiprocessing_context="fork"
        )
        assert sorted(set(workers)) == list(range(COUNT))
        assert len(flat(epoch_ids(iteration))) == COUNT - 8


# The end of the interpreter.

END = """
import sys
import headrace as hr

WHERE = {
    "iterating": lambda: None,
    "cycle": lambda: box.append(box),
    "exit": lambda: sys.exit(0),
    "error": lambda: sys.exit(3),
}
loader = hr.Loader(sys.argv[1], batch_size=4, output=sys.argv[3], transform=hr.image.train(8))
iteration = iter(loader)
batches = [next(iteration), next(iteration)]
rows = hr.Loader(sys.argv[1], batch_size=4, output=sys.argv[3])
row = next(iter(rows)).image[1]
box = [loader, batches, rows]
WHERE[sys.argv[2]]()
"""


@pytest.mark.parametrize("output", ["torch", "numpy", "dlpack"])
@pytest.mark.parametrize("where", ["iterating", "cycle", "exit", "error"])
def test_an_interpreter_ends_in_the_middle_of_an_iteration_without_a_word(
    numbered: Path, where: str, output: str
) -> None:
    assert run_python(END, numbered, where, output, code_expected=3 * (where == "error")) == ""


# Ctrl-C. The one batch takes minutes to decode: the signal has to be seen inside next().

INTERRUPTED = """
import sys
import headrace as hr

loader = hr.Loader(
    sys.argv[1],
    batch_size=4000,
    sampler=[0] * 4000,
    transform=hr.image.resize(8, exact=True),
    engine=hr.EngineOptions(io=sys.argv[2]),
    output="numpy",
)
iteration = iter(loader)
try:
    print("waiting", flush=True)
    next(iteration)
except KeyboardInterrupt:
    print("interrupted", loader.stats()["batches"], flush=True)
loader.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize("io", ["threads", "auto"])
def test_ctrl_c_while_next_waits_is_a_keyboard_interrupt(tmp_path: Path, io: str) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("RGB", (5000, 5000), (200, 30, 60)).save(tmp_path / "images" / "a" / "0.jpg")
    process = subprocess.Popen(
        python_command(INTERRUPTED, tmp_path / "images", io),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    interrupt(process)
    out, err = process.communicate(timeout=280)
    assert (out, err, process.returncode) == ("interrupted 0\nclosed\n", "", 0)
