"""Folders COLUMN=VALUE: their columns are fields, as pyarrow's datasets have them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pd
import pyarrow.parquet as pq
import pytest
from format_checks import calls, check_orders, check_rows, check_workers, plain

import headrace as hr
from headrace import errors
from headrace.formats import Parquet

PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False}  # Read without pyarrow.
NULL = "__HIVE_DEFAULT_PARTITION__"


def write(root: Path, *folders: str, rows: int = 2) -> Path:
    """A file in each, with numbers and texts of its own."""
    for number, each in enumerate(folders):
        (root / each).mkdir(parents=True, exist_ok=True)
        x = [10 * number + i for i in range(rows)]
        table = pa.table({"x": x, "s": [f"text {i}" for i in x]})
        pq.write_table(table, root / each / f"{number}.parquet", **PLAIN)
    return root


def by_pyarrow(root: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    dataset = pd.dataset(root, partitioning="hive")
    types = {each.name: str(each.type) for each in dataset.schema}
    rows = [row for file in sorted(dataset.files) for row in of_file(dataset, file)]
    return rows, types


def of_file(dataset: Any, file: str) -> list[dict[str, Any]]:
    (fragment,) = [each for each in dataset.get_fragments() if each.path == file]
    found: list[dict[str, Any]] = fragment.to_table(schema=dataset.schema).to_pylist()
    return found


def check_as_pyarrow(root: Path, path: Path | str | None = None) -> hr.Dataset:
    rows, types = by_pyarrow(root)
    dataset = hr.open(root if path is None else path)
    assert dataset.fields == tuple(types)
    assert len(dataset) == len(rows)
    for mine, theirs in zip(dataset, rows, strict=True):
        for name, kind in types.items():
            wanted = theirs[name] if kind == "string" else np.dtype(kind).type(theirs[name])
            assert plain(mine[name]) == plain(wanted), name
    return dataset


@pytest.mark.filterwarnings("ignore:.*several splits")
@pytest.mark.parametrize(
    "folders",
    [
        ["y=a", "y=b", "y=c"],
        ["year=2024/month=1", "year=2024/month=12", "year=2025/month=2"],
        ["y=01", "y=10"],
        ["y=-5", "y=-0", "y=2147483647", "y=-2147483648"],
        ["y=2147483648", "y=1"],
        ["y=a", "y=1"],
        ["y=+5"],
        ["y= 5"],
        ["y="],
        ["y=0x1F", "y=0X2", "y=0xFFFFFFFF"],
        ["y=0x", "y=-0x1F"],
        ["y=00000000000000001"],
        ["y=a%20b", "y=c%2Fd", "y=e+f", "y=%31"],
        ["a%20b=1"],
        ["y=1=2"],
        ["y=ü", "y=%C3%BC"],
        ["y=2024-01-01", "y=2024-01-02"],
        ["y=1.5"],
        ["y=true", "y=false"],
        ["y=1/y=2"],
        ["y=1/plain", "y=2/plain"],
        ["split=train", "split=test"],
        ["y=1/.hidden=3", "y=1", "y=1/_z=2"],
    ],
)
def test_columns_of_folders_are_those_of_pyarrow(tmp_path: Path, folders: list[str]) -> None:
    check_as_pyarrow(write(tmp_path / "h", *folders))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_pyarrow_writes_is_read_in_every_order(tmp_path: Path, codec: str) -> None:
    draw = np.random.default_rng(3)
    table = pa.table(
        {
            "x": draw.integers(0, 9, 60),
            "text": [f"ü{i}" * (i % 7) for i in range(60)],
            "year": draw.choice([2023, 2024], 60).astype(np.int32),
            "kind": draw.choice(["a/b", "c d", "e"], 60),
        }
    )
    pq.write_to_dataset(
        table, tmp_path / "h", ["year", "kind"], compression=codec, use_dictionary=False
    )
    dataset = check_as_pyarrow(tmp_path / "h")
    assert [each.is_inline for each in dataset.index.fields[-2:]] == [True, True]
    if codec == "none":
        dataset, own = check_rows(tmp_path / "h")
        check_orders(dataset, own, tmp_path)
        check_workers(dataset, own)


@pytest.mark.parametrize(
    "pattern", ["year=*/month=*/*.parquet", "*/*/*.parquet", "year={2024,2025}/month=*/*.parquet"]
)
def test_patterns_that_cross_folders_have_their_columns(tmp_path: Path, pattern: str) -> None:
    root = write(tmp_path / "h", "year=2024/month=1", "year=2024/month=2", "year=2025/month=1")
    dataset = check_as_pyarrow(root, f"{root}/{pattern}")
    assert dataset.fingerprint == hr.open(root).fingerprint


def test_a_pattern_that_finds_one_file_has_its_columns(tmp_path: Path) -> None:
    root = write(tmp_path / "h", "y=a")
    check_as_pyarrow(root, f"{root}/y=*/*.parquet")


def test_what_is_named_is_no_column(tmp_path: Path) -> None:
    """One partition opens as before, by its folder, its file or a pattern in it."""
    root = write(tmp_path / "h", "year=2024/month=1", "year=2024/month=2")
    for path in ("year=2024/month=1", "year=2024/month=1/0.parquet", "year=2024/month=1/*.parquet"):
        assert hr.open(root / path).fields == ("x", "s")
    assert hr.open(root / "year=2024").fields == ("x", "s", "month")
    assert hr.open(f"{root}/year=2024/month=*/*.parquet").fields == ("x", "s", "month")


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    root = write(tmp_path / "h", "y=a/z=1", "y=b/z=2")
    for names in [("z", "x"), ("x",), ("y",), ("s", "z", "y"), ("z",)]:
        dataset, own = check_rows(root, Parquet(columns=names))
        assert dataset.fields == names
        assert len(own) == 4
    assert [int(each["z"]) for each in hr.open(root, format=Parquet(columns=("z",)))] == [
        1,
        1,
        2,
        2,
    ]
    with pytest.raises(errors.InvalidArgumentError, match="column 'w': it has no such column"):
        hr.open(root, format=Parquet(columns=("w",)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hr.open(f"{root}/*/*/*.parquet", format=Parquet(columns=("x",)))


def test_a_column_of_the_files_comes_before_that_of_the_folder(tmp_path: Path) -> None:
    root = write(tmp_path / "h", "x=7")
    assert [int(each["x"]) for each in hr.open(root)] == [0, 1]


def columns_advised(text: str) -> Parquet:
    (found,) = re.findall(r"format=(hr\.formats\.Parquet\(.*?\)\))", text)
    row = eval(found, {"hr": hr})
    assert isinstance(row, Parquet)
    return row


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ([f"y={NULL}", "y=a"], rf"y={NULL}/0\.parquet: column 'y' has no value \(null\) there"),
        (["y=%5F_HIVE_DEFAULT_PARTITION__"], "column 'y' has no value"),
        (["y=1", "z=2"], r"y=1/0\.parquet lies in no folder z=\.\.\., as others of its files do"),
        (["y=1/z=2", "y=2"], r"y=2/1\.parquet lies in no folder z="),
        (["", "y=1"], r"h/0\.parquet lies in no folder y="),
        (["y=%FF"], "the folder y='%FF' is not UTF-8"),
    ],
)
def test_folders_that_do_not_fit_are_refused_and_the_remedy_helps(
    tmp_path: Path, folders: list[str], message: str
) -> None:
    root = write(tmp_path / "h", *folders)
    with pytest.raises(errors.HeadraceError, match=message) as caught:
        hr.open(root)
    dataset = hr.open(root, format=columns_advised(str(caught.value)))
    others = ("y",) if all("y=" in each for each in folders) and "z=" in message else ()
    assert (dataset.fields, len(dataset)) == (("x", "s", *others), 2 * len(folders))


def test_a_folder_that_is_added_is_seen(tmp_path: Path) -> None:
    root = write(tmp_path / "h", "y=a/z=1", rows=2)
    assert len(hr.open(root)) == 2
    write(root / "y=a", "z=1", "z=2")
    assert len(hr.open(root)) == 4
    write(root, "y=c/z=1")
    dataset = check_as_pyarrow(root)
    assert [each["y"] for each in dataset][-1] == "c"


def test_an_index_from_before_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "h", "y=a", "y=b")
    pattern = f"{root}/y=*/*.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("headrace.formats._parquet.parquet.names_of", lambda path, files: [])
        patch.setattr("headrace.formats._hive.partitions.names_of", lambda path, files: [])
        assert hr.open(pattern).fields == ("x", "s")
    assert hr.open(pattern).fields == ("x", "s", "y")


def test_datasets_without_partitions_are_as_before(tmp_path: Path) -> None:
    """Their fingerprints are those of files whose folders have other names."""
    a, b = write(tmp_path / "y=1", ""), write(tmp_path / "plain", "")
    os.utime(a / "0.parquet", ns=(1, 1))
    os.utime(b / "0.parquet", ns=(1, 1))
    assert hr.open(a).fields == ("x", "s")
    assert hr.open(a).fingerprint == hr.open(b).fingerprint


def test_folders_of_images_are_classes_as_before(tmp_path: Path, original: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / "h").mkdir(exist_ok=True)
        (tmp_path / "h" / f"label={name}").symlink_to(original / name)
    assert hr.open(tmp_path / "h").classes == ("label=ant", "label=bee")


FORMATS = ["csv", "ipc", "feather"]


@pytest.mark.parametrize("kind", FORMATS)
def test_partitions_of_other_tables_are_refused_and_the_remedy_helps(
    tmp_path: Path, kind: str
) -> None:
    """The command is typed as the message has it."""
    table = pa.table({"x": [1, 2, 3], "y": ["a", "b", "a"]})
    root = tmp_path / "h"
    pd.write_dataset(table, root, format=kind, partitioning=["y"], partitioning_flavor="hive")
    with pytest.raises(errors.InvalidArgumentError, match="it is a folder of partitions") as caught:
        hr.open(root)
    command, opened = re.findall(r"`python (.*?)`, and open (.*)$", str(caught.value))[0]
    subprocess.run(f"{sys.executable} {command}", shell=True, check=True)
    found = sorted((int(each["x"]), each["y"]) for each in hr.open(opened))
    assert found == [(1, "a"), (2, "b"), (3, "a")]


def test_partitions_of_json_lines_are_refused_and_the_remedy_helps(tmp_path: Path) -> None:
    root = tmp_path / "h"
    for year in (2024, 2025):
        (root / f"year={year}").mkdir(parents=True)
        (root / f"year={year}" / "a.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    with pytest.raises(errors.InvalidArgumentError, match="'year=2024', 'year=2025'") as caught:
        hr.open(root)
    command, opened = re.findall(r"`python (.*?)`, and open (.*)$", str(caught.value))[0]
    subprocess.run(f"{sys.executable} {command}", shell=True, check=True)
    assert sorted(int(each["year"]) for each in hr.open(opened)) == [2024, 2024, 2025, 2025]


def test_a_pattern_of_other_tables_warns_of_the_columns_that_it_leaves_out(tmp_path: Path) -> None:
    root = tmp_path / "h"
    for year in (2024, 2025):
        (root / f"year={year}").mkdir(parents=True)
        (root / f"year={year}" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        (root / f"year={year}" / "a.csv").write_text(f"path,x\nyear={year}/1.png,{year}\n")
    row = hr.formats.Manifest(folder="..")
    with pytest.warns(RuntimeWarning, match=r"folders name 1 column, 'year', left out; of Parquet"):
        dataset = hr.open(f"{root}/year=*/*.csv", format=row)
    assert dataset.fields == ("image", "x")


# Partitions that are splits.

SPLITS = {
    "of one column": (["split"], "split"),
    "below another": (["y", "split"], "split"),
    "above another": (["split", "y"], "split"),
    "of another name": (["subset"], "subset"),
}


@pytest.mark.parametrize("case", SPLITS)
def test_splits_in_a_column_are_one_table_of_which_a_warning_tells(
    case: str, tmp_path: Path
) -> None:
    by, column = SPLITS[case]
    parts = ["train", "train", "test", "val"]
    table = pa.table({"n": [1, 2, 3, 4], column: parts, "y": [5, 6, 5, 6]})
    pq.write_to_dataset(table, tmp_path / "it's [1]", partition_cols=by)
    root = tmp_path / "it's [1]"
    with pytest.warns(RuntimeWarning, match="several splits: test, train, val") as told:
        dataset = hr.open(root)
    (text,) = [str(each.message) for each in told]
    assert f"the column {column!r}" in text
    assert {int(row["n"]): row[column] for row in dataset} == dict(enumerate(parts, 1))
    (call,) = calls(text)
    for chosen in (eval(call), hr.open(root, split="train")):
        assert {int(row["n"]): row[column] for row in chosen} == {1: "train", 2: "train"}
        assert {int(row["y"]) for row in chosen} == {5, 6}
    assert [int(row["n"]) for row in hr.open(root, split="test", format="parquet")] == [3]
    with pytest.raises(errors.InvalidArgumentError, match="has the splits test, train, val"):
        hr.open(root, split="extra")


@pytest.mark.parametrize(
    "values", [["train", "bus", "car"], ["train", "train", "train"], [1, 2, 3]]
)
def test_partitions_that_are_no_splits_open_as_before(values: list[Any], tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, 3], "kind": values})
    pq.write_to_dataset(table, tmp_path / "data", partition_cols=["kind"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = hr.open(tmp_path / "data")
    assert {int(row["n"]): plain(row["kind"]) for row in dataset} == {
        n: plain(np.int32(x) if isinstance(x, int) else x) for n, x in enumerate(values, 1)
    }


def test_files_of_one_name_in_partitions_are_no_set(tmp_path: Path) -> None:
    for number, each in enumerate(("split=train/y=1", "split=train/y=2", "split=test/y=1")):
        (tmp_path / "data" / each).mkdir(parents=True)
        file = tmp_path / "data" / each / "x-00000-of-00001.parquet"
        pq.write_table(pa.table({"n": [number]}), file)
    chosen = hr.open(tmp_path / "data", split="train")
    assert {int(row["n"]): int(row["y"]) for row in chosen} == {0: 1, 1: 2}
    assert chosen.report == ()
