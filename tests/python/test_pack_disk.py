"""Packs that find no room: on a disk that is too small, that fills meanwhile, under a limit."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pack import SMALL, contents

import headrace as hr
from headrace import errors
from headrace._units import format_bytes
from headrace.pack import write_pack


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(path), b"tmpfs", 0, b"size=512k") != 0:
        pytest.skip(f"cannot mount a small tmpfs here: {os.strerror(ctypes.get_errno())}")
    yield path
    libc.umount2(os.fsencode(path), 2)


def test_a_pack_that_the_disk_cannot_hold_is_refused_before_anything_is_written(
    original: Path, small_disk: Path
) -> None:
    source = hr.open(original)
    total = int(source.index.extents(0)[2].sum())
    (small_disk / "hog").write_bytes(bytes(512 * 1024 - 120_000))
    message = (
        rf"packing to {small_disk}/pack: at least {format_bytes(total)} are needed, "
        rf"1\d\d\.\d KiB are free in {small_disk}; make room, or pack to another disk$"
    )
    with pytest.raises(errors.ResourceExhaustedError, match=message):
        write_pack(source, small_disk / "pack", SMALL, workers=1)
    assert [path.name for path in small_disk.iterdir()] == ["hog"]


def test_a_disk_that_fills_meanwhile_is_told_and_the_run_continues_when_there_is_room(
    original: Path, tmp_path: Path, small_disk: Path
) -> None:
    source = hr.open(original)
    hog = small_disk / "hog"

    def fill(done: int, total: int) -> None:
        if done > total // 2 and not hog.exists():
            system = os.statvfs(small_disk)
            hog.write_bytes(bytes(max(system.f_bfree - 4, 0) * system.f_frsize))

    message = r"No space left on device: at least \d.* are needed, .* are free in .*; make room"
    with pytest.raises(errors.ResourceExhaustedError, match=message) as got:
        write_pack(source, small_disk / "pack", SMALL, workers=1, progress=fill)
    (note,) = got.value.__notes__
    partial = small_disk / ".pack.partial"
    assert f"kept in {partial}: run the same command again" in note
    assert not (small_disk / "pack").exists()
    # What is kept is whole: a shard for each record.
    kept = sorted(path.name for path in (partial / "journal").iterdir())
    shards = sorted(path.name for path in (partial / "data").iterdir())
    assert [name[:11] for name in shards] == [
        name[:11] for name in kept if name != "parameters.json"
    ]
    assert not [path for path in partial.rglob("*") if "tmp" in path.name]
    with pytest.raises(errors.ResourceExhaustedError, match="at least") as still:
        write_pack(source, small_disk / "pack", SMALL, workers=1)
    assert f"kept in {partial}" in still.value.__notes__[0]
    hog.unlink()
    result = write_pack(source, small_disk / "pack", SMALL, workers=1)
    assert result.shards_continued == len(shards) > 0
    write_pack(source, tmp_path / "expected", SMALL)
    assert contents(small_disk / "pack") == contents(tmp_path / "expected")


def test_a_limit_of_file_sizes_is_told_with_the_way_out(original: Path, tmp_path: Path) -> None:
    source = hr.open(original)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        message = r"File too large; a file may have 19.5 KiB \(ulimit -f\): raise .* --shard-size"
        with pytest.raises(errors.ResourceExhaustedError, match=message):
            write_pack(source, tmp_path / "pack", SMALL, workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.glob("*pack*"))
