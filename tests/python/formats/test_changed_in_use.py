"""Files and indexes that change while a loader has them open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from small_datasets import BATCH, ROWS, Written

import headrace as hr
from headrace import errors
from headrace.pack import PackParameters, write_pack

KEPT_OPEN = ["npy", "npz", "records", "tokens", "tars", "tfrecord", "mds", "arrow"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_again(path: Path) -> None:
    """Other bytes, of the same size, at another time, in the same file."""
    data = bytes(byte ^ 1 for byte in path.read_bytes())
    time = path.stat().st_mtime_ns + 10**9
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(time, time))


@pytest.mark.parametrize("on_error", ["raise", "substitute"])
@pytest.mark.parametrize("name", KEPT_OPEN)
def test_a_file_that_is_written_again_ends_the_epoch(
    name: str, on_error: str, tmp_path: Path
) -> None:
    written = Written(name, tmp_path)
    files = [each for each in written.files(written.root) if each.suffix not in (".idx", ".json")]
    with written.loader(on_error=on_error, engine=hr.EngineOptions(prefetch=1)) as loader:
        batches = iter(loader)
        next(batches)
        for each in files:
            write_again(each)
        with pytest.raises(errors.FailedPreconditionError, match="file changed since it was ind"):
            list(batches)
        for _ in range(2):
            given: list[Any] = []
            with pytest.raises(errors.HeadraceError):
                given.extend(loader)
            assert given == []


def test_a_file_that_is_written_again_between_two_epochs_is_noticed(tmp_path: Path) -> None:
    written = Written("npy", tmp_path)
    with written.loader(engine=hr.EngineOptions(prefetch=1)) as loader:
        assert len(list(loader)) == ROWS // BATCH
        write_again(written.root / "rows.npy")
        with pytest.raises(errors.FailedPreconditionError, match=r"rows\.npy.*file changed since"):
            list(loader)


def test_a_file_that_is_replaced_by_a_rename_is_read_on_as_it_was(tmp_path: Path) -> None:
    written = Written("npy", tmp_path)
    with written.loader(engine=hr.EngineOptions(prefetch=1)) as loader:
        batches = iter(loader)
        next(batches)
        shutil.copy(written.root / "rows.npy", tmp_path / "new.npy")
        write_again(tmp_path / "new.npy")
        rows = np.load(written.root / "rows.npy")
        os.replace(tmp_path / "new.npy", written.root / "rows.npy")
        for batch in batches:
            assert np.array_equal(batch[0], rows[batch.sample_id])


@pytest.mark.parametrize("order", ["source", "shuffled"])
def test_a_pack_is_not_made_of_a_file_that_changes_meanwhile(
    order: Literal["source", "shuffled"], tmp_path: Path
) -> None:
    written = Written("tars", tmp_path)
    told = 0

    def progress(done: int, total: int) -> None:
        nonlocal told
        told += 1
        if told == 1:
            for each in written.files(written.root):
                write_again(each)

    small = PackParameters(order=order, block_samples=2, block_bytes=512, shard_bytes=1024)
    with pytest.raises(errors.FailedPreconditionError, match="file changed since it was indexed"):
        write_pack(hr.open(written.path), tmp_path / "pack", small, workers=1, progress=progress)
    assert not (tmp_path / "pack").exists()


RUN = """
import os, shutil, sys, faulthandler
import numpy as np, headrace as hr
folder, how = sys.argv[1:]
index = f"{folder}/a.hri"
dataset = hr.open(f"{folder}/a.npy", index=index)
loader = hr.Loader(
    dataset, 4, engine=hr.EngineOptions(prefetch=1), memory="32MiB",
    output="numpy",
)
rows = np.load(f"{folder}/a.npy")
batches = iter(loader)
next(batches)
if how == "fault handler":
    faulthandler.enable()  # It takes SIGBUS over, until the next batch.
    next(batches)
if how in ("copied over", "fault handler"):
    shutil.copyfile(f"{folder}/b.hri", index)
elif how == "emptied":
    os.truncate(index, 0)
elif how == "cut":
    os.truncate(index, os.path.getsize(index) - 5000)
elif how == "renamed":
    os.replace(f"{folder}/b.hri", index)
given = 1
try:
    for batch in batches:
        assert (batch[0] == rows[batch[0][:, 0].astype(int)]).all()
        given += 1
    print("whole", given)
except hr.errors.DataLossError as error:
    print("refused", error)
try:
    print("then", len(list(loader)))
except hr.HeadraceError as error:
    print("refused again")
try:
    print("sample", dataset[7]["value"][0])
except hr.errors.DataLossError as error:
    print("refused at last")
"""


@pytest.mark.parametrize("how", ["copied over", "emptied", "cut", "fault handler", "renamed"])
def test_an_index_that_is_changed_in_use_is_an_error_not_a_signal(how: str, tmp_path: Path) -> None:
    for name, count in (("a", 4000), ("b", 40)):
        np.save(tmp_path / f"{name}.npy", np.arange(count)[:, None] * [1, 1, 1])
        hr.open(tmp_path / f"{name}.npy", index=tmp_path / f"{name}.hri")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), how], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if how == "renamed":
        assert done.stdout == "whole 1000\nthen 1000\nsample 7\n"
        return
    assert f"refused reading index '{tmp_path}/a.hri': the file was cut or written" in done.stdout
    assert done.stdout.endswith("refused again\nrefused at last\n")
    # What the message says helps.
    assert len(hr.open(tmp_path / "a.npy", index=tmp_path / "c.hri")) == 4000


def small_disk(at: Path) -> Path:
    at.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(at)]
    if os.geteuid() != 0 or subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    return at


OPEN = "import sys, headrace as hr; print(sum(len(b[0]) for b in hr.Loader(sys.argv[1], 5)))"


@pytest.mark.parametrize("name", ["npy", "folder", "tars", "mds"])
def test_a_full_cache_folder_is_a_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(name, tmp_path)
    disk = small_disk(tmp_path / "disk")
    try:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        with pytest.raises(OSError, match="No space"):
            (disk / "fill").write_bytes(bytes(2 * 2**20))
        command = [sys.executable, "-c", OPEN, str(written.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"{ROWS}\n"), done.stderr
        assert (
            f"cannot be kept in {disk}/headrace (No space left on device; free space there)"
            in done.stderr
        )
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
