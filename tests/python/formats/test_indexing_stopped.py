"""Indexing that was stopped goes on: parts that are finished are kept beside the index."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from indexing_data import WRITERS, Named, add_files, one_sample, packages

import headrace as hr
from headrace import errors
from headrace.formats import Builder
from headrace.formats._base.format import Wanted
from headrace.formats._indexing import unfinished
from headrace.formats._indexing.unfinished import Unfinished

ABOUT = "a test"

__all__ = ["packages"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(unfinished, "KEEP_AFTER_S", 0.0)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    (tmp_path / "data").mkdir()
    found = [tmp_path / "data" / f"{number:02}" for number in range(12)]
    for number, path in enumerate(found):
        path.write_bytes(b"x" * number)
    return list(map(str, found))


class Run:
    """Runs of one index; which paths each described."""

    def __init__(self, paths: list[str], target: Path) -> None:
        self.paths = paths
        self.target = target
        self.kept = Path(f"{target}.unfinished")
        self.described: list[str] = []

    def __call__(
        self,
        stop_at: int | None = None,
        *,
        stop: Callable[[], object] = lambda: signal.raise_signal(signal.SIGINT),
        continues: str | None = ABOUT,
        jobs: int = 1,
    ) -> bytes:
        """`stop_at`: the number of the path at which `stop` is called."""
        self.described = []

        def describe(path: str, part: Builder) -> None:
            if stop_at is not None and path == self.paths[stop_at]:
                stop()
            self.described.append(path)
            one_sample(path, part)

        folder = os.path.dirname(self.paths[0])
        with Builder(self.target, folder, jobs=jobs, continues=continues) as builder:
            add_files(self.paths, builder, describe)
        return self.target.read_bytes()

    def stopped(self, stop_at: int, **options: Any) -> bytes:
        """Stops a run at a path; the file of parts that it leaves."""
        with pytest.raises((KeyboardInterrupt, errors.DataLossError)):
            self(stop_at, **options)
        assert not self.target.exists()
        return self.kept.read_bytes()


@pytest.fixture
def run(paths: list[str], tmp_path: Path) -> Run:
    return Run(paths, tmp_path / "a.hri")


@pytest.fixture
def whole(paths: list[str], tmp_path: Path) -> bytes:
    """The index of a run that was not stopped."""
    return Run(paths, tmp_path / "whole.hri")(continues=None)


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_run_goes_on_behind_what_was_finished(run: Run, whole: bytes, jobs: int) -> None:
    run.stopped(7, jobs=1)
    assert run(jobs=jobs) == whole
    assert sorted(run.described) == run.paths[7:]
    assert not run.kept.exists()


def test_an_error_keeps_what_was_finished_too(run: Run, whole: bytes) -> None:
    def fail() -> None:
        raise errors.DataLossError("indexing: damaged")

    run.stopped(9, stop=fail)
    assert run() == whole
    assert run.described == run.paths[9:]


def test_a_run_that_is_stopped_again_keeps_more(run: Run, whole: bytes) -> None:
    first = run.stopped(3)
    second = run.stopped(8)
    assert second.startswith(first)
    assert run() == whole
    assert run.described == run.paths[8:]


def test_a_file_that_changed_is_described_again(run: Run, paths: list[str]) -> None:
    run.stopped(9)
    Path(paths[2]).write_bytes(b"more than before")
    status = os.stat(paths[5])
    os.utime(paths[5], ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    found = run()
    assert run.described == [paths[2], paths[5], *paths[9:]]
    assert found == Run(paths, run.target.with_name("b.hri"))(continues=None)


def test_a_file_that_changes_while_it_is_read_is_not_kept(run: Run, paths: list[str]) -> None:
    real = Path(paths[4])

    def describe(path: str, part: Builder) -> None:
        one_sample(path, part)
        if path == paths[4]:
            real.write_bytes(b"changed")
        if path == paths[6]:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        Builder(run.target, real.parent, jobs=1, continues=ABOUT) as builder,
    ):
        add_files(paths, builder, describe)
    run()
    assert run.described == [paths[4], *paths[6:]]


def test_what_a_part_depends_on_must_be_the_same_too(run: Run, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.write_text("1")
    described: list[str] = []

    def build(stop_at: int | None) -> None:
        described.clear()

        def describe(path: str, part: Builder) -> None:
            if stop_at is not None and path == run.paths[stop_at]:
                raise KeyboardInterrupt
            described.append(path)
            if path == run.paths[3]:
                part.depends_on(beside)
            one_sample(path, part)

        with Builder(run.target, tmp_path, jobs=1, continues=ABOUT) as builder:
            add_files(run.paths, builder, describe)

    with pytest.raises(KeyboardInterrupt):
        build(9)
    beside.write_text("22")
    build(None)
    assert described == [run.paths[3], *run.paths[9:]]


def test_a_second_call_keeps_nothing(run: Run) -> None:
    """Its parts are described otherwise."""

    def build(stop: bool) -> None:
        def second(path: str, part: Builder) -> None:
            if stop:
                raise KeyboardInterrupt
            one_sample(path, part)

        with Builder(run.target, os.path.dirname(run.paths[0]), continues=ABOUT) as builder:
            add_files(run.paths, builder, one_sample)
            builder.add_parts(run.paths[:4], second)

    with pytest.raises(KeyboardInterrupt):
        build(stop=True)
    build(stop=False)
    assert len(hr.open(run.target)) == len(run.paths) + 4
    assert not run.kept.exists()


def test_what_another_run_left_is_not_used(run: Run, whole: bytes) -> None:
    run.stopped(9)
    assert run(continues="another version") == whole
    assert run.described == run.paths
    run.target.unlink()
    run.stopped(9)
    run.paths.append(run.paths.pop(0))  # Another order: the same parts.
    run()
    assert len(run.described) == len(run.paths) - 9


def test_fields_and_files_beside_must_be_the_same(run: Run, tmp_path: Path) -> None:
    beside = tmp_path / "index.json"
    beside.write_text("1")

    def build(kind: str, stop_at: int | None) -> list[str]:
        described: list[str] = []

        def describe(path: str, part: Builder) -> None:
            if stop_at is not None and path == run.paths[stop_at]:
                raise KeyboardInterrupt
            described.append(path)
            part.add_extents("data", part.add_file(path), 0, 0)

        with Builder(run.target, tmp_path, jobs=1, continues=ABOUT) as builder:
            builder.depends_on(beside)
            builder.depends_on(tmp_path / "data")  # A folder changes with each file.
            builder.add_field("data", kind)  # type: ignore[arg-type]
            builder.add_parts(run.paths, describe)
        return described

    for change in (lambda: None, lambda: beside.write_text("22")):
        with pytest.raises(KeyboardInterrupt):
            build("bytes", 6)
        change()
        assert len(build("bytes", None)) == (6 if beside.read_text() == "1" else 12)
    with pytest.raises(KeyboardInterrupt):
        build("bytes", 6)
    assert len(build("image", None)) == 12


def test_a_short_run_leaves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "KEEP_AFTER_S", 1e9)
    with pytest.raises(KeyboardInterrupt):
        run(9)
    assert not run.kept.exists()


def test_a_run_without_parts_leaves_nothing(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(0)
    assert not run.kept.exists()


def test_what_is_left_may_end_anywhere(run: Run, whole: bytes) -> None:
    """As a process that is killed leaves it: cut, or without the head that is written last."""
    left = run.stopped(9)
    described = set()
    for end in (*range(0, len(left), 13), len(left)):
        run.kept.write_bytes(left[:end])
        assert run() == whole, end
        assert not run.kept.exists()
        described.add(len(run.described))
    assert described == set(range(3, 13))
    last = left.rindex(b"part")
    run.kept.write_bytes(left[:last] + bytes(20) + left[last + 20 :])
    assert run() == whole
    assert len(run.described) == 4


def test_damage_costs_parts_and_never_a_wrong_index(run: Run, whole: bytes) -> None:
    left = run.stopped(10)
    draw = random.Random(3)
    for _ in range(400):
        data = bytearray(left)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.choice([0, 255, draw.randrange(256)])
        run.kept.write_bytes(data)
        assert run() == whole


def test_a_folder_in_its_place_is_no_hindrance(run: Run, whole: bytes) -> None:
    run.kept.mkdir()
    assert run() == whole
    assert run.kept.is_dir()


def test_a_full_disk_ends_the_keeping_not_the_run(
    run: Run, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 5
    real = os.pwrite

    def write(fd: int, data: bytes, at: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        return real(fd, data, at)

    monkeypatch.setattr(unfinished.os, "pwrite", write)
    assert run() == whole
    assert left < 0
    assert not run.kept.exists()


def test_two_runs_at_once_do_not_meet(run: Run, whole: bytes) -> None:
    """One holds what is kept; the other one reads all files itself, and removes nothing."""
    left = run.stopped(9)
    fields_of_the_run = left.partition(b"\n")[0]
    other = Unfinished(str(run.target), {})
    assert run.kept.read_bytes() == b"{}\n"  # Of something else: begun anew, and locked.
    assert run() == whole
    assert run.described == run.paths
    assert run.kept.exists()
    other.close()
    assert not run.kept.exists()
    assert fields_of_the_run.startswith(b"{")


def test_parts_of_other_decoding_are_dropped(paths: list[str], tmp_path: Path) -> None:
    """As the header before the values of the first file, which changed, may have another size."""
    described: list[str] = []

    def index(header_bytes: int, stop_at: str = "") -> None:
        def describe(path: str, part: Builder) -> None:
            if path == stop_at:
                raise KeyboardInterrupt
            described.append(path)
            part.add_extents("x", part.add_file(path), 0, os.path.getsize(path))

        described.clear()
        with Builder(tmp_path / "a.hri", tmp_path / "data", jobs=1, continues=ABOUT) as builder:
            builder.add_field("x", "array", "uint8", [4], coding="zlib", header_bytes=header_bytes)
            builder.add_parts(paths[1:], describe)

    for header_bytes, again in ((0, paths[8:]), (128, paths[1:])):
        with pytest.raises(KeyboardInterrupt):
            index(0, stop_at=paths[8])
        index(header_bytes)
        assert described == again


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from indexing_data import add_files, one_sample
from headrace.formats import Builder
from headrace.formats._indexing import unfinished

unfinished.KEEP_AFTER_S = 0.0
target, folder, writes = sys.argv[2], sys.argv[3], int(sys.argv[4])
real = os.pwrite

def write(fd, data, at):
    global writes
    writes -= 1
    if writes == 0:
        real(fd, data[: len(data) // 2], at)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(fd, data, at)

os.pwrite = write
with Builder(target, folder, jobs=2, continues="a test") as builder:
    names = sorted(os.listdir(folder))
    add_files([os.path.join(folder, each) for each in names], builder, one_sample)
"""


def test_a_killed_process_leaves_what_can_be_used(run: Run, whole: bytes, tmp_path: Path) -> None:
    here = os.path.dirname(__file__)
    finished = []
    for writes in (1, 3, 4, 20, 21, 22):  # In the first line; in a head; in a state; in calls.
        command = [sys.executable, "-c", KILLED, here, str(run.target), str(tmp_path / "data")]
        done = subprocess.run([*command, str(writes)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert not run.target.exists()
        assert run() == whole
        assert not run.kept.exists()
        run.target.unlink()
        finished.append(len(run.paths) - len(run.described))
    assert finished[0] == 0
    assert finished == sorted(finished)
    assert finished[-1] > 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "whole.hri"]


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("name", WRITERS)
def test_formats_go_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    path, row = WRITERS[name](tmp_path / "data")
    _, whole = row.build(str(path), Wanted(tmp_path / "whole.hri"))
    parts = 0

    def add(self: Unfinished, part: Any) -> None:
        nonlocal parts
        parts += 1
        if parts == 6:
            raise KeyboardInterrupt
        real(self, part)

    real = Unfinished.add
    monkeypatch.setattr(Unfinished, "add", add)
    with pytest.raises(KeyboardInterrupt):
        row.build(str(path), Wanted(tmp_path / "a.hri"))
    monkeypatch.setattr(Unfinished, "add", real)
    found = []

    def find(self: Unfinished, state: Any) -> Any:
        part = really_find(self, state)
        found.append(part is not None)
        return part

    really_find = Unfinished.find
    monkeypatch.setattr(Unfinished, "find", find)
    _, target = row.build(str(path), Wanted(tmp_path / "a.hri"))
    assert sum(found) == 5
    assert Path(target).read_bytes() == Path(whole).read_bytes()
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_format_of_a_user_s_keeps_nothing(paths: list[str], tmp_path: Path) -> None:
    """Its code may have changed since."""

    def describe(path: str, part: Builder) -> None:
        if path == paths[9]:
            raise KeyboardInterrupt
        one_sample(path, part)

    with pytest.raises(KeyboardInterrupt):
        hr.open(tmp_path / "data", format=Named(describe=describe))
    assert not list((tmp_path / "cache").rglob("*.unfinished"))


def test_a_part_with_a_number_that_is_none_is_dropped(tmp_path: Path) -> None:
    index = tmp_path / "a.hri"
    about = {"what": "x"}
    text = b'[["/a", 1, 1e999], [], 0]'
    head = unfinished._HEAD.pack(unfinished._MARK, len(text), 0, zlib.crc32(text))
    first = (json.dumps(about, sort_keys=True) + "\n").encode()
    Path(f"{index}{unfinished.SUFFIX}").write_bytes(first + head + text)
    kept = Unfinished(str(index), about)
    assert kept.find(("/a", 1, 0)) is None
    kept.close()
