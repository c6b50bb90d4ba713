"""Lists of paths, and patterns of folders at any depth."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from commands import run_json
from split_data import KINDS, numbers_of, picture, refusal

import headrace as hr
from headrace import errors


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def files(folder: Path, kind: str) -> list[Path]:
    """Three files, of the rows 1 and 2, 3 and 4, 5 and 6."""
    found = [folder / f"b.{kind}", folder / f"a.{kind}", folder / "sub" / "deep" / f"c.{kind}"]
    for number, path in enumerate(found):
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind][0](path, [2 * number + 1, 2 * number + 2])
    return found


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "parquet", "arrow", "npy", "npz", "bin"])
def test_a_list_of_files_opens_in_its_order(kind: str, tmp_path: Path) -> None:
    first, second, third = files(tmp_path, kind)
    row = KINDS[kind][2]
    for given in ([first, second, third], [str(first), second, str(third)], (first, second, third)):
        dataset = hr.open(given, format=row)
        assert numbers_of(dataset, kind) == [1, 2, 3, 4, 5, 6]
        assert numbers_of(pickle.loads(pickle.dumps(dataset)), kind) == [1, 2, 3, 4, 5, 6]
    assert numbers_of(hr.open([third, first], format=row), kind) == [5, 6, 1, 2]
    assert numbers_of(hr.open([second], format=row), kind) == [3, 4]
    same = hr.open(tmp_path / f"{{b,a}}.{kind}", format=row)
    assert hr.open([first, second], format=row).fingerprint == same.fingerprint
    assert numbers_of(hr.open([tmp_path / f"?.{kind}", third], format=row), kind) == [
        *(3, 4, 1, 2, 5, 6)
    ]


def test_what_a_list_cannot_be_is_said(tmp_path: Path) -> None:
    first, second, _ = files(tmp_path, "npy")
    assert "got an empty list, must be paths of files" in refusal([])
    assert "must be a list of paths" in refusal([[first], [second]])
    assert f"write {tmp_path / 'sub'}/* in its place" in refusal([first, tmp_path / "sub"])
    assert len(hr.open([first, f"{tmp_path / 'sub/deep'}/*"])) == 4  # As it says.
    with pytest.raises(errors.NotFoundError, match=r"none\.npy: no such file"):
        hr.open([first, tmp_path / "none.npy"])
    with pytest.raises(errors.InvalidArgumentError, match="got 3, must be a path"):
        hr.open([first, 3])
    second.rename(tmp_path / "a,b.npy")
    assert "link the files into a folder under other names" in refusal(
        [first, tmp_path / "a,b.npy"]
    )


@pytest.mark.parametrize("kind", ["tar", "parquet", "npy"])
def test_two_stars_are_folders_at_any_depth(kind: str, tmp_path: Path) -> None:
    files(tmp_path, kind)
    pattern = tmp_path / "**" / f"*.{kind}"
    assert numbers_of(hr.open(pattern), kind) == [3, 4, 1, 2, 5, 6]
    assert numbers_of(hr.open(tmp_path / "**" / "deep" / f"*.{kind}"), kind) == [5, 6]
    assert numbers_of(hr.open(tmp_path / "**"), kind) == [3, 4, 1, 2, 5, 6]
    (tmp_path / "sub/new/er").mkdir(parents=True)
    KINDS[kind][0](tmp_path / "sub/new/er" / f"d.{kind}", [7])
    assert numbers_of(hr.open(pattern), kind) == [3, 4, 1, 2, 5, 6, 7]
    assert run_json("inspect", pattern)["samples"] == 7


def test_two_stars_that_match_nothing_are_told(tmp_path: Path) -> None:
    files(tmp_path, "npy")
    with pytest.raises(errors.NotFoundError, match="no file matches this pattern"):
        hr.open(tmp_path / "**" / "*.tar")


# By case what is opened below the folder, and how often that lists the folder: once by each format
# that looks at it, and once by hr.open.
LISTED = {"flat": ("flat", 8), "flat by a pattern": ("flat/*.png", 21), "classes": ("classes", 10)}


@pytest.mark.parametrize("case", LISTED)
def test_a_folder_of_images_is_listed_no_more_often_than_it_must(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of a million images takes a minute on a shared file system."""
    below, limit = LISTED[case]
    for name in ("flat/0.png", "flat/1.png", "classes/ant/0.png", "classes/bee/0.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(picture(1))
    first = hr.open(tmp_path / below)
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: Any = ".") -> Any:
        listed.append(os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    again = hr.open(tmp_path / below)
    folder = str(tmp_path / below.partition("/")[0])
    assert listed.count(folder) <= limit
    listed.clear()
    assert repr(again) == repr(first)
    assert listed == []
