"""Tables that cannot be read as manifests, and options that cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from format_checks import check_rows
from manifest_data import ROWS, Row, make_folder, plain_row, write

import headrace as hr
from headrace import errors
from headrace.formats import Manifest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "data")


def lines(text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "a.csv"
        path.write_bytes(text.encode("latin-1"))
        return path

    return make


def objects(*rows: Row | str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "a.jsonl"
        texts = [each if isinstance(each, str) else json.dumps(each) for each in rows]
        path.write_text("".join(f"{each}\n" for each in texts))
        return path

    return make


FILE = {"path": "images/1.jpg"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lines(""), "line 1 must name the columns; it is empty"),
        (lines("path,n\n"), "it has no rows"),
        (lines("path,path\nimages/1.jpg,2\n"), "names the column 'path' 2 times"),
        (lines(",column1\n1,2\n"), "names the column 'column1' 2 times"),
        (lines("images/1.jpg,2\nimages/2.jpg,3\n"), "cell 2 is '2'; .*add a header"),
        (lines("path,n\nimages/1.jpg\n"), r"line 2 \(byte 7\) has 1 cell, the header 2"),
        (lines('path,n\nimages/1.jpg,"a"b\n'), r"line 2 \(byte 7\): .*RFC 4180"),
        (lines('path,n\n"images/1.jpg,3\n'), r"line 2 \(byte 7\): .*RFC 4180"),
        (lines("path,n\nimages/1.jpg,\xff\n"), r"byte 20: line 2 is not UTF-8"),
        (lines("path,n\nimages/1.jpg," + "9" * 200_000), "field larger than field limit"),
        (lines("path,n\nimages/1.jpg,1\nimages/2.jpg,\n"), r"line 3 .*column 'n' is empty"),
        (lines("path,n\nimages/1.jpg,1\n,2\n"), r"line 3 .*column 'path' is empty: it must name"),
        (lines("path,label\nimages/1.jpg,a\nimages/2.jpg,\n"), r"line 3 .*'label' is empty"),
        (lines("path,n\nimages/1.jpg,9007199254740993\nimages/1.jpg,.5\n"), "cannot hold exactly"),
        (objects(FILE, "[1]"), r"line 2 \(byte 25\) is no JSON object"),
        (objects(FILE, '{"path": '), r"line 2 \(byte \d+\) is no JSON: Expecting value"),
        (objects(FILE, "[" * 100_000), r"line 2 \(byte 25\) is no JSON: RecursionError"),
        (objects(FILE | {"n": 1}, FILE), r"line 2 .*column 'n' is empty"),
        (objects(FILE, FILE | {"n": 1}), r"line 1 .*column 'n' is empty"),
        (objects(FILE | {"n": 1}, FILE | {"n": "a"}), r"holds text here and integer at .*line 1"),
        (objects(FILE | {"n": 1}, FILE | {"n": 2**63}), r"line 2 .*no whole number of 64 bits"),
        (objects(FILE | {"n": [1]}, FILE | {"n": [2**63]}), "a number of more than 64 bits"),
        (objects(FILE | {"n": 1}, FILE | {"n": [1]}), "holds list here and integer at"),
        (objects(FILE | {"n": [[1], [1, 2]]}), "inner lists differ in length: 1 and 2"),
        (objects(FILE | {"n": [[1]]}, FILE | {"n": [[1, 2]]}), r"line 2 .*shape \[2\], in other"),
        (objects(FILE | {"n": [1, [1]]}), "a list of numbers beside lists"),
        (objects(FILE | {"n": [[], []]}), "a list of empty lists"),
        (objects(FILE | {"n": ["a"]}), r"a list of text; keep it as text, format=.*text=\('n'"),
        (objects(FILE | {"n": [True, 1.5]}), "mixes numbers, true and false"),
        (objects(FILE | {"n": {"a": 1}}, FILE | {"n": 3}), "holds object here and integer at"),
        (objects(FILE | {"n_a": 1, "n": {"a": 1}}), "have the same names"),
        (objects(FILE | {"n": "\ud800"}), "no valid Unicode"),
        (objects(FILE, {"path": 3}), r"column 'path' holds integer: it must name a"),
        (objects(FILE | {"label": "a", "x": 1}, FILE | {"label": 1, "x": 1}), "holds text"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_are_refused(
    folder: Path, make: Callable[[Path], Path], message: str
) -> None:
    path = make(folder)
    with pytest.raises(errors.HeadraceError, match=message) as caught:
        hr.open(path, format="manifest")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": {"image": "nope"}}, "paths=: it has no column 'nope'; it has image_path"),
        ({"paths": "image"}, "must be columns by field"),
        ({"columns": ("nope",)}, "columns=: it has no column 'nope'"),
        ({"columns": "nope"}, "must be an iterable"),
        ({"text": (3,)}, "must be names"),
        ({"labels": "nope"}, "labels=: it has no column"),
        ({"missing": "ignore"}, "must be one of 'refuse', 'skip'"),
        ({"floats": "float16"}, "must be one of"),
        ({"folder": "nope"}, "24 of 24 rows"),
        ({"folder": "nope", "missing": "skip"}, "all 24 rows of"),
        ({"labels": "split", "paths": {"label": "image_path"}}, "would be the field 'label'"),
    ],
)
def test_options_that_cannot_be_are_refused(folder: Path, options: Any, message: str) -> None:
    path = write(folder / "a.csv", [plain_row(i) for i in range(ROWS)])
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(path, format=Manifest(**options))


def test_bytes_in_parquet_are_refused_without_reading_them(folder: Path) -> None:
    table = pa.table(
        {"path": ["images/1.jpg"], "data": [b"x"], "when": [np.datetime64("2020", "s")]}
    )
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    with pytest.raises(
        errors.InvalidArgumentError, match=r"row 0: column 'data' holds bytes, no num"
    ):
        hr.open(folder / "a.parquet", format="manifest")
    assert hr.open(folder / "a.parquet").format == "parquet"
    with pytest.raises(errors.InvalidArgumentError, match="'when' holds datetime"):
        hr.open(folder / "a.parquet", format=Manifest(columns=("path", "when")))
    dataset, _ = check_rows(
        folder / "a.parquet", Manifest(columns=("path", "when"), text=("when",))
    )
    assert dataset[0]["when"] == '"2020-01-01 00:00:00"'


def test_memory_does_not_grow_with_rows_that_name_new_files(folder: Path) -> None:
    """Texts and files are passed on in pieces; a longest line has a limit."""
    path = folder / "a.csv"
    path.write_bytes(b"path,n\n" + b"x" * (17 * 2**20))
    with pytest.raises(errors.DataLossError, match="byte 7: line 2 has more than 16,777,216 bytes"):
        hr.open(path, format="manifest")
