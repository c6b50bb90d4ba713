"""Indexing several files at a time: `Builder.add_parts`, and the formats that use it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run, run_json
from indexing_data import FILES, WRITERS, Named, add_files, one_sample, packages, write_records
from own_readers import own_samples

import headrace as hr
from headrace import _core, errors
from headrace.formats import Arrays, Builder, Format, TFRecord
from headrace.formats._base.format import Wanted
from headrace.formats._indexing.in_order import in_order

WAIT_S = 20.0
"""After which a test that would hang fails."""

__all__ = ["packages"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    (tmp_path / "data").mkdir()
    found = [tmp_path / "data" / f"{number:02}" for number in range(30)]
    for number, path in enumerate(found):
        path.write_bytes(b"x" * number)
    return list(map(str, found))


def build(target: Path, paths: list[str], describe: Any = one_sample, **options: Any) -> bytes:
    with Builder(target, os.path.dirname(paths[0]), **options) as builder:
        add_files(paths, builder, describe)
    return target.read_bytes()


def no_thread_is_left() -> bool:
    return not any("headrace-index" in each.name for each in threading.enumerate())


@pytest.mark.usefixtures("packages")
@pytest.mark.filterwarnings("ignore:headrace. indexing .*cannot be decoded")
@pytest.mark.parametrize("name", WRITERS)
def test_an_index_does_not_depend_on_the_number_of_jobs(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path, row = WRITERS[name](folder)
    found = set()
    for jobs in (1, 2, 3, 8, 64):
        target = tmp_path / f"{jobs}.hri"
        _, written = row.build(str(path), Wanted(target, jobs=jobs))
        found.add(Path(written).read_bytes())
    assert len(found) == 1
    dataset = hr.open(path, format=row)
    own = list(own_samples(row, str(path)))
    assert len(dataset) == len(own) > FILES - 3
    for mine, theirs in zip(dataset, own, strict=True):
        for field in mine:
            assert np.asarray(mine[field]).tobytes() == np.asarray(theirs[field]).tobytes()


def test_blocks_are_those_of_all_parts_or_none(paths: list[str], tmp_path: Path) -> None:
    def all_but(left_out: str) -> Callable[[str, Builder], None]:
        def describe(path: str, part: Builder) -> None:
            one_sample(path, part)
            if not path.endswith(left_out):
                part.add_blocks([1], 0, 0, Path(path).stat().st_size)

        return describe

    for left_out, blocks in (("none", len(paths)), ("07", 0)):
        build(tmp_path / "a.hri", paths, all_but(left_out))
        assert _core.Index.open(str(tmp_path / "a.hri")).block_count == blocks


def npy_files(folder: Path) -> tuple[str, Format]:
    for number in range(64):
        np.save(folder / f"{number:02}.npy", np.full((3, 5), number))
    return str(folder / "{00..63}.npy"), Arrays()


def record_files(folder: Path) -> tuple[str, Format]:
    for number in range(64):
        write_records(folder / f"{number:02}.tfrecord", [bytes([number])] * 3)
    return str(folder), TFRecord()


@pytest.mark.parametrize("write", [npy_files, record_files])
def test_eight_files_are_read_at_a_time(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a fake that answers when eight ask: with reads of 5 ms each, an eighth of the time."""
    (tmp_path / "data").mkdir()
    path, row = write(tmp_path / "data")
    jobs = 8
    rounds: list[int] = []
    together = threading.Barrier(jobs, lambda: rounds.append(1), WAIT_S)
    main = threading.current_thread()
    reads: list[int] = []
    real = os.pread

    def read(fd: int, size: int, offset: int) -> bytes:
        if threading.current_thread() is not main:
            reads.append(size)
            together.wait()
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", read)
    index, _ = row.build(path, Wanted(tmp_path / "out.hri", jobs=jobs))
    assert index.sample_count == 64 * 3
    assert len(reads) >= 64
    assert len(rounds) * jobs == len(reads)


def test_the_error_is_that_of_the_first_path(paths: list[str], tmp_path: Path) -> None:
    later = threading.Event()

    def describe(path: str, part: Builder) -> None:
        if path == paths[3]:
            assert later.wait(WAIT_S)
            raise errors.DataLossError(f"indexing {path}: damaged")
        if path == paths[5]:
            later.set()
            raise errors.DataLossError(f"indexing {path}: damaged")
        one_sample(path, part)

    with pytest.raises(errors.DataLossError, match=r"03: damaged"):
        build(tmp_path / "a.hri", paths, describe, jobs=6)
    assert no_thread_is_left()
    assert list(tmp_path.glob("a.hri*")) == []


def test_an_error_of_the_index_itself_is_that_of_the_first_path(
    paths: list[str], tmp_path: Path
) -> None:
    def describe(path: str, part: Builder) -> None:
        part.add_extents("data", part.add_file(path), 0, Path(path).stat().st_size + 1)

    with pytest.raises(errors.InvalidArgumentError, match=r"00"):
        build(tmp_path / "a.hri", paths, describe)
    assert no_thread_is_left()


def test_ctrl_c_ends_it_and_the_threads(paths: list[str], tmp_path: Path) -> None:
    waiting = threading.Event()
    stop = threading.Event()

    def describe(path: str, part: Builder) -> None:
        if path == paths[4]:
            waiting.set()
            while True:  # Until the whole is stopped.
                part.tell(1)
                stop.wait(0.001)
        one_sample(path, part)

    def progress(found: int) -> None:
        if waiting.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "a.hri", paths, describe, progress=progress)
    assert no_thread_is_left()
    assert list(tmp_path.glob("a.hri*")) == []


def test_progress_comes_on_the_calling_thread_and_counts_all(
    paths: list[str], tmp_path: Path
) -> None:
    told: list[tuple[int, str]] = []
    build(
        tmp_path / "a.hri",
        paths,
        progress=lambda found: told.append((found, threading.current_thread().name)),
    )
    assert told[-1][0] == len(paths)
    assert {name for _, name in told} == {threading.current_thread().name}


def test_a_part_takes_samples_alone(paths: list[str], tmp_path: Path) -> None:
    calls: list[Callable[[Builder], object]] = [
        lambda part: part.add_field("more", "bytes"),
        lambda part: part.set_attribute("a", "b"),
        lambda part: part.set_classes(["a"]),
        lambda part: part.add_parts([], one_sample),
        lambda part: part.publish(),
    ]
    for call in calls:
        with pytest.raises((errors.InvalidArgumentError, errors.FailedPreconditionError)):
            build(tmp_path / "a.hri", paths, lambda path, part, call=call: call(part))


def test_jobs_must_be_a_number_of_threads(paths: list[str], tmp_path: Path) -> None:
    for jobs in (0, 257, "x"):
        with pytest.raises(errors.InvalidArgumentError, match=r"jobs: got .*must be"):
            build(tmp_path / "a.hri", paths, jobs=jobs)


def test_work_is_begun_a_little_ahead_only() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return item

    results = in_order(work, range(1000), 2)
    for number in range(50):
        assert next(results) == number
        assert len(begun) <= number + 5
    results.close()
    assert no_thread_is_left()


def test_a_large_part_is_not_held_in_memory(paths: list[str], tmp_path: Path) -> None:
    """It goes to an unnamed file, which is gone in the end."""
    count = 200_000

    def describe(path: str, part: Builder) -> None:
        number = part.add_file(path)
        part.add_extents("data", np.full(count, number), 0, 0)
        part.add_values("length", np.arange(count))
        part.add_ragged("name", b"ab" * count, np.full(count, 2))
        spools.append(part._recorder.calls._rolled)  # type: ignore[attr-defined]

    spools: list[bool] = []
    one = build(tmp_path / "1.hri", paths[:3], describe, jobs=1)
    assert one == build(tmp_path / "3.hri", paths[:3], describe, jobs=3)
    assert spools == [True] * 6
    assert sorted(each.name for each in tmp_path.iterdir()) == ["1.hri", "3.hri", "data"]


def test_decoded_sizes_and_notes_of_parts_come_in_order(paths: list[str], tmp_path: Path) -> None:
    """Those of a large part, too, which is not held in memory."""
    count = 100_000
    notes: list[str] = []
    found = set()

    def describe(path: str, part: Builder) -> str | None:
        place = paths.index(path)
        number = part.add_file(path)
        for first in (0, count):
            decoded = np.arange(first, first + count) % 1000 + place
            part.add_extents("data", np.full(count, number), 0, place, decoded=decoded)
        return f"{place}" if place % 2 else None

    for jobs in (1, 3):
        with Builder(tmp_path / "a.hri", os.path.dirname(paths[0]), jobs=jobs) as builder:
            builder.add_field("data", "bytes", coding="zlib")
            builder.add_parts(paths[20:24], describe, notes.append)
        found.add((tmp_path / "a.hri").read_bytes())
    assert len(found) == 1
    assert notes == ["21", "23"] * 2
    index = _core.Index.open(str(tmp_path / "a.hri"))
    decoded = index.decoded_sizes(0)
    assert decoded is not None
    wanted = [np.arange(2 * count) % 1000 + place for place in range(20, 24)]
    assert (decoded == np.concatenate(wanted)).all()


def test_the_command_takes_jobs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path, _ = WRITERS["tars"](tmp_path / "data")
    found = {run_json("index", path, "--jobs", jobs)["fingerprint"] for jobs in (1, 4)}
    assert len(found) == 1
    assert "jobs: got 0, must be in [1, 256]" in run("index", path, "--jobs", 0, code=2).stderr
    images = tmp_path / "images"
    for number in range(700):
        (images / f"{number % 2}").mkdir(parents=True, exist_ok=True)
        (images / f"{number % 2}" / f"{number}.jpg").write_bytes(b"x" * (number % 5))
    found = {run_json("index", images, "--jobs", jobs)["fingerprint"] for jobs in (1, 4)}
    assert len(found) == 1


def test_a_format_of_a_user_s_is_indexed_in_parts(paths: list[str], tmp_path: Path) -> None:
    dataset = hr.open(tmp_path / "data", format=Named())
    assert [each["length"] for each in dataset] == list(range(len(paths)))
    assert [each["name"] for each in dataset] == [os.path.basename(each) for each in paths]


# Many files' sizes and times at once.


def test_files_are_found_as_by_stat(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    names = [f"{number}" for number in range(5000)]
    for number in range(0, 5000, 7):
        (tmp_path / names[number]).write_bytes(b"x" * (number % 9))
    (tmp_path / "link").symlink_to("7")
    (tmp_path / "broken").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    names += ["sub", "link", "broken", "pipe", "", ".", "sub/../7", str(tmp_path / "7"), "ü"]
    for jobs in (1, 4):
        sizes, times = _core.files_found(str(tmp_path), names, jobs)
        for name, size, mtime_ns in zip(names, sizes.tolist(), times.tolist(), strict=True):
            path = os.path.join(tmp_path, name)
            if not name or not os.path.isfile(path):
                assert (size, mtime_ns) == (-1, 0)
            else:
                status = os.stat(path)
                assert (size, mtime_ns) == (status.st_size, status.st_mtime_ns)
    sizes, _ = _core.files_found(str(tmp_path / "no"), names[:3])
    assert sizes.tolist() == [-1, -1, -1]
