"""Folders that look like class folders and are something else: opened, or refused with calls that
work."""

from __future__ import annotations

import csv
import json
import pickle
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run_json
from format_checks import check_rows
from split_data import KINDS, NAMES, WINDOWS, calls, numbers_of, picture, refusal, write

import headrace as hr
from headrace import errors
from headrace.formats import Arrays, Format, HuggingFace, Parquet, TFRecord, WebDataset


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def images(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (folder / name).write_bytes(picture(number))
    return folder


def sound(path: Path, number: int, frames: int = 30) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.full(frames, 1000 * number, "<i2").tobytes())


# Folders without classes, and of sounds.


@pytest.mark.parametrize("beside", [(), ("README.md", "LICENSE", ".DS_Store")])
def test_a_flat_folder_of_images_opens_without_labels(
    beside: tuple[str, ...], tmp_path: Path
) -> None:
    folder = images(tmp_path / "data", "b.png", "a.png", "c.jpg")
    for name in beside:
        (folder / name).write_text("x")
    dataset, own = check_rows(folder)
    assert dataset.fields == ("image",)
    assert [row["image"] for row in own] == [picture(1), picture(0), picture(2)]
    assert pickle.loads(pickle.dumps(dataset)).fingerprint == dataset.fingerprint
    assert len(hr.open(folder / "*.png")) == 2
    assert run_json("inspect", folder)["samples"] == 3
    images(folder, "a0.png")
    assert len(hr.open(folder)) == 4
    with hr.Loader(folder, 4, transform=hr.image.resize(4), output="numpy") as loader:
        (batch,) = loader
        assert batch.image.shape == (4, 3, 4, 4)


def test_images_with_something_about_each_are_refused(tmp_path: Path) -> None:
    folder = images(tmp_path / "data", "a.png", "b.png")
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("a caption")
    message = refusal(folder)
    assert "a.txt beside a.png" in message
    (call,) = calls(message)
    assert len(eval(call)) == 2


@pytest.mark.parametrize("depth", ["", "more/"])
def test_class_folders_of_sounds_open(depth: str, tmp_path: Path) -> None:
    for number, name in enumerate(("no", "yes", "go")):
        for i in range(3):
            sound(tmp_path / "data" / name / f"{depth}{i}.wav", number, 30 + i)
    (tmp_path / "data/testing_list.txt").write_text("x")
    dataset, own = check_rows(tmp_path / "data")
    assert dataset.fields == ("audio", "label")
    assert dataset.classes == ("go", "no", "yes")
    assert [int(row["label"]) for row in own] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for row in dataset:
        frames, rate = hr.audio.decode(np.frombuffer(row["audio"], np.uint8))
        number = ("no", "yes", "go").index(dataset.classes[row["label"]])
        assert rate == 8000
        assert np.allclose(frames, number * 1000 / 32768)
    whole = hr.audio.whole(8000)
    with hr.Loader(
        dataset, 9, shuffle=False, transform=whole, output=hr.Output(ragged="list")
    ) as loader:
        (batch,) = loader
        assert [len(each) for each in batch.audio] == [30, 31, 32] * 3


def test_a_flat_folder_of_sounds_opens(tmp_path: Path) -> None:
    for number in range(3):
        sound(tmp_path / "data" / f"{number}.wav", number)
    dataset, _ = check_rows(tmp_path / "data")
    assert dataset.fields == ("audio",)
    images(tmp_path / "data", "a.png")
    found = [eval(each) for each in calls(refusal(tmp_path / "data"))]
    assert [each.fields for each in found] == [("audio",), ("image",)]
    assert [len(each) for each in found] == [3, 1]


def test_splits_of_sounds_and_of_flat_images(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images(tmp_path / "flat" / split, "a.png", "b.png")
        for name in ("no", "yes"):
            sound(tmp_path / "sounds" / split / name / "a.wav", 1)
    for folder, fields in (("flat", ("image",)), ("sounds", ("audio", "label"))):
        message = refusal(tmp_path / folder)
        assert "several splits: test, train" in message
        for call in calls(message):
            assert eval(call).fields == fields
            assert len(eval(call)) == 2
    assert hr.open(tmp_path / "flat", format="folder").classes == ("test", "train")
    assert hr.open(tmp_path / "sounds", format="media").classes == ("test", "train")


# Data below, and tables beside.


@pytest.mark.parametrize("case", ["tar", "tfds", "parquet", "arrow", "npz", "csv"])
def test_data_in_folders_are_named(case: str, tmp_path: Path) -> None:
    kind, names = NAMES[case]
    rows: list[int] = []
    for part in ("a", "b"):
        write(tmp_path / "data" / part, kind, {"train": names["train"]})
        rows += write(tmp_path / "data" / part, kind, {"train": names["train"]})["train"]
    if kind == "csv":  # The images of a table make class folders.
        return
    (call,) = calls(refusal(tmp_path / "data"))
    assert numbers_of(eval(call), kind) == rows


@pytest.mark.parametrize(
    ("case", "row"),
    [
        ("tar", WebDataset(members=("cls",))),
        ("tfds", TFRecord()),
        ("parquet", Parquet()),
        ("arrow", HuggingFace()),
        ("npz", Arrays()),
        ("bin", WINDOWS),
    ],
)
def test_files_below_of_a_given_format_are_named(case: str, row: Format, tmp_path: Path) -> None:
    kind, names = NAMES[case]
    rows: list[int] = []
    for part in ("a", "b/c"):
        rows += write(tmp_path / "data" / part, kind, {"train": names["train"]})["train"]
    message = refusal(tmp_path / "data", format=row)
    (call,) = calls(message)
    assert "**" in call
    assert sorted(numbers_of(eval(call), kind)) == sorted(rows)
    (tmp_path / "none/a").mkdir(parents=True)
    with pytest.raises(errors.HeadraceError):
        hr.open(tmp_path / "none", format=row)


def test_data_at_several_depths_are_named(tmp_path: Path) -> None:
    KINDS["tar"][0](images(tmp_path / "data/a") / "a.tar", [1])
    KINDS["tar"][0](images(tmp_path / "data/a/b") / "b.tar", [2])
    message = refusal(tmp_path / "data")
    (call,) = calls(message)
    assert "**/*.tar" in call
    assert sorted(numbers_of(eval(call), "tar")) == [1, 2]


def test_the_one_folder_with_data_is_named(tmp_path: Path) -> None:
    """As a repository of Hugging Face's Hub is downloaded."""
    kind, names = NAMES["hub"]
    write(tmp_path / "one/data", kind, {"train": names["train"]})
    rows = write(tmp_path / "two/data", kind, names)
    (tmp_path / "one/README.md").write_text("x")
    (call,) = calls(refusal(tmp_path / "one"))
    assert len(eval(call)) == 6
    found = [eval(each) for each in calls(refusal(tmp_path / "two"))]
    assert [numbers_of(each, kind) for each in found] == [rows["train"]] * len(found)


@pytest.mark.parametrize("below", ["img/", ""])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_table_beside_the_folder_of_its_files_is_named(
    suffix: str, below: str, tmp_path: Path
) -> None:
    names = [f"{i}.png" for i in range(4)]
    images(tmp_path / "img", *names)
    with (tmp_path / f"items{suffix}").open("w", newline="") as file:
        if suffix == ".jsonl":
            file.writelines(json.dumps({"file": below + x, "n": 5}) + "\n" for x in names)
        else:
            writer = csv.writer(file, delimiter="," if suffix == ".csv" else "\t")
            writer.writerows([("file", "n"), *((below + x, 5) for x in names)])
    message = refusal(tmp_path)
    assert "a table and the folder of its files" in message
    (call,) = calls(message)
    assert ("folder='img'" in call) == (below == "")
    assert [int(row["n"]) for row in eval(call)] == [5] * 4
    assert hr.open(tmp_path, format="folder").classes == ("img",)
    images(tmp_path / "img2", *names)  # Then they may be classes, beside a list of files.
    assert hr.open(tmp_path).classes == ("img", "img2")


def test_a_table_without_names_beside_sounds_leaves_them(tmp_path: Path) -> None:
    """As LJSpeech lies on disk."""
    for number in range(3):
        sound(tmp_path / "data/wavs" / f"LJ00{number}.wav", number)
    text = "".join(f"LJ00{i}|a text|the text\n" for i in range(3))
    (tmp_path / "data/metadata.csv").write_text(text)
    (call,) = calls(refusal(tmp_path / "data"))
    assert len(eval(call)) == 3


# Images, and files about each.


def test_folders_of_yolo_are_named(tmp_path: Path) -> None:
    for split in ("train", "val"):
        images(tmp_path / "images" / split, "a.png", "b.png")
        (tmp_path / "labels" / split).mkdir(parents=True)
        (tmp_path / "labels" / split / "a.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (tmp_path / "data.yaml").write_text("names: [ant]")
    message = refusal(tmp_path)
    assert "a YOLO dataset: images/ beside labels/" in message
    (call,) = calls(message)
    assert len(eval(call)) == 2


def test_splits_of_yolo_are_named(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        images(tmp_path / split / "images", "a.png", "b.png")
        (tmp_path / split / "labels").mkdir()
        (tmp_path / split / "labels/a.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    message = refusal(tmp_path)
    assert "several splits: train, valid" in message
    assert "a YOLO dataset" in message
    (call,) = calls(message)
    assert len(eval(call)) == 2


def test_a_folder_of_voc_is_named(tmp_path: Path) -> None:
    images(tmp_path / "JPEGImages", "a.jpg", "b.jpg")
    for name in ("Annotations", "ImageSets/Main"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "Annotations/a.xml").write_text("<annotation/>")
    (tmp_path / "ImageSets/Main/train.txt").write_text("a\n")
    message = refusal(tmp_path)
    assert "as Pascal VOC's: JPEGImages/ beside Annotations/" in message
    (call,) = calls(message)
    assert len(eval(call)) == 2


def test_masks_beside_images_are_no_class(tmp_path: Path) -> None:
    for name in ("images", "masks"):
        images(tmp_path / name, "a.png", "b.png")
    message = refusal(tmp_path)
    assert "images and their masks" in message
    assert "format='folder' takes them as classes" in message
    assert hr.open(tmp_path, format="folder").classes == ("images", "masks")


def test_a_folder_of_coco_is_named(tmp_path: Path) -> None:
    for split in ("train2017", "val2017"):
        images(tmp_path / split, "a.png")
        (tmp_path / "annotations").mkdir(exist_ok=True)
        content: dict[str, Any] = {
            "images": [{"id": 1, "file_name": "a.png", "height": 3, "width": 4}],
            "categories": [{"id": 1, "name": "ant"}],
            "annotations": [
                {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2], "iscrowd": 0}
            ],
        }
        path = tmp_path / "annotations" / f"instances_{split}.json"
        path.write_text(json.dumps(content))
    (call,) = calls(refusal(tmp_path))
    assert "instances_train2017.json" in call
    assert "boxes" in eval(call).fields
    assert hr.open(tmp_path, split="val").fields == ("image",)
    found = [eval(each) for each in calls(refusal(tmp_path / "annotations"))]
    assert ["boxes" in each.fields for each in found] == [True, True]


def test_class_folders_are_opened_as_before(tmp_path: Path) -> None:
    for number, name in enumerate(("ant", "bee", "labels", "train")):
        images(tmp_path / name / ("more" if number % 2 else ""), "a.png")
    (tmp_path / "list.csv").write_text("file\nant/a.png\n")
    assert hr.open(tmp_path).classes == ("ant", "bee", "labels", "train")
    (tmp_path / "docs").mkdir()
    with pytest.raises(errors.InvalidArgumentError, match="folders without an image"):
        hr.open(tmp_path)
    for name in ("gif", "other"):
        images(tmp_path / "gifs" / name, "a.gif")
    assert "headrace does not decode GIF" in refusal(tmp_path / "gifs")


def test_images_with_the_file_of_coco_are_named(tmp_path: Path) -> None:
    """As Roboflow exports them."""
    for split in ("train", "valid"):
        images(tmp_path / split, "a.png", "b.png")
        found = [{"id": i, "file_name": name} for i, name in enumerate(("a.png", "b.png"))]
        content = {"images": found, "annotations": [], "categories": []}
        (tmp_path / split / "_annotations.coco.json").write_text(json.dumps(content))
    for path in (tmp_path, tmp_path / "train"):
        message = refusal(path)
        (call,) = calls(message)
        assert "train/_annotations.coco.json" in call
        assert len(eval(call)) == 2
        assert ("several splits: train, valid" in message) == (path == tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.mp3", "does not decode MP3; convert the sounds to WAV or FLAC"),
        ("a.mp4", "does not decode video; name the files in a table"),
        ("a.heic", "does not decode HEIC; convert the images"),
        ("train.zip", "does not decode ZIP; unpack it"),
    ],
)
def test_what_is_not_decoded_is_named(name: str, text: str, tmp_path: Path) -> None:
    images(tmp_path / "flat", name)
    images(tmp_path / "classes/ant", name)
    images(tmp_path / "classes/bee", name)
    for path in (tmp_path / "flat", tmp_path / "flat" / name, tmp_path / "classes"):
        assert text in refusal(path)


def test_files_of_systems_and_sums_are_no_data(tmp_path: Path) -> None:
    folder = images(tmp_path / "data", "a.png", "b.png")
    for name in ("Thumbs.db", "desktop.ini", "sums.md5", "README.rst", ".DS_Store"):
        (folder / name).write_text("x")
    assert len(hr.open(folder)) == 2


def test_splits_of_nothing_that_opens_are_named(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images(tmp_path / split, "a.xyz")
    message = refusal(tmp_path)
    assert "several splits: test, train" in message
    assert "no format opens this folder" in message
