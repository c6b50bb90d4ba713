"""As test_copies.py and test_changed_in_use.py, of data that other packages write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import errors

ROWS = 24


@pytest.fixture
def here(h5py: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of rows as they are, and of compressed chunks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    rng = np.random.default_rng(1)
    with h5py.File(tmp_path / "here/rows.h5", "w") as file:
        file["x"] = rng.normal(size=(ROWS, 50))
        file["y"] = np.arange(ROWS)
        file.create_dataset("z", data=rng.normal(size=(ROWS, 9)), chunks=(1, 9), compression="gzip")
    return tmp_path / "here"


def loader(folder: Path) -> hr.Loader[Any]:
    return hr.Loader(
        folder / "rows.h5",
        4,
        seed=3,
        output=hr.Output("numpy", ids=True),
        engine=hr.EngineOptions(prefetch=1),
    )


def values(batch: Any) -> list[list[Any]]:
    return [np.asarray(field).tolist() for field in batch]


def test_a_copy_continues_and_another_file_does_not(here: Path) -> None:
    with loader(here) as first:
        batches = iter(first)
        next(batches)
        state = first.state_dict()
        rest = list(map(values, batches))
    there = shutil.copytree(here, here.with_name("there"), copy_function=shutil.copyfile)
    with loader(there) as second:
        second.load_state_dict(state)
        assert list(map(values, second)) == rest
    data = bytearray((there / "rows.h5").read_bytes())
    at = data.index(np.random.default_rng(1).normal(size=3).tobytes())  # in the first row of x
    data[at] ^= 1
    (there / "rows.h5").write_bytes(data)
    with loader(there) as changed, pytest.raises(errors.FailedPreconditionError, match="bytes of"):
        changed.load_state_dict(state)


def test_a_file_that_is_written_again_ends_the_epoch(here: Path, h5py: Any) -> None:
    with loader(here) as reading:
        batches = iter(reading)
        next(batches)
        with h5py.File(here / "rows.h5", "r+") as file:
            file["x"][:] = -file["x"][:]
        os.utime(here / "rows.h5", ns=(10**18, 10**18))
        with pytest.raises(errors.FailedPreconditionError, match=r"rows\.h5.*file changed since"):
            list(batches)
        with pytest.raises(errors.FailedPreconditionError, match=r"rows\.h5.*file changed since"):
            next(iter(reading))
