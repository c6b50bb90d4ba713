"""Local paths lead where they lead the system, and nothing waits for a pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import _places, errors
from headrace.formats import Arrays, Manifest


def numbers(path: Path, *values: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.array(values))


def test_two_dots_after_a_link_are_above_what_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(tmp_path / "deep/q.npy", 1, 2, 3)
    numbers(tmp_path / "q.npy", 4)
    (tmp_path / "deep/er").mkdir()
    (tmp_path / "link").symlink_to("deep/er")
    (tmp_path / "plain/of/it").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for path in ("link/../q.npy", str(tmp_path / "link/../q.npy"), "link/./..//*.npy"):
        assert len(hr.open(path, format=Arrays())) == 3, path
    assert len(hr.open("plain/of/../../q.npy", format=Arrays())) == 1
    (tmp_path / "whole").symlink_to(tmp_path)  # A link that ".." does not go through stays.
    assert _places.absolute("whole/plain/../q.npy") == str(tmp_path / "whole/q.npy")
    assert _places.absolute("no/such/../../q.npy") == str(tmp_path / "q.npy")
    (tmp_path / "train.csv").write_text("image_path,label\nlink/../q.npy,0\n")
    table = hr.open(tmp_path / "train.csv", format=Manifest(labels="label"))
    assert bytes(table[0]["image"]) == (tmp_path / "deep/q.npy").read_bytes()


def test_a_working_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(errors.FailedPreconditionError, match="the working folder is not there any"):
        hr.open("a.npy")


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"a": np.arange(3)}), path)


def stream(path: Path) -> None:
    table = pa.table({"a": np.arange(3)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("npy", lambda path: np.save(path, np.arange(3))),
        ("parquet", parquet),
        ("arrow", stream),
    ],
)
def test_a_pipe_among_files_is_refused_without_waiting(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / f"0.{name}")
    os.mkfifo(tmp_path / f"1.{name}")
    for path in (f"{tmp_path}/*.{name}", f"{tmp_path}/{{0,1}}.{name}"):
        with pytest.raises(errors.FailedPreconditionError, match=f"1.{name}: this is a pipe, a"):
            hr.open(path)


@pytest.mark.timeout(60)
def test_no_call_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for call in (_places.reader, _places.open):
        with pytest.raises(OSError, match="this is a pipe"):
            call(str(tmp_path / "pipe"))
    with pytest.raises(errors.FailedPreconditionError, match="this is a pipe"):
        _places.local_path(str(tmp_path / "pipe"))


def test_a_folder_with_brackets_in_its_name_comes_first(tmp_path: Path) -> None:
    numbers(tmp_path / "a [x]/1.npy", 1, 2, 3)
    numbers(tmp_path / "a x/1.npy", 4)
    assert len(hr.open(tmp_path / "a [x]/*.npy", format=Arrays())) == 3
    assert len(hr.open(tmp_path / "a [x-x]/*.npy", format=Arrays())) == 1


def test_numbers_in_braces_have_the_zeros_that_are_written() -> None:
    from headrace.formats._files.patterns import expand

    assert expand("/t{0..2}") == ["/t0", "/t1", "/t2"]
    assert expand("/t{9..11}") == ["/t9", "/t10", "/t11"]
    assert expand("/t{08..10}") == ["/t08", "/t09", "/t10"]
    assert expand("/t{0..10}")[-2:] == ["/t9", "/t10"]
    assert expand("/t{000..1}") == ["/t000", "/t001"]
