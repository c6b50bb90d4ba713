"""Data without a sample, in each format: refused by name when they are opened, or loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run, run_json
from split_data import KINDS

import headrace as hr
from headrace import errors
from headrace.formats import Builder, Coco, Format, Records

NONE = r"it (holds no samples|has no rows)"


def array(path: Path) -> None:
    np.save(path, np.zeros((0, 30), np.float32))


def table(path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), path)


def stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink:
        pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])).close()


def index(path: Path) -> None:
    with Builder(path, root=path.parent) as builder:
        builder.add_field("data", "bytes")


def text(content: str) -> Any:
    return lambda path: path.write_text(content)


def shards(path: Path) -> None:
    path.mkdir()
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": []}))


CASES: dict[str, tuple[Any, Format | None]] = {
    "a.npy": (array, None),
    "a.npz": (lambda path: np.savez(path, x=np.zeros((0, 3)), y=np.zeros(0)), None),
    "a.bin": (text(""), Records(dtype="uint8")),
    "a.arrow": (stream, None),
    "a.parquet": (table, None),
    "a.tar": (lambda path: KINDS["tar"][0](path, []), None),
    "a.tfrecord": (text(""), None),
    "a.csv": (text("image,label\n"), None),
    "a.tsv": (text("image\tlabel\n"), None),
    "a.jsonl": (text(""), None),
    "a.json": (text('{"images": [], "annotations": []}'), Coco()),
    "a.hri": (index, None),
    "mds": (shards, None),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def check(path: Path, row: Format | None) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=NONE) as e:
        list(hr.Loader(hr.open(path, format=row), 4, output="numpy"))
    assert str(path) in str(e.value)


@pytest.mark.parametrize("name", CASES)
def test_data_without_samples_are_named(name: str, tmp_path: Path) -> None:
    write, row = CASES[name]
    write(tmp_path / name)
    check(tmp_path / name, row)


@pytest.mark.parametrize("name", ["a.h5", "a.bin", "a.xyz"])
def test_a_file_of_no_bytes_is_not_taken_for_another_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(path)
    assert f"{path}: this is a file of 0 bytes" in str(caught.value)
    assert str(caught.value).endswith("; copy or write it again")


def test_an_hdf5_dataset_without_rows_is_named(h5py: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros((0, 30))
    check(tmp_path / "a.h5", None)


def test_commands_and_lookups_say_it(tmp_path: Path) -> None:
    array(tmp_path / "a.npy")
    path = tmp_path / "a.npy"
    for command in ("order", "plan"):
        assert f"{path}: it holds no samples" in run(command, path, code=2).stderr
    assert "it has no samples" in run("pack", path, tmp_path / "pack", code=2).stderr
    assert run_json("verify", path)["samples"] == 0
    dataset = hr.open(path)
    assert list(dataset) == []
    for number in (0, -1, 5):
        with pytest.raises(errors.OutOfRangeError, match="it has no samples"):
            dataset[number]
