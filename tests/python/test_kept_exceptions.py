"""An exception that is kept, as debuggers, tests and notebooks do, keeps no loader that runs."""

from __future__ import annotations

import functools
import gc
import os
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import worker_functions as functions
from worker_functions import write_records

import headrace as hr
from headrace.torch import DataLoader

TIMES = 30


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images of which one is none."""
    from PIL import Image

    root = tmp_path_factory.mktemp("images")
    for number in range(6):
        (root / f"{number % 2}").mkdir(exist_ok=True)
        file = root / f"{number % 2}" / f"{number}.png"
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(file)
    file.write_bytes(file.read_bytes()[:60])
    return root


class Dataset:
    """Of ten numbers, one of which cannot be read."""

    def __init__(self, fail: Callable[[], Any]) -> None:
        self._fail = fail

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> Any:
        return self._fail() if number == 7 else torch.tensor(number)


def raises() -> Any:
    raise ValueError("no seven")


def dies() -> Any:
    os._exit(3)


def wrong_numbers() -> Any:
    yield from (1, 2, 10**6)


def through(make: Callable[..., Any], *arguments: Any) -> None:
    """Has no name for the loader or a batch: the traceback keeps the variables of this frame."""
    deque(make(*arguments), maxlen=0)


def forked(transform: Any, count: int = 1) -> dict[str, Any]:
    return {"transform": transform, "workers": hr.Workers(count, start="fork"), "shuffle": False}


def closed(path: Path) -> Any:
    loader = hr.Loader(path, 4)
    loader.close()
    return loader


def refused(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return hr.Loader(path, 3, engine=hr.EngineOptions(monitor="x"))  # type: ignore[arg-type]


CASES: dict[str, tuple[type[BaseException], Callable[[Path, Path], Any]]] = {
    "a damaged image": (
        hr.errors.DataLossError,
        lambda _, damaged: hr.Loader(damaged, 2, transform=hr.image.resize(4)),
    ),
    "a function in the loop": (
        hr.errors.TransformError,
        lambda path, _: hr.Loader(path, 8, transform=functions.fail_at_50, workers=0),
    ),
    "a function in a worker": (
        hr.errors.TransformError,
        lambda path, _: hr.Loader(path, 8, **forked(functions.fail_at_50)),
    ),
    "a lost worker": (
        hr.errors.WorkerLostError,
        lambda path, _: hr.Loader(path, 8, **forked(functions.exit_at_50)),
    ),
    "a sampler": (
        hr.errors.InvalidArgumentError,
        lambda path, _: hr.Loader(path, 1, sampler=wrong_numbers()),
    ),
    "a closed loader": (hr.errors.FailedPreconditionError, lambda path, _: closed(path)),
    "a loader that was not made": (ValueError, lambda path, _: refused(path)),
    "an option": (ValueError, lambda path, _: hr.Loader(path, 3, output=hr.Output(ragged="pad"))),
    "DataLoader": (ValueError, lambda *_: DataLoader(Dataset(raises), 2)),
    "DataLoader with threads": (
        ValueError,
        lambda *_: DataLoader(Dataset(raises), 2, num_workers=2, worker_method="thread"),
    ),
    "DataLoader with processes": (
        ValueError,
        lambda *_: DataLoader(Dataset(raises), 2, num_workers=1, multiprocessing_context="fork"),
    ),
    "DataLoader with persistent processes": (
        ValueError,
        lambda *_: DataLoader(
            Dataset(raises),
            2,
            num_workers=1,
            multiprocessing_context="fork",
            persistent_workers=True,
        ),
    ),
    "a lost process": (
        hr.errors.WorkerLostError,
        lambda *_: DataLoader(Dataset(dies), 2, num_workers=1, multiprocessing_context="fork"),
    ),
    "the engine": (
        IndexError,
        lambda *_: DataLoader(torch.utils.data.TensorDataset(torch.arange(9)), sampler=[1, 2, 99]),
    ),
}


def running() -> tuple[int, int, int]:
    """Threads, descriptors and child processes."""
    gc.collect()
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as children:
        processes = len(children.read().split())
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), processes


@pytest.mark.parametrize("case", CASES)
def test_exceptions_that_are_kept_keep_no_thread_descriptor_or_process(
    path: Path, damaged: Path, case: str
) -> None:
    expected, make = CASES[case]
    kept: list[BaseException] = []

    def fail() -> None:
        with pytest.raises(expected) as caught:
            through(make, path, damaged)
        kept.append(caught.value)

    fail()  # What is made once a process is made.
    before = running()
    for _ in range(3 if "process" in case or "worker" in case else TIMES):
        fail()
    assert running() == before
    assert all(each.__traceback__ is not None for each in kept)


def test_the_variables_of_the_user_s_function_stay(path: Path) -> None:
    def transform(sample: hr.Sample) -> Any:
        mine = int(sample.id) + 1
        if mine > 40:
            raise ValueError(mine)
        return sample.record

    with pytest.raises(hr.errors.TransformError) as caught:
        through(
            functools.partial(hr.Loader, path, 8, transform=transform, workers=0, shuffle=False)
        )
    cause = caught.value.__cause__
    assert cause is not None
    trace = cause.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    assert trace.tb_frame.f_locals["mine"] == 41
