"""What is advised where rows have no value opens the dataset, and its fields have those names."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from advice import column, formats_in, opened_by_advice, refusal

import headrace as hr
from headrace import errors
from headrace.formats import HuggingFace, Manifest, Parquet


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# Tensors.


def tensors(shape: list[int], order: list[int] | None, kind: pa.DataType) -> pa.Array:
    """Three, of which the second is null."""
    size = int(np.prod(shape))
    numbers = pa.array(np.arange(3 * size), kind)
    mask = pa.array([False, True, False])
    storage = pa.FixedSizeListArray.from_arrays(numbers, size, mask=mask)
    of_type = pa.fixed_shape_tensor(kind, shape, permutation=order)
    return pa.ExtensionArray.from_storage(of_type, storage)


TENSORS = {
    "a matrix": ([2, 3], None, pa.float32()),
    "three dimensions": ([2, 3, 4], None, pa.int16()),
    "one": ([4], None, pa.float64()),
    "permuted": ([2, 3], [1, 0], pa.int64()),
}


@pytest.mark.parametrize("case", TENSORS)
def test_null_tensors_are_filled_as_advised(case: str, tmp_path: Path) -> None:
    shape, order, kind = TENSORS[case]
    values = tensors(shape, order, kind)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": values, "n": [1, 2, 3]}), path)
    *filled, masked, without = opened_by_advice(path)
    assert bool(filled) == (case != "three dimensions")  # Those are too many numbers to type.
    mine = [shape[each] for each in order] if order else shape
    assert without.fields == ("n",)
    for dataset in (*filled, masked):
        for row in (0, 2):
            stored = np.array(values.storage[row].as_py(), kind.to_pandas_dtype()).reshape(shape)
            np.testing.assert_array_equal(
                dataset[row]["x"], stored.transpose(order) if order else stored
            )
        assert dataset[1]["x"].shape == tuple(mine)
        assert not dataset[1]["x"].any()
    assert column(masked, "x_valid") == [True, False, True]
    own = np.arange(np.prod(mine)).reshape(mine) + 100
    dataset = hr.open(path, format=Parquet(fill={"x": own.tolist()}))
    np.testing.assert_array_equal(dataset[1]["x"], own)
    with pytest.raises(errors.InvalidArgumentError, match="give a value that it can hold") as told:
        hr.open(path, format=Parquet(fill={"x": [7]}))
    (advised,) = (each for each in [str(told.value).rpartition("such as fill=")[2]])
    dataset = hr.open(path, format=Parquet(fill=eval(advised)))
    assert not dataset[1]["x"].any()


# A field that says which rows have a value, where that is a column already.


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_arrow(path: Path, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    ".parquet": write_parquet,
    ".arrow": write_arrow,
    ".jsonl": write_lines,
    ".csv": write_csv,
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("other", [{}, {"y": None}])
def test_no_field_is_advised_that_is_a_column(
    suffix: str, other: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / f"a{suffix}"
    rows: list[dict[str, Any]] = [{"x": 1, "x_valid": 3, **dict.fromkeys(other, 7)}]
    WRITERS[suffix](path, [*rows, {"x": None, "x_valid": 4, **other}])
    message = refusal(path)
    assert "have 'x_valid'" not in message
    for row in formats_in(message):
        if "x" in (row.options()["columns"] or ("x",)):
            assert column(hr.open(path, format=row), "x") == [1, 0]
    opened = [hr.open(path, format=each) for each in formats_in(message)]
    assert len(opened) == (3 if other else 2)
    assert ("y_valid" in opened[1].fields) == bool(other)


VALUES: list[Any] = [3, 0.5, "an ant", [1, 2]]


@pytest.mark.parametrize(
    ("suffix", "value"),
    [(x, y) for x in WRITERS for y in VALUES if x != ".csv" or not isinstance(y, list)],
)
def test_optional_columns_whose_field_is_a_column_are_filled_as_advised(
    suffix: str, value: Any, tmp_path: Path
) -> None:
    path = tmp_path / f"a{suffix}"
    rows = [{"x": value, "x_valid": 1, "y": 2}, {"x": None, "x_valid": 2, "y": 3}]
    WRITERS[suffix](path, rows)
    kind = {".parquet": Parquet, ".arrow": HuggingFace}.get(suffix, Manifest)
    row = kind(optional=("y", "x"), fill={"y": 7})
    (dataset,) = opened_by_advice(path, row)
    assert "'x_valid', which is a column; give rows a value instead" in refusal(path, row)
    empty = {int: 0, float: 0.0, str: "", list: []}[type(value)]
    assert column(dataset, "x") == [value, empty]
    assert column(dataset, "x_valid") == [1, 2]
    assert column(dataset, "y_valid") == [True, True]


def test_all_columns_of_arrow_with_nulls_are_named_at_once(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"n": 1, "text": "a", "whole": 1, "s": {"a": 1}},
        {"n": None, "text": None, "whole": 2, "s": None},
    ]
    write_arrow(tmp_path / "a.arrow", rows)
    message = refusal(tmp_path / "a.arrow")
    assert (
        "column 'n': 1 of 2 rows are null, the first in row 1, as are rows of 'text', 's.a'; "
        in (message)
    )
    filled, masked, without = opened_by_advice(tmp_path / "a.arrow")
    assert [dict(each) for each in filled] == [
        {"n": 1, "text": "a", "whole": 1, "s.a": 1},
        {"n": 0, "text": "", "whole": 2, "s.a": 0},
    ]
    for name in ("n", "text", "s.a"):
        assert column(masked, f"{name}_valid") == [True, False]
    assert without.fields == ("whole",)


def test_a_column_that_is_left_out_takes_no_name(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"x": 1, "x_valid": 2}, {"x": None, "x_valid": 2}])
    _, masked = opened_by_advice(tmp_path / "a.jsonl", Manifest(columns=("x",)))
    assert column(masked, "x_valid") == [True, False]


# Labels.


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("value", ["ant", 3])
def test_labels_that_rows_lack(suffix: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    WRITERS[suffix](path, [{"n": 1, "species": value}, {"n": 2, "species": None}])
    row = Manifest(labels="species")
    message = refusal(path, row)
    assert "have 'label_valid' say which rows have one" in message
    filled, masked, without = opened_by_advice(path, row)
    assert filled.fields == ("n", "label")
    assert masked.fields == ("n", "label", "label_valid")
    assert column(masked, "label_valid") == [True, False]
    assert without.fields == ("n",)
    assert column(masked, "label")[0] == (0 if value == "ant" else 3)


def test_labels_beside_a_column_label_valid(tmp_path: Path) -> None:
    rows = [{"label_valid": 1, "species": "ant"}, {"label_valid": 2, "species": None}]
    write_lines(tmp_path / "a.jsonl", rows)
    row = Manifest(labels="species")
    filled, without = opened_by_advice(tmp_path / "a.jsonl", row)
    assert column(filled, "label_valid") == [1, 2]
    assert without.fields == ("label_valid",)
    with pytest.raises(errors.InvalidArgumentError, match="'label_valid', which is a column"):
        hr.open(tmp_path / "a.jsonl", format=Manifest(labels="species", optional=("species",)))


# Partitions.


def test_columns_of_partitions_stay_in_what_is_advised(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, None], "m": [1, 2, 3], "y": [1, 2, 2], "z": ["a", "b", "b"]})
    pq.write_to_dataset(table, tmp_path / "data", partition_cols=["y", "z"])
    for dataset in opened_by_advice(tmp_path / "data"):
        assert {"m", "y", "z"} <= set(dataset.fields)
        assert sorted(column(dataset, "z")) == ["a", "b", "b"]
    table = pa.table({"n": pa.array([1, 2], pa.uint64()), "m": [1, 2], "y": [1, 2]})
    pq.write_to_dataset(table, tmp_path / "other", partition_cols=["y"])
    (dataset,) = opened_by_advice(tmp_path / "other")
    assert set(dataset.fields) == {"m", "y"}


def test_a_partition_without_a_value_leaves_the_others(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2], "y": [1, None], "z": ["a", "b"]})
    pq.write_to_dataset(table, tmp_path / "data", partition_cols=["y", "z"])
    (dataset,) = opened_by_advice(tmp_path / "data")
    assert dataset.fields == ("n", "z")
    assert sorted(column(dataset, "z")) == ["a", "b"]


# Values of other types.


@pytest.mark.parametrize("given", [b"zz", b"", np.float32(0.5), np.zeros(2)])
def test_fill_that_is_no_json_says_what_to_give(given: Any, tmp_path: Path) -> None:
    kind = pa.binary() if isinstance(given, bytes) else pa.float64()
    kind = pa.list_(kind) if isinstance(given, np.ndarray) else kind
    value = (
        b"a" if isinstance(given, bytes) else [1.5, 2.5] if kind == pa.list_(pa.float64()) else 1.5
    )
    table = pa.table({"b": pa.array([value, None], kind)})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(errors.InvalidArgumentError, match="must be JSON values") as told:
        hr.open(tmp_path / "a.parquet", format=Parquet(fill={"b": given}))
    fill = eval(str(told.value).rpartition("give fill=")[2])
    dataset = hr.open(tmp_path / "a.parquet", format=Parquet(fill=fill))
    wanted = given.tolist() if hasattr(given, "tolist") else given
    assert column(dataset, "b")[1] == wanted


def test_bytes_that_are_no_text_are_refused_with_others(tmp_path: Path) -> None:
    write_arrow(tmp_path / "a.arrow", [{"b": b"a", "n": 1}, {"b": None, "n": 2}])
    for row in (HuggingFace, Parquet):
        with pytest.raises(errors.InvalidArgumentError, match="is no text in UTF-8") as told:
            hr.open(tmp_path / "a.arrow", format=row(fill={"b": b"\xff"}))
        assert "fill={'b': ''}, or optional=('b',)" in str(told.value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = hr.open(tmp_path / "a.arrow", format=HuggingFace(fill={"b": ""}))
    assert [bytes(each["b"]) for each in dataset] == [b"a", b""]
