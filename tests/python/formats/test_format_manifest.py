"""Tables that name a file a row: `hr.formats.Manifest`."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from commands import run_json
from format_checks import check_damage, check_orders, check_rows, check_workers
from manifest_data import ROWS, make_folder, plain_row, rich_row, write

import headrace as hr
from headrace import errors
from headrace.formats import Manifest
from headrace.formats._tables import pieces

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "manifests.md"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "data")


SUFFIXES = ("csv", "tsv", "jsonl", "ndjson", "parquet")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_samples_are_those_of_the_tables_own_reader(folder: Path, suffix: str) -> None:
    row = plain_row if suffix in ("csv", "tsv") else rich_row
    dataset, own = check_rows(write(folder / f"a.{suffix}", [row(i) for i in range(ROWS)]))
    assert dataset.format == "manifest"
    assert dataset.classes == ("ant", "cat", "dog")
    assert dataset.kind("image") == "image"
    assert dataset[4]["label"] == 1
    assert dataset[4]["caption"] == ""
    assert dataset[5]["caption"] == 'a "photo", of 5\nü'
    assert dataset[5]["count"].dtype == np.int64
    assert dataset[5]["score"].dtype == np.float64
    assert len(own) == ROWS
    if row is rich_row:
        assert dataset[7]["objects_bbox"].tolist() == [[1.5, 2, 7, 4]] * 3
        assert dataset[8]["objects_bbox"].shape == (0, 4)
        assert dataset[7]["objects_crowd"].dtype == bool
        assert dataset[7]["vector"].tolist() == [0.5, 7, -7]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_that_come_in_pieces_are_one_table(
    folder: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_ROWS_AT_ONCE", 5)
    row = plain_row if suffix in ("csv", "tsv") else rich_row
    found = [row(i) for i in range(ROWS)]
    for each in found[:12]:
        each["score"] = 3  # Whole numbers in the first pieces.
    dataset, own = check_rows(write(folder / f"a.{suffix}", found), Manifest(split="train"))
    assert len(own) == ROWS - ROWS // 3
    assert dataset[9]["score"].dtype == np.float64


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_byte_order_mark_line_ends_and_empty_lines(folder: Path, suffix: str) -> None:
    path = write(folder / f"a.{suffix}", [plain_row(i) | {"caption": "x"} for i in range(ROWS)])
    if suffix != "parquet":
        text = path.read_text()
        path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\n\n").encode())
    assert len(check_rows(path)[1]) == ROWS


def test_parquet_says_the_types_of_numbers(folder: Path) -> None:
    boxes = pa.list_(pa.list_(pa.float32(), 2))
    table = pa.table(
        {
            "file": [f"images/{i}.jpg" for i in range(ROWS)],
            "small": pa.array(range(ROWS), pa.uint8()),
            "boxes": pa.array([[[1, 2]] * (i % 3) for i in range(ROWS)], boxes),
            "kind": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        }
    )  # fmt: skip
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    dataset, _ = check_rows(folder / "a.parquet")
    assert dataset[1]["small"].dtype == np.uint8
    assert (dataset[2]["boxes"].dtype, dataset[2]["boxes"].shape) == (np.float32, (2, 2))
    assert dataset[3]["kind"] == "b"


def test_image_and_mask_and_pairs(folder: Path) -> None:
    images = [f"images/{i}.jpg" for i in range(ROWS)]
    found = [
        {"image": each, "mask": each.replace("jpg", "png"), "image_2": other}
        for each, other in zip(images, reversed(images), strict=True)
    ]
    dataset, own = check_rows(write(folder / "pairs.csv", found))
    assert dataset.fields == ("image", "mask", "image_2")
    assert own[3]["image_2"] == (folder / f"images/{ROWS - 4}.jpg").read_bytes()
    assert dataset.index.object_count == 2 * ROWS  # Each image is one object.


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        (["file_name"], ["image"]),
        (["path", "image_id"], ["image", "image_id"]),
        (["path", "mask_file"], ["image", "mask"]),
        (["image", "image_path"], ["image", "image_path"]),
        (["left_image_path", "right_image_path"], ["left_image", "right_image"]),
        (["Photo", "filename"], ["Photo", "image"]),
    ],
)
def test_names_of_fields(folder: Path, columns: list[str], fields: list[str]) -> None:
    found = [
        {each: str(i) if each == "image_id" else f"images/{i}.jpg" for each in columns}
        for i in range(3)
    ]
    assert list(hr.open(write(folder / "a.csv", found)).fields) == fields


def test_files_that_are_no_images_are_bytes(folder: Path) -> None:
    dataset, _ = check_rows(
        write(folder / "a.csv", [{"path": f"images/{i}.wav"} for i in range(3)])
    )
    assert dataset.fields == ("file",)
    assert dataset.kind("file") == "bytes"


def test_every_order_with_tiers_and_resumes_and_workers(folder: Path, tmp_path: Path) -> None:
    found = [rich_row(i) | {"file": f"images/{i}.wav"} for i in range(ROWS)]
    row = Manifest(paths={"sound": "file"}, text=("image_path",))
    dataset, own = check_rows(write(folder / "a.jsonl", found), row)
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)


# Options.


def test_split_takes_its_rows_and_classes_are_those_of_all(folder: Path) -> None:
    found = [plain_row(i) | {"label": "only" if i == 1 else "other"} for i in range(ROWS)]
    path = write(folder / "a.csv", found)
    dataset, own = check_rows(path, Manifest(split="test"))
    assert len(own) == ROWS // 3
    assert "split" not in dataset.fields
    assert dataset.classes == ("only", "other")
    assert "split" in hr.open(path).fields
    with pytest.raises(errors.InvalidArgumentError, match="no row has split 'val'; there are 'tes"):
        hr.open(path, format=Manifest(split="val"))


def test_what_the_other_split_lacks_is_no_fault(folder: Path) -> None:
    found = [plain_row(i) for i in range(ROWS)]
    for row in found:
        if row["split"] == "test":
            row["label"] = row["image_path"] = row["count"] = None
    path = write(folder / "a.jsonl", found)
    assert len(hr.open(path, format=Manifest(split="train"))) == ROWS - ROWS // 3
    with pytest.raises(errors.InvalidArgumentError, match=r"line 1 .*is empty"):
        hr.open(path)


def test_columns_labels_text_and_floats(folder: Path) -> None:
    path = write(folder / "a.jsonl", [rich_row(i) for i in range(ROWS)])
    dataset, _ = check_rows(path, Manifest(columns=("image_path", "caption"), labels="split"))
    assert dataset.fields == ("image", "caption", "label")
    assert dataset.classes == ("test", "train")
    dataset, own = check_rows(path, Manifest(text=("objects", "label"), floats="float32"))
    assert json.loads(own[3]["objects"]) == rich_row(3)["objects"]
    assert dataset[1]["label"] == "cat"
    assert dataset.classes == ()
    assert dataset[2]["vector"].dtype == np.float32


def test_labels_that_are_numbers_stay(folder: Path) -> None:
    found = [{"path": f"images/{i}.jpg", "label": str(7 - i)} for i in range(4)]
    dataset, _ = check_rows(write(folder / "a.csv", found))
    assert [int(each["label"]) for each in dataset] == [7, 6, 5, 4]
    assert dataset.classes == ()


def test_cells_become_numbers_only_if_nothing_is_lost(folder: Path) -> None:
    cells = {
        "zeros": "007", "big": str(2**63), "most": str(2**63 - 1), "least": str(-(2**63)),
        "plus": "+5", "under": "1_000", "real": "1e3", "dot": ".5", "no": "nan", "text": "1 2",
    }  # fmt: skip
    row = check_rows(write(folder / "a.csv", [{"path": "images/1.jpg", **cells}]))[0][0]
    for name in ("zeros", "big", "plus", "under", "text"):
        assert row[name] == cells[name]
    assert (row["most"], row["least"], row["real"], row["dot"]) == (2**63 - 1, -(2**63), 1000, 0.5)
    assert np.isnan(row["no"])


def test_a_folder_for_the_paths(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    found = [{"path": f"{i}.jpg", "n": i} for i in range(ROWS)]
    path = write(tmp_path / "lists/a.csv", found)
    with pytest.raises(errors.NotFoundError, match=r"line 2 .*24 of 24 rows name files that"):
        hr.open(path)
    for each in ("../data/images", str(folder / "images")):
        assert len(check_rows(path, Manifest(folder=each))[1]) == ROWS
    found = [{"path": str(folder / f"images/{i}.jpg"), "n": i} for i in range(ROWS)]
    path = write(tmp_path / "lists/b.csv", found)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"does not lie in .*lists; name a folder"
    ):
        hr.open(path)
    assert len(check_rows(path, Manifest(folder="/"))[1]) == ROWS
    found = [{"path": f"./lists/../data//images/{i}.jpg"} for i in range(ROWS)]
    path = write(tmp_path / "lists/c.csv", found)
    dataset, _ = check_rows(path, Manifest(folder=".."))
    assert dataset.index.object(1)[0] == "data/images/1.jpg"


def test_missing_files_are_refused_with_their_number_or_left_out(folder: Path) -> None:
    path = write(folder / "a.csv", [plain_row(i) for i in range(ROWS)])
    for i in (0, 5, 6):
        (folder / f"images/{i}.jpg").unlink()
    with pytest.raises(
        errors.NotFoundError,
        match=r"a\.csv: line 2 \(byte 44\): 'images/0\.jpg': .*; 3 of 24 rows name files that ",
    ):
        hr.open(path)
    dataset, own = check_rows(path, Manifest(missing="skip"))
    assert len(own) == ROWS - 3
    (finding,) = dataset.report
    assert (finding.kind, finding.count) == ("skipped", 3)
    assert finding.examples == ("images/0.jpg", "images/5.jpg", "images/6.jpg")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("https://a.b/c.jpg", "is a URL"),
        ("images", "is a folder"),
        ("images/1\0.jpg", "no such file"),
        ("x" * 5000 + ".jpg", "no such file"),
        ("images/1.jpg/2.jpg", "no such file"),
        ("\ud800.jpg", "no such file"),
    ],
)
def test_names_of_no_files_say_what_they_are(folder: Path, name: str, message: str) -> None:
    found = [{"path": "images/1.jpg"}, {"path": name}]
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in found))
    with pytest.raises(errors.NotFoundError, match=rf"line 2 .*{message}.*1 of 2 rows"):
        hr.open(path)


def test_a_pipe_is_no_file(folder: Path) -> None:
    os.mkfifo(folder / "images/pipe.jpg")
    path = write(folder / "a.csv", [{"path": "images/1.jpg"}, {"path": "images/pipe.jpg"}])
    with pytest.raises(errors.NotFoundError, match="pipe"):
        hr.open(path)


def test_a_pattern_of_tables_is_one_dataset(folder: Path) -> None:
    for part in range(3):
        write(folder / f"p-{part}.jsonl", [rich_row(i) for i in range(part * 8, part * 8 + 8)])
    dataset, own = check_rows(folder / "p-{0..2}.jsonl")
    assert len(own) == ROWS
    assert dataset.classes == ("ant", "cat", "dog")


def test_the_index_follows_the_table(folder: Path) -> None:
    path = write(folder / "a.csv", [plain_row(i) for i in range(5)])
    assert len(hr.open(path)) == 5
    write(path, [plain_row(i) for i in range(7)])
    assert len(hr.open(path)) == 7
    dataset = hr.open(path)
    (folder / "images/3.jpg").write_bytes(b"other")
    with pytest.raises(errors.FailedPreconditionError, match=r"3\.jpg.*headrace index .*a\.csv"):
        dataset.read(3)
    again = pickle.loads(pickle.dumps(hr.open(path, format=Manifest(split="test"))))
    assert len(again) == 3


# Recognition.


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "manifest.parquet"])
def test_a_folder_with_one_table(folder: Path, name: str) -> None:
    write(folder / name, [plain_row(i) for i in range(ROWS)])
    (folder / "notes.txt").write_text("x")
    dataset, own = check_rows(folder)
    assert (dataset.format, len(own)) == ("manifest", ROWS)
    write(folder / name, [plain_row(i) for i in range(5)])
    assert len(hr.open(folder)) == 5
    write(folder / "manifest.tsv", [plain_row(0)])
    with pytest.raises(errors.InvalidArgumentError, match="looks like a table and the folder of"):
        hr.open(folder)  # Two tables.
    assert hr.open(folder, format="folder").format == "folder"


def test_class_folders_stay_class_folders(folder: Path) -> None:
    for name in ("ant", "bee"):
        (folder / name).mkdir()
        (folder / f"{name}/1.jpg").write_bytes(b"x")
    found = [{"file_name": "ant/1.jpg"}]
    path = write(folder / "metadata.csv", found)
    assert hr.open(folder).format == "folder"
    assert hr.open(path).format == "manifest"
    path.unlink()
    write(folder / "manifest.csv", found)
    assert hr.open(folder).format == "manifest"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tables_without_files_are_samples_themselves(folder: Path, suffix: str) -> None:
    path = write(folder / f"a.{suffix}", [{"text": "a b", "path": "no file"}])
    assert hr.open(path).format == ("parquet" if suffix == "parquet" else "manifest")
    assert hr.open(path)[0] == {"text": "a b", "path": "no file"}
    with pytest.raises(errors.InvalidArgumentError, match="no column names files below"):
        hr.open(path, format=Manifest(folder="images"))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_damage_is_an_error_that_names_the_table(folder: Path, suffix: str) -> None:
    found = [plain_row(i) | {"n": [i]} if suffix != "csv" else plain_row(i) for i in range(4)]
    path = write(folder / f"damaged.{suffix}", found)
    assert len(hr.open(path)) == 4

    def opened() -> hr.Dataset:
        try:
            return hr.open(path, format="manifest")
        except errors.NotFoundError as error:  # A path was changed.
            raise errors.DataLossError(str(error)) from error

    refused = check_damage([path], opened, range, rounds=250 if suffix == "parquet" else 800)
    assert refused > 60


def test_the_page_is_true(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "train.csv", [plain_row(i) for i in range(ROWS)])
    write(
        folder / "pairs.jsonl", [{"a": f"images/{i}.jpg", "b": f"images/{i}.png"} for i in range(9)]
    )
    write(folder / "texts.jsonl", [{"text": "a", "lang": "en"}])
    monkeypatch.chdir(folder)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"hr": hr}
    exec(block, names)
    assert names["pairs"].fields == ("before", "after")


def test_commands_take_options(folder: Path) -> None:
    path = write(folder / "a.csv", [plain_row(i) for i in range(ROWS)])
    shown = run_json("inspect", path, "--format", "manifest", "--option", "split=test")
    assert shown["samples"] == ROWS // 3
