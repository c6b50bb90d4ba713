"""Nulls in Arrow files: `fill=`, `optional=`, and the advice."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from advice import column, opened_by_advice, refusal
from format_checks import check_batch, check_rows, check_workers, loader_of
from rank_scripts import real_packages

import headrace as hr
from headrace.formats import HuggingFace


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


ROWS = 20
ABSENT = (0, 3, 7)
PART = pa.struct([("n", pa.int16()), ("t", pa.string())])

COLUMNS: dict[str, tuple[Any, Any, Any]] = {
    "int8": (pa.int8(), lambda i: i, -1),
    "uint64": (pa.uint64(), lambda i: i, 7),
    "float": (pa.float32(), lambda i: i / 4, float("nan")),
    "half": (pa.float16(), lambda i: np.float16(i), 2.0),
    "bool": (pa.bool_(), lambda i: i % 2 == 0, True),
    "date": (pa.date32(), lambda i: datetime.date(2020, 1, 1 + i), 5),
    "time": (pa.timestamp("us"), lambda i: datetime.datetime(2020, 1, 1, i), 0),
    "text": (pa.string(), lambda i: f"text {i}", ""),
    "large": (pa.large_string(), lambda i: "ü" * i, ""),
    "view": (pa.string_view(), lambda i: "v" * i, ""),
    "bytes": (pa.binary(), lambda i: bytes([i]) * i, ""),
    "fixed": (pa.binary(3), lambda i: bytes([i, 0, 1]), ""),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda i: "ab"[i % 2], "c"),
    "list": (pa.list_(pa.int64()), lambda i: list(range(i % 4)), []),
    "bools": (pa.list_(pa.bool_()), lambda i: [True] * (i % 4), []),
    "boxes": (pa.large_list(pa.list_(pa.float32(), 4)), lambda i: [[i] * 4] * (i % 3), []),
    "lists": (pa.list_(pa.list_(pa.int32())), lambda i: [[i], []], []),
    "texts": (pa.list_(pa.string()), lambda i: ["a", "b" * i], []),
}  # fmt: skip


def written(path: Path, names: list[str], absent: tuple[int, ...] = ABSENT) -> Path:
    columns: dict[str, Any] = {"id": pa.array(range(ROWS), pa.int64())}
    for name in names:
        type, make, _ = COLUMNS[name]
        columns[name] = pa.array([None if i in absent else make(i) for i in range(ROWS)], type)
    return write(path, pa.table(columns))


def write(path: Path, table: Any) -> Path:
    """Of slices: their validity begins inside a byte."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return path


@pytest.mark.parametrize("name", COLUMNS)
def test_each_type_of_column(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "a.arrow", [name])
    assert f"column {name!r}: " in refusal(path)
    filled, optional, without = opened_by_advice(path)
    for each in (filled, optional):
        check_rows(path, each.format_row)
    valid = [i not in ABSENT for i in range(ROWS)]
    assert column(optional, f"{name}_valid") == valid
    assert without.fields == ("id",)
    row = HuggingFace(fill={name: COLUMNS[name][2]}, optional=(name,))
    dataset, own = check_rows(path, row)
    assert dataset.fields == ("id", name, f"{name}_valid")
    assert own[1][name] is not None


def test_parts_of_structs(tmp_path: Path) -> None:
    values = [{"n": 1, "t": "a"}, None, {"n": None, "t": "b"}, {"n": 4, "t": None}]
    path = write(tmp_path / "a.arrow", pa.table({"s": pa.array(values, PART), "x": range(4)}))
    row = HuggingFace(fill={"s.n": -1}, optional=("s.t",))
    dataset, _ = check_rows(path, row)
    assert column(dataset, "s.n") == [1, -1, -1, 4]
    assert column(dataset, "s.t") == ["a", "", "b", ""]
    assert column(dataset, "s.t_valid") == [True, False, True, False]


def test_orders_and_workers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", ["int8", "text", "dictionary", "texts"])
    row = HuggingFace(fill={"int8": 100, "dictionary": "z", "texts": []}, optional=("text",))
    dataset, own = check_rows(path, row)
    for order in ("exact", "epoch"):
        with loader_of(dataset, order) as loader:
            steps = [check_batch(batch, own, dataset.fields) for batch in loader]
        assert sorted(number for step in steps for number in step) == list(range(ROWS))
    row = HuggingFace(columns=("int8", "text"), optional=("int8", "text"))
    check_workers(*check_rows(path, row))


def hidden(values: Any, absent: list[int]) -> Any:
    """The array, where some rows are null whose values stay in the buffers."""
    bits = np.packbits([i not in absent for i in range(len(values))], bitorder="little")
    buffers = [pa.py_buffer(bits.tobytes()), *values.buffers()[1:]]
    children = [values.values] if pa.types.is_nested(values.type) else None
    own = buffers[: 2 if children else 3]
    return pa.Array.from_buffers(values.type, len(values), own, children=children)


def test_null_rows_whose_values_are_in_the_file(tmp_path: Path) -> None:
    columns = {
        "t": hidden(pa.array(["a", "secret", "c"]), [1]),
        "v": hidden(pa.array([[1], [2, 3], [4]]), [1]),
        "n": hidden(pa.array([1, 2, 3]), [1]),
    }
    path = write(tmp_path / "a.arrow", pa.table(columns))
    dataset, _ = check_rows(path, HuggingFace(optional=("t", "v", "n")))
    assert (column(dataset, "t"), column(dataset, "v")) == (["a", "", "c"], [[1], [], [4]])
    assert column(dataset, "n") == [1, 0, 3]
    values = {"x": [1, 2], "b": hidden(pa.array([[True], [False]]), [1])}
    path = write(tmp_path / "b.arrow", pa.table(values))
    assert "null rows have entries" in refusal(path, HuggingFace(optional=("b",)))


@pytest.mark.parametrize("absent", [(), tuple(range(ROWS))])
def test_no_nulls_and_nulls_only(tmp_path: Path, absent: tuple[int, ...]) -> None:
    path = written(tmp_path / "a.arrow", list(COLUMNS), absent)
    dataset, _ = check_rows(path, HuggingFace(optional=tuple(COLUMNS)))
    assert column(dataset, "text_valid") == [not absent] * ROWS


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("int8", 1.5), ("int8", 300), ("int8", "a"), ("bool", 1), ("float", "a"), ("text", "x"),
        ("list", [1]), ("dictionary", 3), ("bytes", "x"), ("texts", None),
    ],
)  # fmt: skip
def test_a_fill_that_no_column_holds_is_refused(tmp_path: Path, name: str, wrong: Any) -> None:
    path = written(tmp_path / "a.arrow", [name])
    assert f"column {name!r}: fill: got {wrong!r}" in refusal(path, HuggingFace(fill={name: wrong}))
    filled, optional, without = opened_by_advice(path, HuggingFace(fill={name: wrong}))
    assert column(filled, "id") == column(optional, "id") == column(without, "id")


def test_rows_of_a_size_and_nulls_in_lists_have_no_stand_in(tmp_path: Path) -> None:
    media = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    cases: dict[str, Any] = {
        "vector": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        "media": pa.array([{"bytes": b"x", "path": None}, None], media),
        "inside": pa.array([[1, None], [2]], pa.list_(pa.int8())),
    }
    for name, values in cases.items():
        path = write(tmp_path / f"{name}.arrow", pa.table({"x": [1, 2], name: values}))
        rows = [None, HuggingFace(optional=(name,))]
        for row in rows if name != "inside" else rows[:1]:
            (without,) = opened_by_advice(path, row)
            assert without.fields == ("x",)


OBJECTS = """
import sys
import datasets, numpy, headrace as hr
folder = sys.argv[1]
rows = {"n": [1, None, 3, 4], "t": ["a", "b", None, "ccc"], "v": [[1], None, [], [2, 3]]}
rows = {name: each * 5 for name, each in rows.items()}
datasets.Dataset.from_dict(rows).save_to_disk(folder)
ds = datasets.load_from_disk(folder).shuffle(seed=3).select(range(15))
try:
    hr.open(ds)
    sys.exit("opened")
except hr.errors.InvalidArgumentError as error:
    way = "format=hr.formats.HuggingFace(fill={'n': 0, 't': '', 'v': []})"
    assert way in str(error), error
row = hr.formats.HuggingFace(fill={"n": -1}, optional=("t", "v"))
saved = datasets.load_from_disk(folder)
for found, own in ((hr.open(ds, format=row), ds), (hr.open(folder, format=row), saved)):
    assert len(found) == len(own)
    for mine, theirs in zip(found, own):
        assert mine["n"] == (-1 if theirs["n"] is None else theirs["n"])
        assert mine["t"] == (theirs["t"] or "")
        assert mine["v"].tolist() == (theirs["v"] or [])
        assert [mine["t_valid"], mine["v_valid"]] == [theirs[k] is not None for k in "tv"]
"""


def test_datasets_of_the_package(tmp_path: Path) -> None:
    packages = [str(real_packages(name)) for name in ("loaders", "trainers")]
    own = str(Path(hr.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*packages, own]), "HF_HUB_OFFLINE": "1"}
    env["HF_HOME"] = str(tmp_path / "home")
    command = [sys.executable, "-c", OBJECTS, str(tmp_path / "saved")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr


def test_former_indexes_stay(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", ["text"], ())
    options = check_rows(path)[0].index.attributes["options"]
    assert options == '{"columns": null, "sounds": [], "split": null}'
