"""Sets of files that say their number, x-00000-of-00002: complete, or refused by name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from split_data import KINDS, calls, numbers_of, picture, refusal, write
from split_data import parquet as write_parquet

import headrace as hr
from headrace.formats._folders.numbered_files import sets_of

NAMES = {
    "parquet": "x-{:05}-of-00004.parquet",
    "parquet with a hash": "train-{:05}-of-00004-0123456789abcdef.parquet",
    "arrow": "x-{:05}-of-00004.arrow",
    "tfrecord": "mnist-train.tfrecord-{:05}-of-00004",
    "tfrecord with a suffix": "train-{:05}-of-00004.tfrecord",
    "tar": "imagenet-train-{:05}-of-00004.tar",
    "bin": "x_{:05}-of-00004.bin",
    "npz": "x-{:05}-of-00004.npz",
    "npy": "{:03}-of-004.npy",
    "parquet with underscores": "train_{:05}_of_00004.parquet",
    "tar with underscores": "x_{:05}_of_00004.tar",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def opened(path: object, **options: Any) -> tuple[hr.Dataset, list[str]]:
    """The dataset, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = hr.open(path, **options)  # type: ignore[arg-type]
    return dataset, [str(each.message) for each in caught]


def written(folder: Path, case: str, numbers: list[int]) -> tuple[str, list[int]]:
    """Writes these files: their kind, and the numbers in them."""
    kind = case.partition(" ")[0]
    rows = write(folder, kind, {"a": [NAMES[case].format(number) for number in numbers]})
    return kind, rows["a"]


@pytest.mark.parametrize("case", NAMES)
def test_a_folder_with_a_part_of_a_set_is_refused_with_what_is_missing(
    case: str, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    kind, numbers = written(folder, case, [0, 3])
    row = KINDS[kind][2]
    message = refusal(folder, format=row)
    width = 3 if kind == "npy" else 5
    assert f"has 2 of 4 files, without {1:0{width}} to {2:0{width}}" in message
    assert "finish the copy" in message
    (call,) = calls(message)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert numbers_of(eval(call), kind) == numbers
    folder = tmp_path / "whole"
    kind, numbers = written(folder, case, [0, 1, 2, 3])
    dataset, told = opened(folder, format=row)
    assert numbers_of(dataset, kind) == numbers
    assert not told
    assert dataset.report == ()


@pytest.mark.parametrize("case", NAMES)
def test_one_shard_is_refused_as_a_folder_and_reported_as_a_file(case: str, tmp_path: Path) -> None:
    kind, numbers = written(tmp_path / "data", case, [2])
    row = KINDS[kind][2]
    message = refusal(tmp_path / "data", format=row)
    assert "has 1 of 4 files" in message
    (call,) = calls(message)
    path = tmp_path / "data" / NAMES[case].format(2)
    for dataset, told in ((eval(call), []), opened(path, format=row)):
        assert numbers_of(dataset, kind) == numbers
        assert not told  # The user named it.
        (finding,) = dataset.report
        assert (finding.kind, finding.count) == ("incomplete", 1)
        assert "has 1 of 4 files" in finding.examples[0]
        assert finding.can_be_decoded


def test_wildcards_warn_of_a_part_of_a_set_and_lists_do_not(tmp_path: Path) -> None:
    kind, numbers = written(tmp_path, "parquet", [0, 1, 3])
    dataset, told = opened(tmp_path / "x-*.parquet")
    assert len(told) == 1
    assert "x-*-of-00004.parquet has 3 of 4 files, without 00002" in told[0]
    assert numbers_of(dataset, kind) == numbers
    names = [tmp_path / NAMES["parquet"].format(number) for number in (0, 1)]
    dataset, told = opened(names)
    assert not told
    assert "without 00002 to 00003" in str(dataset.report)
    dataset, told = opened(tmp_path / "x-{00000..00001}-of-00004.parquet")
    assert not told
    assert numbers_of(dataset, kind) == numbers[:6]


def test_a_split_that_lacks_files_is_refused_and_the_others_open(tmp_path: Path) -> None:
    rows = write(
        tmp_path,
        "parquet",
        {
            "train": ["train-00000-of-00003.parquet", "train-00002-of-00003.parquet"],
            "test": ["test-00000-of-00001.parquet"],
        },
    )
    message = refusal(tmp_path, split="train")
    assert "train-*-of-00003.parquet has 2 of 3 files, without 00001" in message
    (call,) = calls(message)
    with pytest.warns(RuntimeWarning, match="2 of 3 files"):
        assert numbers_of(eval(call), "parquet") == rows["train"]
    dataset, told = opened(tmp_path, split="test")
    assert numbers_of(dataset, "parquet") == rows["test"]
    assert not told


def test_a_folder_of_a_split_that_lacks_files_is_refused(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / split, "tar", {"a": [f"{split}-00001-of-00002.tar"]})
    assert "has 1 of 2 files, without 00000" in refusal(tmp_path, split="test")


def test_lines_of_json_in_a_set(tmp_path: Path) -> None:
    for number in (0, 2):
        path = tmp_path / f"c4-train.{number:05}-of-00003.jsonl"
        path.write_text(f'{{"n": {number}}}\n')
    message = refusal(tmp_path)
    assert "c4-train.*-of-00003.jsonl has 2 of 3 files, without 00001" in message
    (call,) = calls(message)
    with pytest.warns(RuntimeWarning, match="2 of 3 files"):
        assert [int(row["n"]) for row in eval(call)] == [0, 2]


def test_two_sets_of_one_name_are_refused_by_a_call_that_opens_one(tmp_path: Path) -> None:
    first = [f"x-{number:05}-of-00002.parquet" for number in range(2)]
    other = [f"x-{number:05}-of-00003.parquet" for number in range(3)]
    rows = write(tmp_path, "parquet", {"a": first, "b": other})
    message = refusal(tmp_path)
    assert "x-*-of-00002.parquet and x-*-of-00003.parquet" in message
    (call,) = calls(message)
    assert numbers_of(eval(call), "parquet") == rows["a"]


# By case: the number and the hash of each file, what the message says, which files its call opens.
TWICE = {
    "one": ([(0, "a"), (0, "b")], "has 2 files for 1 number: {0}, {1}; move", [0]),
    "one of two": ([(0, "a"), (0, "b"), (1, "b")], "2 files for 1 number: {0}, {1}; move", [1, 2]),
    "own hashes": (
        [(0, "a"), (0, "b"), (1, "c"), (1, "d"), (2, "e")],
        "has 4 files for 2 numbers: {0}, {1}, {2}, {3}; move",
        [0, 2, 4],
    ),
    "one is missing": (
        [(0, "a"), (0, "b"), (2, "c")],
        "has 2 files for 1 number, and is without 00001: {0}, {1}; move",
        [0, 2],
    ),
}


@pytest.mark.parametrize("case", TWICE)
def test_files_of_one_number_are_refused_by_a_call_that_opens_one_of_each(
    case: str, tmp_path: Path
) -> None:
    files, what, opens = TWICE[case]
    total = max(number for number, _ in files) + 1
    names = [f"x-{i:05}-of-{total:05}-{h * 16}.parquet" for i, h in files]
    for number, name in enumerate(names):
        write_parquet(tmp_path / name, [number])
    message = refusal(tmp_path)
    assert what.format(*names) in message
    assert "the older one of each number away, or open one of each: " in message
    (call,) = calls(message)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if case != "one is missing" else "ignore")
        assert numbers_of(eval(call), "parquet") == opens
    _, told = opened(tmp_path / "x-*.parquet")
    assert len(told) == 1
    assert "is to be complete, move the older one of each number away" in told[0]


# Where there is no warning.


def test_a_set_that_is_divided_over_folders_is_complete(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"disk{number % 2}").mkdir(exist_ok=True)
        write_parquet(tmp_path / f"disk{number % 2}" / NAMES["parquet"].format(number), [number])
    dataset, told = opened(tmp_path / "*" / "*.parquet")
    assert numbers_of(dataset, "parquet") == [0, 2, 1, 3]
    assert (told, dataset.report) == ([], ())
    (tmp_path / "disk1" / NAMES["parquet"].format(3)).rename(tmp_path / "elsewhere")
    dataset, told = opened(tmp_path / "*" / "*.parquet")
    assert ["without" in each for each in told] == [True, True]
    assert [each.count for each in dataset.report] == [2]


def test_images_are_no_sets(tmp_path: Path) -> None:
    """Slices of a volume, as 3-of-40.png, each of which is a sample."""
    folder = tmp_path / "scans"
    folder.mkdir()
    for number in (0, 2):
        (folder / f"scan-{number}-of-4.png").write_bytes(picture(number))
    for path in (folder, folder / "*.png"):
        dataset, told = opened(path)
        assert dataset[0]["image"] == picture(0)
        assert (told, dataset.report) == ([], ())


def test_a_path_that_is_refused_warns_of_nothing(tmp_path: Path) -> None:
    write(tmp_path / "g" / "a", "parquet", {"a": ["x-00000-of-00002.parquet"]})
    write(tmp_path / "g" / "b", "parquet", {"b": ["x-00000-of-00002.parquet"]})
    for split in ("train", "test"):
        (tmp_path / "h" / "all" / f"split={split}").mkdir(parents=True)
        write_parquet(tmp_path / "h" / "all" / f"split={split}" / "0.parquet", [1])
    for folder in ("g", "h"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            message = refusal(tmp_path / folder)
        assert [str(each.message) for each in caught] == []
        (call,) = calls(message)
        with pytest.warns(RuntimeWarning, match="of 2 files|several splits: test, train"):
            eval(call)


def test_sets_that_count_from_one_are_complete() -> None:
    names = [f"x-{number:05}-of-00003.tar" for number in (1, 2, 3)]
    assert [each.what for each in sets_of(names)] == [""]
    assert "without 00001" in sets_of(names[1:])[0].what
    assert "without 00000" in sets_of(names[:2])[0].what
    assert sets_of(["README.md", "x-5-of-3.tar", "out-of-bounds.tar", "2-of-hearts.png"]) == []


def test_a_set_of_many_names_the_first_gaps() -> None:
    names = [f"x-{number:05}-of-01024.tar" for number in range(0, 1024, 2)]
    (found,) = sets_of(names)
    assert found.missing == "00001, 00003, 00005, ..."
    assert found.what.startswith("x-*-of-01024.tar has 512 of 1,024 files")


# Sets whose names are no usual ones of splits.


@pytest.mark.parametrize("kind", ["parquet", "tar", "arrow"])
@pytest.mark.parametrize(
    "form", ["c4-{0}.{1:05}-of-00002.{2}", "c4-{0}-{1:05}-of-00002.{2}", "c4-{0}.{1}-of-2.{2}"]
)
def test_sets_of_other_names_are_refused_with_a_pattern_of_all(
    form: str, kind: str, tmp_path: Path
) -> None:
    names = {x: [form.format(x, i, kind) for i in range(2)] for x in ("en", "fr")}
    rows = write(tmp_path, kind, names)
    message = refusal(tmp_path)
    assert "several splits: en, fr" in message
    by_split, by_path, together = (eval(each) for each in calls(message))
    assert numbers_of(by_split, kind) == numbers_of(by_path, kind) == rows["en"]
    assert numbers_of(together, kind) == rows["en"] + rows["fr"]
    assert numbers_of(hr.open(tmp_path, split="fr"), kind) == rows["fr"]
