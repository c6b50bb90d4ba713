"""Rows of CSV, TSV and JSON lines that lack a value: `fill=`, `optional=`, and the advice."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from advice import column, formats_in, opened_by_advice, refusal
from format_checks import check_orders, check_rows, check_workers
from manifest_data import ROWS, make_folder

import headrace as hr
from headrace import errors
from headrace.formats import Manifest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """By the csv or the json module; a row may lack columns."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(each) + "\n" for each in rows)
            return path
        names = dict.fromkeys(name for each in rows for name in each)
        writer = csv.DictWriter(file, names, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return path


TABLES = ["a.csv", "a.tsv", "a.jsonl"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("values", "stand_in"),
    [([1, None, 3], 0), ([None, 0.5, None, 2], 0), ([None, None, 7, -1], 0)],
)
def test_numbers_that_rows_lack(
    tmp_path: Path, name: str, values: list[Any], stand_in: int
) -> None:
    rows = [{"text": f"row {i}", "n": each} for i, each in enumerate(values)]
    path = write(tmp_path / name, rows)
    message = refusal(path)
    assert f"column 'n' is empty in {values.count(None)} of {len(values)} rows" in message
    filled, optional, without = opened_by_advice(path)
    wanted = [stand_in if each is None else each for each in values]
    assert column(filled, "n") == column(optional, "n") == wanted
    assert filled.fields == ("text", "n")
    assert column(optional, "n_valid") == [each is not None for each in values]
    assert optional[0]["n_valid"].dtype == np.bool_
    assert without.fields == ("text",)
    for each in formats_in(message):
        check_rows(path, each)


def test_text_lists_bools_and_missing_keys_of_json(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "a", "box": [[1, 2]], "ok": True, "new": 1},
        {"text": None, "box": None, "ok": None},
        {"box": [], "ok": False},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    filled, optional, *_ = opened_by_advice(path, Manifest(columns=("text", "box", "ok", "new")))
    assert column(filled, "text") == column(optional, "text") == ["a", "", ""]
    assert column(filled, "box") == [[[1, 2]], [], []]
    assert column(filled, "ok") == [True, False, False]
    assert column(filled, "new") == [1, 0, 0]
    assert column(optional, "text_valid") == [True, False, False]
    assert column(optional, "box_valid") == [True, False, True]
    row = Manifest(fill={"text": "none", "box": [[0, 0]], "ok": True, "new": -1}, optional=("ok",))
    dataset, _ = check_rows(path, row)
    assert column(dataset, "text") == ["a", "none", "none"]
    assert column(dataset, "box") == [[[1, 2]], [[0, 0]], []]
    assert column(dataset, "ok") == [True, True, False]
    assert column(dataset, "ok_valid") == [True, False, True]
    assert column(dataset, "new") == [1, -1, -1]


@pytest.mark.parametrize("name", TABLES)
def test_labels_that_rows_lack(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [{"x": 1, "label": each} for each in ("b", None, "a")])
    filled, optional, without = opened_by_advice(path)
    assert column(filled, "label") == [1, -100, 0]
    assert filled.classes == optional.classes == ("a", "b")
    assert column(optional, "label_valid") == [True, False, True]
    assert without.fields == ("x",)
    named, _ = check_rows(path, Manifest(fill={"label": "unknown"}))
    assert named.classes == ("a", "b", "unknown")
    assert column(named, "label") == [1, 2, 0]


@pytest.mark.parametrize("name", TABLES)
def test_nan_and_wider_numbers(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [{"age": 34}, {"age": None}, {"age": 9}])
    dataset = hr.open(path, format=Manifest(fill={"age": float("nan")}, floats="float32"))
    assert dataset[0]["age"].dtype == np.float32
    assert np.isnan(dataset[1]["age"])
    assert hr.open(path, format=Manifest(fill={"age": -1}))[1]["age"] == -1


@pytest.mark.parametrize("name", TABLES)
def test_a_fill_that_no_column_holds_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [{"n": 1, "t": "a"}, {"n": None, "t": None}])
    cover = {"n": 0, "t": ""}
    for wrong in ({"n": "x"}, {"t": 5}, {"n": None}, {"n": {"a": 1}}, {"n": [1]}):
        message = refusal(path, Manifest(fill=cover | wrong))
        (name_of,) = wrong
        assert f"fill={{{name_of!r}: {wrong[name_of]!r}}}: the column holds" in message
        assert str(path) in message
        advised = {"n": "fill={'n': 0}", "t": "fill={'t': ''}"}[name_of]
        assert advised in message
    assert len(hr.open(path, format=Manifest(fill=cover))) == 2
    for options in ({"fill": {"no": 1}}, {"optional": ("no",)}):
        message = refusal(path, Manifest(**options))  # type: ignore[arg-type]
        assert "no column 'no' is taken; there are 'n', 't'" in message
    for bad in ({"fill": 3}, {"fill": {1: 2}}, {"optional": "n"}, {"optional": (1,)}):
        with pytest.raises(errors.InvalidArgumentError, match=r"manifest (fill|optional)"):
            hr.open(path, format=Manifest(**bad))  # type: ignore[arg-type]


def test_a_column_of_nulls_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"a": 1, "b": None}, {"a": 2, "b": None}])
    for row in (None, Manifest(optional=("b",))):
        assert "column 'b' has no value in any of 2 rows" in refusal(path, row)
        filled, without = opened_by_advice(path, row)
        assert column(filled, "b") == [0, 0]
        assert without.fields == ("a",)
    path = write(tmp_path / "a.csv", [{"a": 1, "b": None}, {"a": 2, "b": None}])
    assert column(hr.open(path), "b") == ["", ""]
    alone = write(tmp_path / "b.jsonl", [{"b": None}])
    (filled,) = opened_by_advice(alone)
    assert column(filled, "b") == [0]


@pytest.mark.parametrize("name", TABLES)
def test_rows_without_a_file(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path / "data")
    files = ["images/1.jpg", None, "images/3.jpg"]
    path = write(folder / name, [{"path": each, "n": i} for i, each in enumerate(files)])
    assert "column 'path' is empty: it must name a file" in refusal(path)
    (skipping,) = opened_by_advice(path)
    assert column(skipping, "n") == [0, 2]
    assert [(each.kind, each.count) for each in skipping.report] == [("skipped", 1)]
    filled, own = check_rows(path, Manifest(fill={"path": "images/2.jpg"}))
    assert own[1]["image"] == (folder / "images/2.jpg").read_bytes()
    assert filled.kind("image") == skipping.kind("image") == "image"
    (skipping,) = opened_by_advice(path, Manifest(optional=("path",)))
    assert len(skipping) == 2


@pytest.mark.parametrize("name", TABLES)
def test_files_in_a_folder_beside_the_table(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path / "data")
    (folder / "a_first").mkdir()
    path = write(folder / name, [{"filename": f"{i}.jpg", "n": i} for i in range(4)])
    assert "'0.jpg' is in images" in refusal(path)
    found, as_text = opened_by_advice(path)
    assert as_text.fields == ("filename", "n")
    assert [bytes(each["image"]) for each in found] == [
        (folder / f"images/{i}.jpg").read_bytes() for i in range(4)
    ]
    files = ["images/0.jpg", "images/1.jpg", "images/no.jpg"]
    path = write(folder / name, [{"filename": each, "n": i} for i, each in enumerate(files)])
    (found,) = opened_by_advice(path)
    assert column(found, "n") == [0, 1]


def test_a_parquet_table_that_names_files(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "data")
    columns = {
        "path": [f"images/{i}.jpg" for i in range(4)],
        "n": pa.array([1, None, 3, 4], pa.int16()),
        "x": pa.array([None, 0.5, 1, 2], pa.float32()),
        "t": ["a", "b", None, ""],
        "box": pa.array([[1], None, [], [2, 3]], pa.list_(pa.int8())),
    }
    path = folder / "a.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    message = refusal(path)
    for each in formats_in(message):
        check_rows(path, each)
    assert len(formats_in(message)) == 3
    row = Manifest(fill={"n": -1, "x": float("nan"), "t": "-", "box": [9]}, optional=("n",))
    dataset, _ = check_rows(path, row)
    assert (column(dataset, "n"), column(dataset, "t")) == ([1, -1, 3, 4], ["a", "b", "-", ""])
    assert [dataset[1][name].dtype.name for name in ("n", "x", "box")] == [
        "int16", "float32", "int8",
    ]  # fmt: skip
    for wrong in (1.5, 40_000):
        row = Manifest(columns=("path", "n"), fill={"n": wrong})
        assert "the column holds int16" in refusal(path, row)


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"a": None, "a_valid": 1}, {"a": 1, "a_valid": 0}])
    assert "'a' adds the field 'a_valid'" in refusal(path, Manifest(optional=("a",)))
    assert len(hr.open(path, format=Manifest(fill={"a": 0}))) == 2


def test_names_of_files_that_are_elsewhere_may_be_text(tmp_path: Path) -> None:
    rows = [{"path": f"src/{i}.py", "content": f"code {i}"} for i in range(4)]
    path = write(tmp_path / "a.jsonl", rows)
    (as_text,) = opened_by_advice(path)
    assert [dict(each) for each in as_text] == rows
    folder = make_folder(tmp_path / "data")
    path = write(folder / "a.jsonl", [{"image_path": "images/1.jpg", "mask_path": "no/1.png"}])
    (as_text,) = opened_by_advice(path)
    assert as_text.fields == ("image_path", "mask_path")
    kept = hr.open(path, format=Manifest(text=("mask_path",)))
    assert (kept.kind("image"), kept[0]["mask_path"]) == ("image", "no/1.png")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".ndjson"])
def test_tables_of_text_alone_open(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    texts = ["plain", 'a "quote", and\na line', "ü", ""]
    if suffix in (".csv", ".tsv"):
        write(path, [{"id": i, "text": each} for i, each in enumerate(texts)])
    else:
        path.write_text(
            "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts))
        )
    dataset, _ = check_rows(path)
    assert column(dataset, "text") == texts
    assert dataset.format == "manifest"


def test_orders_tiers_resumes_and_workers(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "data")
    rows = [
        {
            "text": f"row {i}" if i % 3 else None,
            "n": i if i % 4 else None,
            "v": [i] * (i % 3),
            "file": f"images/{i}.wav",
        }
        for i in range(ROWS)
    ]
    path = write(folder / "a.jsonl", rows)
    dataset, own = check_rows(path, Manifest(fill={"text": "-"}, optional=("n",)))
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)


def test_a_table_of_text_alone_trains(tmp_path: Path) -> None:
    rows = [{"text": f"row {i}", "n": i if i % 4 else None} for i in range(ROWS)]
    path = write(tmp_path / "a.jsonl", rows)
    with hr.Loader(
        hr.open(path, format=Manifest(optional=("n",))), 5, output=hr.Output(ids=True)
    ) as loader:
        seen = {}
        for batch in loader:
            for number, text, n, valid in zip(
                batch.sample_id, batch.text, batch.n, batch.n_valid, strict=True
            ):
                seen[int(number)] = {"text": text, "n": int(n) if valid else None}
    assert [seen[i] for i in range(ROWS)] == rows


def test_former_indexes_stay(tmp_path: Path) -> None:
    """Options that came later are no part of an index that does not use them."""
    path = write(tmp_path / "a.jsonl", [{"a": 1}])
    attributes = hr.open(path).index.attributes
    before = '{"columns": null, "floats": "float64", "folder": null, "labels": null, '
    before += '"missing": "refuse", "paths": null, "sounds": [], "split": null, "text": []}'
    assert attributes["options"] == before
    other = hr.open(path, format=Manifest(fill={"a": 0})).index.attributes["options"]
    assert json.loads(other) == json.loads(before) | {"fill": {"a": 0}}
