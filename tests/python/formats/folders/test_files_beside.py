"""Folders of files that are no dataset as a whole: opened, or refused with what to type."""

from __future__ import annotations

import os
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_datasets import tokens
from split_data import KINDS, calls, numbers_of, parquet, picture, refusal, write

import headrace as hr
from headrace import errors
from headrace.formats import Tokens, WebDataset
from headrace.formats._folders import beside

NOTES = ("README.md", "LICENSE", ".gitattributes", "info.json", "a.idx")
FILES = {
    "tar": "s-{}.tar",
    "tfrecord": "s-{}.tfrecord",
    "parquet": "s-{}.parquet",
    "arrow": "s-{}.arrow",
    "npy": "s-{}.npy",
    "npz": "s-{}.npz",
    "csv": "s-{}.csv",
    "jsonl": "s-{}.jsonl",
}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def written(tmp_path: Path, kind: str, count: int) -> tuple[Path, list[int]]:
    names = [FILES[kind].format(i) for i in range(count)]
    rows = write(tmp_path / "data", kind, {"all": names})["all"]
    if (tmp_path / "data/images").exists():  # of tables
        (tmp_path / "data/images").rename(tmp_path / "images")
        (tmp_path / "data/images").symlink_to(tmp_path / "images")
    return tmp_path / "data", rows


@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.parametrize("kind", [each for each in FILES if each not in ("csv", "jsonl")])
def test_notes_beside_files_of_one_series_change_nothing(
    kind: str, count: int, tmp_path: Path
) -> None:
    folder, rows = written(tmp_path, kind, count)
    assert numbers_of(hr.open(folder), kind) == rows
    for name in NOTES[: 4 if kind == "parquet" else 5]:  # It warns of what lies beside.
        (folder / name).write_text("x")
    assert numbers_of(hr.open(folder), kind) == rows


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "arrow", "npy"])
def test_other_files_beside_are_refused_with_the_pattern(kind: str, tmp_path: Path) -> None:
    folder, rows = written(tmp_path, kind, 1)
    for name in ("a.jpg", "b.mp4"):
        (folder / name).write_bytes(b"x")
    message = refusal(folder)
    assert "1 .jpg, 1 .mp4" in message
    (call,) = calls(message)
    assert numbers_of(eval(call), kind) == rows


@pytest.mark.parametrize("suffix", [".part", ".crdownload", ".tmp"])
@pytest.mark.parametrize("kind", ["tar", "arrow", "npy", "tfrecord"])
def test_a_download_that_has_not_ended_is_named(kind: str, suffix: str, tmp_path: Path) -> None:
    folder, rows = written(tmp_path, kind, 2)
    name = FILES[kind].format(2) + suffix
    (folder / name).write_bytes(b"x")
    message = refusal(folder)
    assert f"{name} is a download that has not ended" in message
    (call,) = calls(message)
    assert numbers_of(eval(call), kind) == rows


def test_a_format_that_is_given_takes_its_files(tmp_path: Path) -> None:
    """As img2dataset leaves a folder."""
    folder, rows = written(tmp_path, "tar", 3)
    for number in range(3):
        parquet(folder / f"s-{number}.parquet", [7])
        (folder / f"s-{number}_stats.json").write_text("{}")
    assert numbers_of(hr.open(folder, format=WebDataset()), "tar") == rows
    assert numbers_of(hr.open(folder, format="webdataset"), "tar") == rows
    with pytest.warns(RuntimeWarning, match=r"others in it are left out \(3 \.tar\)"):
        assert hr.open(folder).format == "parquet"


def test_arrays_of_other_names_are_not_joined(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    np.save(tmp_path / "y.npy", np.arange(3))
    (call,) = calls(refusal(tmp_path))
    assert len(eval(call)) == 3
    np.save(tmp_path / "x1.npy", np.arange(3))
    assert "x.npy" in refusal(tmp_path)


def test_a_folder_of_tokens_of_megatron_opens(tmp_path: Path) -> None:
    path = tokens(tmp_path)
    for given in (path, tmp_path):
        dataset = hr.open(given, format=Tokens(window=8))
        assert len(dataset) == 24
        assert hr.open(given, format=Tokens(window=8)).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("below", ["", "a.bin"])
def test_a_raw_file_is_refused_with_the_formats_that_read_it(below: str, tmp_path: Path) -> None:
    np.arange(5000, dtype=np.uint16).tofile(tmp_path / "a.bin")
    message = refusal(tmp_path / below)
    assert "a raw file does not say what it holds" in message
    assert "hr.formats.Records(dtype=" in message
    (call,) = calls(message)
    assert len(eval(call)) == 4


@pytest.mark.parametrize(
    ("suffix", "name"), [(".gif", "GIF"), (".avif", "AVIF"), (".ico", "ICO"), (".jp2", "JPEG 2000")]
)
def test_images_that_are_not_decoded_are_named(suffix: str, name: str, tmp_path: Path) -> None:
    (tmp_path / f"a{suffix}").write_bytes(picture(1))
    for path in (tmp_path, tmp_path / f"a{suffix}"):
        assert f"headrace does not decode {name}; convert" in refusal(path)


def test_kinds_that_lie_together_are_named_each(tmp_path: Path) -> None:
    for kind in ("npy", "tar", "arrow"):
        KINDS[kind][0](tmp_path / f"s-0.{kind}", [1, 2])
    found: list[Any] = [eval(each) for each in calls(refusal(tmp_path))]
    assert sorted(each.format for each in found) == ["arrays", "huggingface", "webdataset"]
    assert [len(each) for each in found] == [2, 2, 2]
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.InvalidArgumentError, match="the folder is empty; name one"):
        hr.open(tmp_path / "empty")


# Files beside the samples of class folders.


def class_folders(folder: Path, *names: str) -> Path:
    for number, each in enumerate(names):
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_bytes(picture(number) if each.endswith(".png") else b"a caption")
    return folder


BESIDE = {
    "captions": ["ant/0.txt", "bee/1.txt"],
    "one": ["bee/1.json"],
    "below": ["ant/x/2.xml"],
    "arrays": ["ant/0.npy"],
}


@pytest.mark.parametrize("case", BESIDE)
def test_files_with_the_names_of_images_are_a_finding(case: str, tmp_path: Path) -> None:
    images = ["ant/0.png", "bee/1.png", "ant/x/2.png"]
    class_folders(tmp_path / "data", *images, "bee/README.md", *BESIDE[case])
    with pytest.warns(RuntimeWarning, match="left out") as told:
        dataset = hr.open(tmp_path / "data")
    (text,) = [str(each.message) for each in told]
    for each in BESIDE[case]:
        assert repr(each) in text
    for again in (dataset, hr.open(tmp_path / "data")):
        (finding,) = again.report
        assert (finding.kind, finding.count) == ("beside", len(BESIDE[case]))
        assert finding.examples == tuple(BESIDE[case])
        assert finding.can_be_decoded
    assert [dataset.read(at)["image"] for at in range(3)] == [picture(each) for each in (0, 2, 1)]


def test_notes_and_files_that_skip_names_are_no_finding(tmp_path: Path) -> None:
    class_folders(tmp_path / "data", "ant/0.png", "ant/notes.txt", "bee/1.png", "bee/0.txt")
    assert hr.open(tmp_path / "data").report == ()
    class_folders(tmp_path / "data", "ant/0.txt")
    kinds = [each.kind for each in hr.open(tmp_path / "data", skip="*.txt").report]
    assert "beside" not in kinds


def test_files_with_the_names_of_sounds_are_a_finding(tmp_path: Path) -> None:
    for each in ("ant", "bee"):
        (tmp_path / "data" / each).mkdir(parents=True)
        with wave.open(str(tmp_path / "data" / each / "a.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(64))
    (tmp_path / "data/bee/a.txt").write_text("hum")
    with pytest.warns(RuntimeWarning, match="bee/a.txt"):
        dataset = hr.open(tmp_path / "data")
    assert [each.examples for each in dataset.report] == [("bee/a.txt",)]
    assert dataset.classes == ("ant", "bee")


def test_folders_with_the_names_of_images_are_no_finding(tmp_path: Path) -> None:
    class_folders(tmp_path / "data", "dog/1.png", "dog/1/2.png", "cat/3.png")
    dataset = hr.open(tmp_path / "data")
    assert (len(dataset), dataset.report) == (3, ())


def test_a_caption_is_found_though_its_image_is_not_among_the_first_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"ant/{number:03}.{suffix}" for number in range(300) for suffix in ("png", "txt")]
    class_folders(tmp_path / "data", *names)
    first = {f"{i:03}.{'txt' if i == 7 else 'png'}" for i in range(200)}
    scandir = os.scandir

    @contextmanager
    def in_other_order(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            yield iter(sorted(entries, key=lambda each: (each.name not in first, each.name)))

    monkeypatch.setattr(os, "scandir", in_other_order)
    found = beside.files_beside(str(tmp_path / "data"))
    assert found is not None
    assert (found.count, found.examples) == (1, ("ant/007.txt",))
