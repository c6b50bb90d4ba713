"""What is the same for all formats: paths, patterns, options, and datasets that are decoded."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from commands import run, run_json
from parquet_files import write

import headrace as hr
from headrace import _core, errors
from headrace.formats import Builder, Format, Given, LitData, Parquet, Tokens, register, table


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "FORMATS", table.FORMATS)


def arrays(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        np.save(folder / name, np.arange(3, dtype=np.int32) + 10 * number)
    return folder


# Paths.


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    arrays(tmp_path / "data", "a.npy")
    assert hr.open("~/data/a.npy").path == str(tmp_path / "data" / "a.npy")
    monkeypatch.chdir(tmp_path)
    os.symlink(tmp_path / "data", tmp_path / "~")  # A file of that name comes first.
    assert hr.open("~/a.npy").path == str(tmp_path / "~" / "a.npy")


def test_wildcards_stand_for_the_files_that_match_by_name(tmp_path: Path) -> None:
    folder = arrays(tmp_path / "data", "w-0.npy", "w-1.npy", "w-2.npy", "v.npy")
    dataset = hr.open(folder / "w-*.npy")
    assert [int(row["value"]) for row in dataset] == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert len(hr.open(folder / "w-[01].npy")) == len(hr.open(folder / "{v,w-?}.npy")) - 6 == 6
    assert len(hr.open(tmp_path / "d*" / "w-*.npy")) == 9


def test_a_file_that_comes_to_match_is_part_of_the_dataset(tmp_path: Path) -> None:
    folder = arrays(tmp_path / "data", "w-0.npy", "w-1.npy")
    assert len(hr.open(folder / "w-*.npy")) == 6
    np.save(folder / "w-2.npy", np.arange(3, dtype=np.int32))
    assert len(hr.open(folder / "w-*.npy")) == 9
    (folder / "w-0.npy").unlink()
    assert len(hr.open(folder / "w-*.npy")) == 6


def test_wildcards_that_match_one_path_are_that_path(tmp_path: Path, numbered: Path) -> None:
    os.symlink(numbered, tmp_path / "images")
    assert hr.open(tmp_path / "im*").format == "folder"


def test_wildcards_that_match_nothing_or_no_format_are_told(tmp_path: Path) -> None:
    folder = arrays(tmp_path / "data", "a.npy")
    with pytest.raises(errors.NotFoundError, match="no file matches this pattern"):
        hr.open(folder / "b*.npy")
    for name in ("1.txt", "2.txt"):
        (folder / name).write_text("x")
    with pytest.raises(errors.NotFoundError, match=r"no format opens this pattern; its .*1\.txt;"):
        hr.open(folder / "*.txt")


@pytest.mark.parametrize("url", ["hf://datasets/x", "ftp://a.b/c.parquet"])
def test_a_url_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"this is a URL, .* mount the storage"):
        hr.open(url)
    assert "this is a URL" in run("inspect", url, code=2).stderr


def test_a_url_of_the_hub_is_refused_with_the_command_that_downloads_it() -> None:
    download = "`hf download org/name --repo-type dataset --local-dir name"
    for url, way in (
        ("hf://datasets/org/name", f"{download}` (pip install huggingface_hub), and open name"),
        (
            "hf://datasets/org/name@v1/data",
            f"{download} --revision v1 --include 'data/*'` (pip install huggingface_hub), and open "
            "name/data",
        ),
        (
            "hf://datasets/org/name/data/a-{0..1}.parquet",
            f"{download} --include 'data/*'` (pip install huggingface_hub), and open "
            "name/data/a-{0..1}.parquet",
        ),
    ):
        with pytest.raises(errors.InvalidArgumentError) as caught:
            hr.open(url)
        assert str(caught.value).endswith(f"http://; download it: {way}")


# Options.


@pytest.mark.parametrize("row", table.FORMATS, ids=lambda row: row.name)
def test_an_option_that_a_format_lacks_is_an_error_of_headrace(row: Format) -> None:
    kind: Callable[..., Format] = type(row)
    with pytest.raises(errors.InvalidArgumentError, match="xyz"):
        kind(xyz=1)
    with pytest.raises(errors.InvalidArgumentError):
        kind(1, 2)
    assert kind() == row or type(kind()) is type(row)


def test_the_option_that_was_meant_is_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'cols'; did you mean 'columns'"):
        Parquet(cols=1)  # type: ignore[call-arg]


def test_options_of_a_format_of_the_user_are_checked_too() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True, kw_only=True)
    class Mine(Format):
        name: ClassVar[str] = "mine"
        opens: ClassVar[str] = "mine"
        window: int = 1

        def recognises(self, path: str) -> bool:
            return False

    assert Mine(window=3) == Mine(window=3)
    with pytest.raises(errors.InvalidArgumentError, match="did you mean 'window'"):
        Mine(windw=3)  # type: ignore[call-arg]


# Formats that are taken for another.


def test_shards_of_another_format_are_called_by_its_name(tmp_path: Path) -> None:
    for content, name, is_of in (
        ({"version": 2, "shards": []}, "litdata", "MDS, not of LitData"),
        ({"chunks": [], "config": {}}, "mds", "LitData, not of MDS"),
    ):
        (tmp_path / "index.json").write_text(json.dumps(content))
        with pytest.raises(errors.InvalidArgumentError, match=f"the dataset is of {is_of}"):
            hr.open(tmp_path, format=name)


def test_a_window_that_no_file_has_is_refused_with_both_numbers(tmp_path: Path) -> None:
    np.arange(50, dtype=np.uint16).tofile(tmp_path / "a.bin")
    message = "a sample takes 1,024 tokens, and the one behind them; the largest file has 50"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.open(tmp_path / "a.bin", format=Tokens(dtype="uint16", window=1024))
    assert LitData(block_size=3).block_size == 3


# Objects of other packages.


class Rows:
    """An object of another package."""


class OfRows(Format):
    name: ClassVar[str] = "of-rows"
    opens: ClassVar[str] = "an object of rows"
    asked: ClassVar[int] = 0

    def recognises(self, path: str) -> bool:
        return False

    def of_object(self, given: object) -> Given | None:
        if not isinstance(given, Rows):
            return None
        type(self).asked += 1

        def fill(builder: Builder) -> None:
            builder.add_field("label", "array", "int64", inline=True)
            builder.add_values("label", np.arange(5))

        return Given("rows", "1", "/", fill)


def test_the_key_of_an_object_is_asked_for_once() -> None:
    register(OfRows())
    given: Any = Rows()
    for make in (hr.open, hr.Loader):
        OfRows.asked = 0
        made: Any = make(given)
        assert OfRows.asked == 1
        assert len(made) == 5
    with pytest.raises(errors.InvalidArgumentError, match=r"must be what headrace\.open"):
        hr.Loader(5)  # type: ignore[arg-type]


# Row groups.


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """A folder of two files of row groups of 5 rows each."""
    folder = tmp_path / "groups"
    folder.mkdir()
    for number in range(2):
        columns = {"text": [f"row {number} {i}" * 9 for i in range(20)], "n": range(20)}
        write(folder / f"{number}.parquet", pa.table(columns), row_group_size=5)
    return folder


def test_other_data_beside_parquet_files_is_told(groups: Path) -> None:
    for name in ("README.md", "info.json", ".hidden", "_metadata"):
        (groups / name).write_text("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hr.open(groups)
    for name in ("a.jpg", "b.jpg", "c.csv"):
        (groups / name).write_text("x")
    with pytest.warns(RuntimeWarning, match=r"are left out \(1 \.csv, 2 \.jpg\)"):
        assert len(hr.open(groups)) == 40


def test_files_of_row_groups_are_counted_as_files(groups: Path) -> None:
    assert run_json("verify", groups)["files"] == 2
    assert run_json("inspect", groups)["files"] == 2
    assert "40 samples in 2 files" in run("verify", groups).stdout


def test_samples_of_row_groups_are_read_by_one_reader(
    groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = hr.open(groups)
    made: list[Any] = []
    stored_reader = hr.Dataset.stored_reader

    def counted(self: hr.Dataset, *arguments: int, **named: int) -> Any:
        made.append(arguments)
        return stored_reader(self, *arguments, **named)

    monkeypatch.setattr(hr.Dataset, "stored_reader", counted)
    for number in (3, 30, 39, 0, 17):
        assert dataset[number]["n"] == number % 20
    assert len(made) == 1
    with hr.Loader(dataset, 4) as loader:
        assert len(list(loader)) == 10
    assert dataset[5]["n"] == 5
    assert len(made) == 2
    child = os.fork()
    if child == 0:
        os._exit(0 if dataset[6]["n"] == 6 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_an_error_of_a_row_group_names_its_file_once_and_nothing_internal(
    groups: Path, order: Any
) -> None:
    path = groups / "1.parquet"
    dataset = hr.open(groups)
    data, status = bytearray(path.read_bytes()), path.stat()
    data[4:200] = bytes(196)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(errors.DataLossError) as read:
        list(dataset)
    with (
        hr.Loader(dataset, 4, order=order) as loader,
        pytest.raises(errors.DataLossError) as loaded,
    ):
        list(loader)
    assert str(read.value).count(str(path)) == str(loaded.value).count(str(path)) == 1
    assert f"reading {path} bytes" in str(loaded.value)
    for text in map(str, (read.value, loaded.value)):
        assert "%" not in text
        assert "parquet:" not in text.replace(f"{path}:", "").replace("1.parquet:", "")
    with hr.Loader(dataset, 4, order=order) as loader:
        explained = str(loader.explain(0))
    assert str(groups) in explained
    assert "parquet:" not in explained.replace(".parquet:", "")
    assert "rowgroups" not in explained


def test_the_core_has_a_number_for_each_of_its_errors() -> None:
    of_python = {"HeadraceError", "TransformError", "WorkerLostError"}
    assert set(_core.status_codes()) == set(errors.__all__) - of_python
    assert len(set(_core.status_codes().values())) == len(_core.status_codes())
