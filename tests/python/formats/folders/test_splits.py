"""Folders of several splits: refused alike in all formats, and opened by split=."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from commands import run, run_json
from rank_scripts import real_packages
from small_datasets import mds
from split_data import (
    KINDS,
    NAMES,
    arrow,
    calls,
    numbers_of,
    parquet,
    picture,
    refusal,
    tar,
    write,
)

import headrace as hr
from headrace import errors
from headrace.formats import Builder, Format, HuggingFace, Manifest, Tokens, WebDataset, table
from headrace.formats._files.patterns import expand


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def images(folder: Path, *classes: str) -> Path:
    for number, each in enumerate(classes):
        (folder / each).mkdir(parents=True)
        for i in range(2):
            (folder / each / f"{i}.png").write_bytes(picture(10 * number + i))
    return folder


@pytest.mark.parametrize("case", NAMES)
def test_a_folder_of_splits_is_refused_by_calls_that_open_one(case: str, tmp_path: Path) -> None:
    kind, names = NAMES[case]
    folder = tmp_path / "a folder's data"
    rows = write(folder, kind, names)
    row = KINDS[kind][2]
    message = refusal(folder, format=row)
    assert f"several splits: {', '.join(sorted(names))}; open one" in message
    by_split, by_path = (eval(each, {"hr": hr}) for each in calls(message))
    first = re.search(r"split='(\w+)'", message)
    assert first is not None
    assert first[1].startswith("train")
    for dataset in (by_split, by_path):
        assert numbers_of(dataset, kind) == rows[first[1]]
    assert by_split.fingerprint == by_path.fingerprint
    assert by_split.path == by_path.path
    for split in names:
        dataset = hr.open(folder, split=split, format=row)
        assert numbers_of(dataset, kind) == rows[split]
        assert numbers_of(pickle.loads(pickle.dumps(dataset)), kind) == rows[split]


@pytest.mark.parametrize("case", NAMES)
def test_a_folder_of_one_split_is_not_refused_as_several(case: str, tmp_path: Path) -> None:
    kind, names = NAMES[case]
    split = next(iter(names))
    rows = write(tmp_path / "data", kind, {split: names[split]})
    dataset = hr.open(tmp_path / "data", split=split, format=KINDS[kind][2])
    assert numbers_of(dataset, kind) == rows[split]
    with contextlib.suppress(errors.InvalidArgumentError):
        dataset = hr.open(tmp_path / "data", format=KINDS[kind][2])
        if dataset.format != "folder":  # of the table's images
            assert numbers_of(dataset, kind) == rows[split]


def test_a_split_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    kind, names = NAMES["tar"]
    rows = write(tmp_path / "data", kind, names)
    message = refusal(tmp_path / "data", split="test")
    assert "split='test' was given, and it has the splits train, val; choose one" in message
    train, val = message.partition("choose one: ")[2].split(" or ")
    assert numbers_of(eval(train), kind) == rows["train"]
    assert numbers_of(eval(val), kind) == rows["val"]
    message = refusal(tmp_path / "data", split="validation2")
    assert "train, val; choose one: hr.open(" in message
    message = refusal(tmp_path / "data", split="dev")
    assert "train, val; it may be hr.open(" in message
    (call,) = calls(message)
    assert numbers_of(eval(call), kind) == rows["val"]
    message = refusal(tmp_path / "data/val-0000.tar", split="val")
    assert "it is one dataset, not a folder of several; leave split out" in message
    (call,) = calls(message)
    assert numbers_of(eval(call), kind) == rows["val"]
    assert "must be a name" in refusal(tmp_path / "data", split=3)


def test_a_file_that_comes_to_a_split_is_part_of_it(tmp_path: Path) -> None:
    kind, names = NAMES["tar"]
    rows = write(tmp_path / "data", kind, names)
    assert numbers_of(hr.open(tmp_path / "data", split="train"), kind) == rows["train"]
    tar(tmp_path / "data/train-0010.tar", [99])
    assert numbers_of(hr.open(tmp_path / "data", split="train"), kind) == [*rows["train"], 99]


def test_a_pattern_is_what_the_user_says_and_its_split_may_be_chosen(tmp_path: Path) -> None:
    kind, names = NAMES["tar"]
    rows = write(tmp_path / "data", kind, names)
    pattern = tmp_path / "data/*.tar"
    assert numbers_of(hr.open(pattern), kind) == rows["train"] + rows["val"]
    assert numbers_of(hr.open(pattern, split="val"), kind) == rows["val"]


@pytest.mark.parametrize("name", ["[x] y", "{a", 'it\'s "so"', "ü *"])
def test_folders_of_odd_names(name: str, tmp_path: Path) -> None:
    for case in ("tar", "tar of two names", "hub"):
        kind, names = NAMES[case]
        rows = write(tmp_path / name / case, kind, names)
        for call in calls(refusal(tmp_path / name / case)):
            assert numbers_of(eval(call), kind) == rows["train"]


def test_options_of_the_format_stay_in_the_call(tmp_path: Path) -> None:
    kind, names = NAMES["tar"]
    rows = write(tmp_path / "data", kind, names)
    message = refusal(tmp_path / "data", format=WebDataset(raw=("cls",)))
    for call in calls(message):
        assert "format=hr.formats.WebDataset(raw=('cls',))" in call
        assert [int(row["cls"]) for row in eval(call)] == rows["train"]


def test_raw_tokens_are_refused_by_a_call_with_their_format(tmp_path: Path) -> None:
    for name in ("train", "val"):
        np.arange(3000, dtype=np.uint16).tofile(tmp_path / f"{name}.bin")
    for call in calls(refusal(tmp_path)):
        assert "hr.formats.Tokens(window=1024, dtype='uint16')" in call
        assert len(eval(call)) == 2
    dataset = hr.open(tmp_path, split="val", format=Tokens(dtype="uint16", window=100))
    assert len(dataset) == 29


# Folders below.


@pytest.mark.parametrize("names", [("train", "val"), ("train2017", "val2017"), ("Train", "Test")])
def test_class_folders_in_train_and_val_are_splits(names: tuple[str, str], tmp_path: Path) -> None:
    for each in names:
        images(tmp_path / "data" / each, "ant", "bee")
    before = hr.open(tmp_path / "data" / names[0])
    message = refusal(tmp_path / "data")
    assert f"several splits: {', '.join(sorted(names))}" in message
    for call in calls(message):
        dataset = eval(call)
        assert dataset.classes == ("ant", "bee")
        assert dataset.fingerprint == before.fingerprint
    assert hr.open(tmp_path / "data", split="train").path == before.path
    classes = hr.open(tmp_path / "data", format="folder")  # As the message says.
    assert "format='folder' takes them as classes" in message
    assert classes.classes == tuple(sorted(names))
    assert pickle.loads(pickle.dumps(classes)).fingerprint == classes.fingerprint
    message = refusal(tmp_path / "data", skip=f"/{names[1]}")
    assert "is that of a split" in message
    (call,) = calls(message)
    assert eval(call).classes == ("ant", "bee")


def test_classes_of_such_names_among_others_are_classes(tmp_path: Path) -> None:
    names = ("bike", "bus", "car", "test", "train")
    assert hr.open(images(tmp_path / "data", *names)).classes == names
    assert hr.open(images(tmp_path / "two", "plane", "train")).classes == ("plane", "train")


@pytest.mark.parametrize("case", ["tar", "tfds", "parquet", "npy", "csv"])
def test_folders_of_each_format_are_splits(case: str, tmp_path: Path) -> None:
    kind, names = NAMES[case]
    data = dict.fromkeys(("train", "test"), names["train"])
    rows = {
        split: write(tmp_path / "data" / split, kind, {split: files})[split]
        for split, files in data.items()
    }
    message = refusal(tmp_path / "data")
    for call in calls(message):
        assert numbers_of(eval(call), kind) == rows["train"]
    if kind != "csv":  # Of those the table in a folder has to be named.
        assert numbers_of(hr.open(tmp_path / "data", split="test"), kind) == rows["test"]


def test_folders_of_shards_are_splits(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / "data" / split).mkdir(parents=True)
        mds(tmp_path / "data" / split)
    (tmp_path / "data/README.md").write_text("x")
    for call in calls(refusal(tmp_path / "data")):
        assert eval(call).format == "mds"
    assert hr.open(tmp_path / "data", split="val").path == str(tmp_path / "data/val")


# Formats with splits of their own.


def test_a_column_split_is_chosen_by_the_same_argument(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(1))
    (tmp_path / "all.csv").write_text("image,n,split\na.png,1,train\na.png,2,test\n")
    chosen = hr.open(tmp_path / "all.csv", split="test")
    same = hr.open(tmp_path / "all.csv", format=Manifest(split="test"))
    assert [int(row["n"]) for row in chosen] == [2]
    assert chosen.fingerprint == same.fingerprint
    assert pickle.loads(pickle.dumps(chosen)).fingerprint == same.fingerprint
    with pytest.raises(errors.InvalidArgumentError, match="give one of them"):
        hr.open(tmp_path / "all.csv", format=Manifest(split="test"), split="train")
    found = run_json("inspect", tmp_path / "all.csv", "--split", "train")
    assert found["samples"] == 1


def test_an_option_split_of_a_format_chooses_files_too(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "test")):
        arrow(tmp_path / f"{split}.arrow", [number])
    assert [int(row["n"]) for row in hr.open(tmp_path, format=HuggingFace(split="test"))] == [1]
    assert [int(row["n"]) for row in hr.open(tmp_path, split="test", format="huggingface")] == [1]


# Commands.


def test_commands_take_split(tmp_path: Path) -> None:
    kind, names = NAMES["tar of sets"]
    rows = write(tmp_path / "data", kind, names)
    path, count = tmp_path / "data", len(rows["train"])
    assert "several splits: extra, train" in run("inspect", path, code=2).stderr
    chosen = ("--split", "train")
    assert run_json("index", path, *chosen)["samples"] == count
    assert run_json("inspect", path, *chosen)["samples"] == count
    assert run_json("verify", path, *chosen)["samples"] == count
    (tmp_path / "text").mkdir()
    for split in ("train", "test"):
        (tmp_path / "text" / f"{split}.bin").write_bytes(bytes(200))
    options = ("--format", "tokens", "--option", "dtype=uint16", "--option", "window=9")
    packed = run_json("pack", tmp_path / "text", tmp_path / "b.pack", "--split", "test", *options)
    assert packed["samples"] == 11
    for command in ("order", "plan"):
        run(command, tmp_path / "text", "--batch", 2, "--split", "test", *options)
    assert "give its path, too" in run("order", "--samples", 9, *chosen, code=2).stderr


# Each format's own writer.


@pytest.fixture(scope="module")
def packages() -> list[str]:
    """Folders of packages; made before a test has a cache of its own."""
    return [str(real_packages(name)) for name in ("loaders", "trainers")]


def test_shards_that_webdataset_writes(packages: list[str], tmp_path: Path) -> None:
    script = (
        "import sys, webdataset as wds\n"
        "for split in ('train', 'val'):\n"
        "    with wds.ShardWriter(f'{sys.argv[1]}/{split}-%06d.tar', maxcount=2) as sink:\n"
        "        for i in range(5):\n"
        "            sink.write({'__key__': f'{i:04}', 'cls': i, 'txt': split})\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
    subprocess.run([sys.executable, "-c", script, tmp_path], env=env, check=True)
    for call in calls(refusal(tmp_path)):
        assert [bytes(row["txt"]) for row in eval(call)] == [b"train"] * 5


def test_files_that_h5py_writes(h5py: Any, tmp_path: Path) -> None:
    for number, split in enumerate(("train", "test")):
        with h5py.File(tmp_path / f"{split}.h5", "w") as file:
            file["x"] = np.full((4, 30), number)
    for call in calls(refusal(tmp_path)):
        assert [int(row["x"][0]) for row in eval(call)] == [0] * 4
    assert [int(row["x"][0]) for row in hr.open(tmp_path, split="test")] == [1] * 4


def test_a_parquet_file_beside_those_of_a_split_belongs_to_none(tmp_path: Path) -> None:
    for number, name in enumerate(("all", "train")):
        parquet(tmp_path / f"{name}.parquet", [number])
    assert [int(row["n"]) for row in hr.open(tmp_path)] == [0, 1]
    assert [int(row["n"]) for row in hr.open(tmp_path, split="train")] == [1]


def test_lists_of_splits_beside_a_manifest_are_no_splits(tmp_path: Path) -> None:
    (tmp_path / "data/img").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        (tmp_path / "data/img" / name).write_bytes(picture(1))
    (tmp_path / "data/metadata.csv").write_text("file_name,n\nimg/a.png,1\nimg/b.png,2\n")
    for name in ("train", "test"):
        (tmp_path / f"data/{name}.csv").write_text("file_name,n\nimg/a.png,1\n")
    assert hr.open(tmp_path / "data").format == "manifest"
    assert len(hr.open(tmp_path / "data")) == 2


class Lines(Format):
    name: ClassVar[str] = "lines-of-splits"
    opens: ClassVar[str] = "files of lines"

    def recognises(self, path: str) -> bool:
        return expand(path)[0].endswith(".lines")

    def takes(self, name: str) -> bool:
        return name.endswith(".lines")

    def fill(self, path: str, builder: Builder) -> None:
        builder.add_field("n", "array", "int64", inline=True)
        for each in expand(path):
            builder.add_file(each)
            builder.add_values("n", np.loadtxt(each, np.int64, ndmin=1))


def test_a_format_of_the_user_has_splits_by_one_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "FORMATS", (*table.FORMATS, Lines()))
    for number, name in enumerate(("train-0", "train-1", "test-0")):
        (tmp_path / f"{name}.lines").write_text(f"{number}\n")
    (tmp_path / "README").write_text("x")
    for call in calls(refusal(tmp_path)):
        assert [int(row["n"]) for row in eval(call)] == [0, 1]
    assert [int(row["n"]) for row in hr.open(tmp_path, split="test")] == [2]
    message = refusal(tmp_path, format=Lines())
    assert "format='lines-of-splits'" in message
    for call in calls(message):
        assert [int(row["n"]) for row in eval(call)] == [0, 1]


def test_an_index_file_of_a_split_is_that_of_its_files(tmp_path: Path) -> None:
    kind, names = NAMES["tar"]
    rows = write(tmp_path / "data", kind, names)
    index = tmp_path / "train.hri"
    made = hr.open(tmp_path / "data", split="train", index=index)
    assert numbers_of(hr.open(index), kind) == rows["train"]
    pattern = tmp_path / "data/train-*.tar"
    assert hr.open(pattern, index=index).fingerprint == made.fingerprint
    assert "is one of" in refusal(tmp_path / "data", split="val", index=index)


def test_arrays_of_a_split_are_not_joined_unasked(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("x", "y"):
            np.save(tmp_path / f"{name}_{split}.npy", np.arange(4))
    for message in (refusal(tmp_path), refusal(tmp_path, split="train")):
        assert "its split 'train' is several files, x_train.npy, y_train.npy" in message
        (call,) = calls(message)
        assert len(eval(call)) == 4
    assert len(hr.open([tmp_path / "x_train.npy", tmp_path / "y_train.npy"])) == 8
