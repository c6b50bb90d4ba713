"""Messages about tables and annotations that are wrong, or change while they are read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from format_checks import formats_in

import headrace as hr
from headrace import errors
from headrace.formats import Coco, Manifest
from headrace.formats._coco import coco
from headrace.formats._tables import pieces, scanned_column

AGAIN = "; copy or write the file again"


def refusal(path: Path, row: Any = None) -> str:
    with pytest.raises(errors.HeadraceError) as caught:
        hr.open(path, format=row)
    return str(caught.value)


# COCO.


def content() -> dict[str, Any]:
    note = {"id": 1, "image_id": 7, "category_id": 3, "area": 2.5, "bbox": [1, 2, 3, 4]}
    return {
        "images": [{"id": 7, "file_name": "a.jpg"}],
        "annotations": [note | {"keypoints": [1, 2, 1]}, note | {"keypoints": [4, 5, 2]}],
        "categories": [{"id": 3, "name": "ant"}],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    where = tmp_path / "coco"
    where.mkdir()
    (where / "a.jpg").write_bytes(b"jpg")
    return where


def write(folder: Path, text: str) -> Path:
    path = folder / "notes.json"
    path.write_text(text)
    return path


def first(found: dict[str, Any], **changes: Any) -> None:
    found["annotations"][0] |= changes


def test_the_annotations_that_are_written_here_open(folder: Path) -> None:
    (sample,) = hr.open(write(folder, json.dumps(content())), format=Coco(folder="."))
    assert sample["keypoints"].tolist() == [[[1, 2, 1]], [[4, 5, 2]]]


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (
            lambda c: first(c, keypoints=[1, 2]),
            '{"id": 1',
            "annotations: its 2 keypoint numbers are no triples; correct the file",
        ),
        (
            lambda c: first(c, area=10**400),
            '{"id": 1',
            "annotations: its area is too large; correct it",
        ),
        (
            lambda c: first(c, category_id="x"),
            '{"id": 1',
            "annotations: its category_id is 'x', no whole number of 64 bits; correct the file",
        ),
        (
            lambda c: c.update(annotations=[{"image_id": 7, "caption": 5}]),
            '{"image_id"',
            "annotations: its caption is no text; correct the file",
        ),
        (
            lambda c: c["categories"].append({"id": 3, "name": "bee"}),
            '{"id": 3, "name": "bee"',
            "categories: id 3, 'bee': twice, or no name; give each category its own",
        ),
        (lambda c: c["images"].append(7), "7]", "images: no object; correct the file"),
    ],
)
def test_annotations_that_say_what_cannot_be(
    folder: Path, change: Callable[[dict[str, Any]], None], place: str, message: str
) -> None:
    found = content()
    change(found)
    text = json.dumps(found)
    path = write(folder, text)
    said = refusal(path, Coco(folder="."))
    assert said == f"indexing {path}: byte {text.index(place):,}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{5: 1}", "byte 2: the name of a member is expected"),
        ('{"a": ' + "[" * 200_000, "byte 7: it is nested too deeply"),
    ],
)
def test_json_that_is_none(folder: Path, text: str, message: str) -> None:
    path = write(folder, text)
    assert refusal(path, Coco(folder=".")) == f"indexing {path}: {message}{AGAIN}"


def test_annotations_that_change_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder, json.dumps(content()))
    real = coco.read_annotations

    def read(where: str, tell: Callable[[int], None]) -> Any:
        found = real(where, tell)
        os.utime(where, ns=(1, 1))
        return found

    monkeypatch.setattr(coco, "read_annotations", read)
    assert refusal(path, Coco(folder=".")) == (
        f"indexing {path}: it changed while it was read; index it again when nothing writes to it"
    )
    monkeypatch.undo()
    assert len(hr.open(path, format=Coco(folder="."))) == 1


# Tables.


def csv(tmp_path: Path, text: str, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def change_between(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    """Writes another table between the two passes over it."""
    real = Manifest._plan

    def plan(row: Manifest, *given: Any) -> Any:
        found = real(row, *given)
        path.write_text(text)
        os.utime(path, ns=(1, 1))
        return found

    monkeypatch.setattr(Manifest, "_plan", plan)


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        (
            "a.csv",
            "text,n\nx,1\n",
            "text,n\nx,y\n",
            "indexing {}: line 2 (byte 7): 'n' is not what it was in a first pass over the table "
            "(ValueError); index it again when nothing writes to it",
        ),
        (
            "a.jsonl",
            '{"text": "x", "n": [1, 2]}\n',
            '{"text": "x", "n": [[1], [2]]}\n',
            "indexing {}: line 1 (byte 0): 'n' is not what it was in a first pass over the table "
            "(of entries of shape [1], in other rows of []); index it again when nothing writes to "
            "it",
        ),
        (
            "a.csv",
            "text,n\nx,1\n",
            "text,n\ny,2\n",
            "indexing {}: the table changed while it was read; index it again when nothing writes "
            "to it",
        ),
    ],
)
def test_tables_that_change_meanwhile(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    before: str,
    after: str,
    message: str,
) -> None:
    path = csv(tmp_path, before, name)
    change_between(monkeypatch, path, after)
    assert refusal(path, Manifest()).startswith(message.format(path))
    monkeypatch.undo()
    assert len(hr.open(path, format=Manifest())) == 1


def test_texts_that_are_too_many_for_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanned_column, "CLASSES_MAX", 2)
    path = csv(tmp_path, "text,label\na,x\nb,y\nc,z\n")
    said = refusal(path, Manifest())
    assert said.startswith(
        f"indexing {path}: line 2 (byte 11): column 'label' has more than 2 different texts, "
        "which are not classes; "
    )
    as_text, without = formats_in(said)
    assert [each["label"] for each in hr.open(path, format=as_text)] == ["x", "y", "z"]
    assert hr.open(path, format=without).fields == ("text",)


def test_a_folder_without_a_table(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert refusal(tmp_path / "data", Manifest()) == (
        f"indexing {tmp_path}/data: the folder has no table, metadata or manifest with a suffix of "
        ".csv, .tsv, .jsonl, .ndjson, .parquet, or several; open the file itself"
    )
    csv(tmp_path / "data", "text\na\n", "x.csv")
    assert len(hr.open(tmp_path / "data" / "x.csv")) == 1


def test_lines_of_one_cell_that_look_like_several(tmp_path: Path) -> None:
    path = csv(tmp_path, "text;n\na;1\n")
    said = refusal(path, Manifest())
    assert said == (
        f"indexing {path}: line 1, 'text;n', is one cell, but looks as if separated by semicolons: "
        "give format=hr.formats.Manifest(delimiter=';'); if it is one cell: give "
        "format=hr.formats.Manifest(delimiter=',')"
    )
    found = re.findall(r"delimiter='(.)'", said)
    of_each = [hr.open(path, format=Manifest(delimiter=each)).fields for each in found]
    assert of_each == [("text", "n"), ("text;n",)]


def test_columns_that_an_option_names_and_the_table_lacks(tmp_path: Path) -> None:
    path = csv(tmp_path, "text,n\na,1\n")
    for option, value in (("fill", {"no": 1}), ("optional", ("no",))):
        row = Manifest(**{option: value})  # type: ignore[arg-type]
        assert refusal(path, row) == (
            f"indexing {path}: {option}=: no column 'no' is taken; there are 'text', 'n'"
        )


def denied(*_: Any, **__: Any) -> Any:
    raise PermissionError(13, "Permission denied")


def test_tables_that_the_system_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    with pytest.raises(errors.FailedPreconditionError) as caught, pieces.opened(str(loop)):
        raise AssertionError
    assert str(caught.value) == (
        f"indexing {loop}: Too many levels of symbolic links; see what is there with `namei -l "
        "PATH`; if its disk fails, copy it again"
    )
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"image_path": ["a.jpg"]}), path)
    monkeypatch.setattr(pyarrow, "OSFile", denied)
    said = refusal(path, Manifest())
    assert said.startswith(f"indexing {path}: Permission denied for user {os.geteuid()}: find ")
    assert said.endswith("refuses with `namei -l PATH`, and chmod it")
