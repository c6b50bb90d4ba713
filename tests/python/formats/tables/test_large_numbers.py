"""Numbers that a field's type cannot hold: counted where they become infinite, refused in fill=."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from advice import column, formats_in, opened_by_advice
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.formats import Manifest

INF = float("inf")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def lines(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{each}\n" for each in rows))
    return path


def opened(path: Path, row: Manifest | None = None) -> tuple[hr.Dataset, str, dict[str, int]]:
    """The dataset, the text of its warning, and how many of each kind were counted."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = hr.open(path, format=row)
    texts = [str(each.message) for each in caught]
    assert len(texts) <= 1, texts
    return dataset, "".join(texts), {each.kind: each.count for each in dataset.report}


LISTS = {
    "a vector": ("[1.0, 1e400]", [1.0, INF]),
    "a matrix": ("[[1.0, 2.0], [-1e400, 4.0]]", [[1.0, 2.0], [-INF, 4.0]]),
    "whole numbers, too": ("[1, 1e999]", [1.0, INF]),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_that_becomes_infinite_is_counted_and_stays_as_text(
    case: str, tmp_path: Path
) -> None:
    text, value = LISTS[case]
    plain = json.dumps(np.zeros(np.shape(value)).tolist())
    path = lines(tmp_path / "a.jsonl", f'{{"v": {plain}}}', f'{{"v": {text}}}')
    dataset, warning, counts = opened(path)
    assert counts == {"infinite": 1}
    assert "column 'v' at" in warning
    assert "line 2 " in warning
    np.testing.assert_array_equal(dataset[1]["v"], value)
    (row,) = formats_in(warning)
    assert column(hr.open(path, format=row), "v")[1] == text.replace(" ", "")


def test_numbers_kept_as_text_are_as_the_file_has_them(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        '{"x": 1e400, "o": {"a": [-1e999, Infinity, NaN, 0.5]}}',
        '{"x": Infinity, "o": {"a": [1]}}',
    )
    dataset, warning, _ = opened(path, Manifest(text=("x", "o")))
    assert not warning
    assert column(dataset, "x") == ["1e400", "Infinity"]
    assert column(dataset, "o") == ['{"a":[-1e999,Infinity,NaN,0.5]}', '{"a":[1]}']


def test_the_word_in_the_same_line_hides_no_number(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        '{"x": 1e400, "t": "Infinity", "y": Infinity, "v": [Infinity], "o": {"a": -1e400}}',
        '{"x": 1.0, "t": "b", "y": 2.0, "v": [-Infinity, NaN], "o": {"a": 3.0}}',
    )
    dataset, warning, counts = opened(path)
    assert counts == {"infinite": 2}
    assert "column 'x'" in warning
    assert "column 'o_a'" in warning
    assert column(dataset, "y") == [INF, 2.0]
    assert column(dataset, "v")[0] == [INF]


def test_numbers_above_float32_are_counted_and_fit_by_the_advice(tmp_path: Path) -> None:
    numbers = [3.4028234663852886e38, 3.4028235677973366e38, -1e39, 0.5]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["x"], *([each] for each in numbers)])
    with open(tmp_path / "b.csv", "w", newline="") as file:
        csv.writer(file).writerows([["x"], ["9" * 39 + ".0"], ["9" * 400 + "."], ["1.5"]])
    lines(tmp_path / "c.jsonl", *(json.dumps({"x": each}) for each in numbers))
    lines(tmp_path / "d.jsonl", *(json.dumps({"x": [0.5, each]}) for each in numbers))
    wanted = {"a.csv": (2, 0), "b.csv": (1, 1), "c.jsonl": (2, 0), "d.jsonl": (2, 0)}
    for name, (large, infinite) in wanted.items():
        dataset, warning, counts = opened(tmp_path / name, Manifest(floats="float32"))
        assert counts.get("too_large", 0) == large
        assert counts.get("infinite", 0) == infinite
        assert "float32 cannot hold" in warning
        assert dataset[0]["x"].dtype == np.float32
        as_wide, *_ = formats_in(warning)
        kept, _, counts = opened(tmp_path / name, as_wide)
        assert counts.get("too_large", 0) == 0
        assert kept[0]["x"].dtype == np.float64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert column(hr.open(tmp_path / "c.jsonl"), "x") == numbers


def test_infinities_that_a_file_has_itself_are_no_finding_in_float32(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl", '{"x": Infinity, "v": [NaN]}', '{"x": 0.5, "v": [-Infinity]}'
    )
    (tmp_path / "b.csv").write_text("x\ninf\n-Infinity\n0.5\n")
    for each in (path, tmp_path / "b.csv"):
        dataset, warning, counts = opened(each, Manifest(floats="float32"))
        assert not warning
        assert not counts
        assert column(dataset, "x")[0] == INF


@pytest.mark.parametrize(
    ("value", "fill"), [(0.5, 1e39), ([0.5], [1.0, -1e39]), ([1], [2**70]), (0.5, 3.5e38)]
)
def test_a_fill_that_becomes_infinite_is_refused(value: Any, fill: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", json.dumps({"x": value}), json.dumps({"x": None}))
    row = Manifest(floats="float32", fill={"x": fill})
    with pytest.raises(errors.InvalidArgumentError, match=r"cannot hold it|more than 64 bits"):
        hr.open(path, format=row)
    if fill != [2**70]:
        wide = hr.open(path, format=Manifest(fill={"x": fill}))
        assert column(wide, "x") == [value, fill]
        as_said = [INF] if isinstance(fill, list) else INF
        infinite = hr.open(path, format=Manifest(floats="float32", fill={"x": as_said}))
        assert np.all(np.isinf(infinite[1]["x"]))


# Parquet tables that name files: their types differ.

PAIRS = {
    "whole numbers, then fractions": ((1, pa.int64()), (1.5, pa.float64())),
    "float32, then float64": ((1.0, pa.float32()), (1e39, pa.float64())),
    "lists of float32, then of float64": (
        ([1.0], pa.list_(pa.float32())),
        ([1e39], pa.list_(pa.float64())),
    ),
    "lists of whole numbers, then of fractions": (
        ([1], pa.list_(pa.int64())),
        ([1.5], pa.list_(pa.float64())),
    ),
    "int8, then int16": ((1, pa.int8()), (300, pa.int16())),
    "uint8, then int64": ((255, pa.uint8()), (-(2**40), pa.int64())),
}


@pytest.mark.parametrize("case", PAIRS)
def test_tables_of_several_types_keep_the_values_of_each(case: str, tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "a.png")
    pair = PAIRS[case]
    for number, (value, kind) in enumerate(pair):
        table = pa.table({"image": ["a.png"], "v": pa.array([value], kind)})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    for pattern in ("{0,1}", "{1,0}"):
        dataset = hr.open(tmp_path / f"{pattern}.parquet", format=Manifest(floats="float32"))
        assert sorted(column(dataset, "v")) == sorted(value for value, _ in pair)


def test_whole_numbers_that_no_float64_holds_beside_fractions_are_refused(tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "a.png")
    for number, value in enumerate((2**53 + 1, 0.5)):
        pq.write_table(pa.table({"image": ["a.png"], "v": [value]}), tmp_path / f"{number}.parquet")
    for dataset in opened_by_advice(tmp_path / "[01].parquet", Manifest()):
        assert dataset.format == "manifest"
