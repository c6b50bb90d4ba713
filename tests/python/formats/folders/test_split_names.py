"""Which names are those of splits: of folders beside classes, of one folder, of flat images."""

from __future__ import annotations

import os
import warnings
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from split_data import calls, picture, refusal

import headrace as hr
from headrace.formats._folders.splits import splits_of_folders, splits_of_samples


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def images(folder: Path, *classes: str) -> Path:
    for number, each in enumerate(classes):
        (folder / each).mkdir(parents=True)
        for i in range(2):
            (folder / each / f"{i}.png").write_bytes(picture(10 * number + i))
    return folder


def sounds(folder: Path, *classes: str) -> Path:
    for each in classes:
        (folder / each).mkdir(parents=True)
        with wave.open(str(folder / each / "a.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(64))
    return folder


SPLITS = [
    ("train", "val", "test"),
    ("Train", "Test"),
    ("TRAIN", "VALID"),
    ("train2017", "val2017", "annotations"),
    ("train", "val", "docs"),
    ("Training Set", "Test Set"),
    ("train data", "test data"),
    ("images_train", "images_val"),
    ("seg_train", "seg_test", "seg_pred"),
    ("asl_alphabet_train", "asl_alphabet_test"),
    ("trainA", "trainB", "testA", "testB"),
    ("train-clean-100", "dev-clean", "test-other"),
]

CLASSES = [
    ("plane", "train"),
    ("bike", "bus", "car", "test", "train"),
    ("eval board", "test tube", "train"),
    ("eval board", "resistor", "test tube"),
    ("test tube", "train station"),
    ("eval_board", "resistor", "test_tube"),
    ("test-kit", "test-tube", "train-track", "x"),
    ("DevBoard", "Resistor", "TestTube"),
    ("bullet train", "steam train"),
    ("testament", "trainer"),
]


@pytest.mark.parametrize("names", SPLITS)
def test_folders_with_names_of_splits_are_refused(names: Sequence[str], tmp_path: Path) -> None:
    for each in names:
        images(tmp_path / "data" / each, "ant", "bee")
    message = refusal(tmp_path / "data")
    assert "several splits: " in message
    for call in calls(message):
        assert eval(call).classes == ("ant", "bee")
    assert "format='folder' takes them as classes" in message


@pytest.mark.parametrize("names", CLASSES)
def test_folders_with_such_words_among_others_are_classes(
    names: Sequence[str], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = hr.open(images(tmp_path / "data", *names))
    assert dataset.classes == tuple(sorted(names))
    assert [int(each["label"]) for each in dataset] == sorted([*range(len(names))] * 2)
    found = hr.open(sounds(tmp_path / "sounds", *names))
    assert found.classes == tuple(sorted(names))


@pytest.mark.parametrize(
    "names",
    [
        ("eval_board", "test_tube"),
        ("test_negative", "test_positive"),
        ("test_drive", "train_station"),
    ],
)
def test_all_folders_of_such_words_are_refused_first_with_the_call_for_classes(
    names: Sequence[str], tmp_path: Path
) -> None:
    message = refusal(images(tmp_path / "data", *names))
    assert f"its folders may be classes or splits, by their names: {', '.join(names)}" in message
    as_classes, by_split, by_path = (eval(each) for each in calls(message))
    assert as_classes.classes == names
    assert len(as_classes) == 4
    assert len(by_split) == len(by_path) == 2
    assert "classes" not in refusal(tmp_path / "data", split="x")


def test_names_decide_alike_for_any_folder() -> None:
    assert not splits_of_folders("/x", ["train"])
    assert splits_of_folders("/x", ["train"], any_other=True).names == "train"
    assert splits_of_folders("/x", [".git", "test", "train"]).names == "test, train"


# One folder.


@pytest.mark.parametrize("skip", ["/val", "val", "v*"])
@pytest.mark.parametrize("name", ["train", "Train", "train2017"])
def test_a_split_that_skip_leaves_is_no_class(skip: str, name: str, tmp_path: Path) -> None:
    for each in (name, "val"):
        images(tmp_path / "data" / each, "ant", "bee")
    message = refusal(tmp_path / "data", skip=skip)
    assert f"its one folder, {name!r}, is that of a split" in message
    (call,) = calls(message)
    dataset = eval(call)
    assert dataset.classes == ("ant", "bee")
    assert dataset.path == str(tmp_path / "data" / name)
    dataset = hr.open(tmp_path / "data", skip=skip, format="folder")  # As the message says.
    assert dataset.classes == (name,)


def test_other_patterns_of_skip_stay_in_the_call(tmp_path: Path) -> None:
    for each in ("train", "val"):
        images(tmp_path / "data" / each, "ant", "bee")
    (call,) = calls(refusal(tmp_path / "data", skip=["/val", "ant"]))
    assert "skip=['ant']" in call
    assert eval(call).classes == ("bee",)


def test_many_patterns_of_skip_are_counted_and_list_the_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("train", "val"):
        images(tmp_path / "data" / each, "ant", "bee")
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: Any = ".") -> Any:
        listed.append(os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    patterns = [f"{number}.png" for number in range(1000)]
    message = refusal(tmp_path / "data", skip=["/val", *patterns])
    assert listed.count(str(tmp_path / "data")) < 20
    assert f"{tmp_path / 'data/train'}') with the 1,000 other patterns of skip=; " in message
    assert len(message) < 500
    (call,) = calls(message)
    assert eval(call).classes == ("ant", "bee")


def test_a_root_with_one_split_alone_is_refused_with_its_folder(tmp_path: Path) -> None:
    images(tmp_path / "data/train", "ant", "bee")
    (call,) = calls(refusal(tmp_path / "data"))
    assert eval(call).classes == ("ant", "bee")
    assert hr.open(tmp_path / "data", split="train").classes == ("ant", "bee")
    images(tmp_path / "flat", "test")
    (call,) = calls(refusal(tmp_path / "flat"))
    assert eval(call).fields == ("image",)
    sounds(tmp_path / "sounds/train", "ant", "bee")
    (call,) = calls(refusal(tmp_path / "sounds"))
    assert eval(call).classes == ("ant", "bee")


def test_one_class_of_another_name_opens(tmp_path: Path) -> None:
    for number, name in enumerate(("ant", "test tube", "trains", "test_tube")):
        assert hr.open(images(tmp_path / str(number), name)).classes == (name,)


# Flat folders.

FLAT = {
    "numbered": (["train_0.png", "train_1.png", "test_0.png"], "train"),
    "behind": (["0_train.png", "1_train.png", "0_val.png"], "train"),
    "coco": (["COCO_train2014_1.png", "COCO_train2014_2.png", "COCO_val2014_1.png"], "train"),
    "of a name": (["mnist-test-1.png", "mnist-training-1.png", "mnist-training-2.png"], "training"),
    "with others": (["logo.png", "test1.png", "train1.png", "train2.png"], "train"),
}


@pytest.mark.parametrize("case", FLAT)
def test_flat_images_of_several_splits_are_refused(case: str, tmp_path: Path) -> None:
    names, split = FLAT[case]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(picture(number))
    (tmp_path / "README.md").write_text("x")
    message = refusal(tmp_path)
    assert "several splits: " in message
    by_split, by_path, *together = (eval(each) for each in calls(message))
    wanted = [picture(at) for at, name in enumerate(names) if split in name]
    for dataset in (by_split, by_path):
        assert [dataset.read(at)["image"] for at in range(len(dataset))] == wanted
    assert len(hr.open(tmp_path, split=split)) == 2
    assert len(hr.open(tmp_path / "*.png")) == len(names)
    assert [len(each) for each in together] == [len(names)]


@pytest.mark.parametrize(
    "names",
    [
        ("train_0.png", "car_0.png", "bus_0.png"),
        ("test tube 1.png", "eval board 2.png"),
        ("train_1.png", "train_2.png"),
        ("testament.png", "trainer.png"),
        ("test_tube_1.png", "train_wreck_1.png", "cat.png"),
    ],
)
def test_flat_images_with_such_words_open(names: Sequence[str], tmp_path: Path) -> None:
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(picture(number))
    dataset = hr.open(tmp_path)
    assert dataset.format == "media"
    wanted = [picture(names.index(each)) for each in sorted(names)]
    assert [dataset.read(at)["image"] for at in range(len(dataset))] == wanted


def test_many_flat_images_are_sampled_evenly() -> None:
    names = [f"{split}_{i:06}.png" for split in ("test", "train") for i in range(30_000)]
    found = splits_of_samples("/x", names, any_other=False)
    assert {part: len(each) for part, each in found.parts.items()} == {
        "test": 30_000,
        "train": 30_000,
    }


def test_the_files_that_are_not_looked_at_are_of_their_splits_too() -> None:
    """Names whose parts beside the word all differ, as hashes do."""
    hashes = ["".join("abcdefghij"[int(digit)] for digit in f"{i:05}") for i in range(15_000)]
    names = [f"{split}_{each}.png" for each in hashes for split in ("test", "train")]
    for asked in (False, True):
        found = splits_of_samples("/x", names, any_other=asked)
        assert found.parts == {"test": tuple(names[::2]), "train": tuple(names[1::2])}


def test_splits_of_many_names_that_no_pattern_tells_are_refused_in_short(tmp_path: Path) -> None:
    words = ["apple", "berry", "cherry", "date", "elder", "fig"]
    names = [f"{each}_{split}_{each}.png" for each in words for split in ("test", "train")]
    for number, each in enumerate(names):
        (tmp_path / each).write_bytes(picture(number))
    message = refusal(tmp_path)
    assert "several splits: test, train" in message
    assert "apple_train" not in message
    by_split, together = (eval(each) for each in calls(message))
    pixels = [picture(names.index(f"{each}_train_{each}.png")) for each in words]
    assert [each["image"] for each in by_split] == pixels
    assert len(together) == len(names)
