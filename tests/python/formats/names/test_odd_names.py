"""File names as disks have them: bytes that are no UTF-8, line feeds, quotes, wildcards, long ones,
and letters in two Unicode forms; in folders, tars, tables and COCO files."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import tarfile
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
from format_checks import loader_of
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.formats import Coco, Manifest

NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
ODD = {
    "latin-1": b"caf\xe9",
    "no text": b"\xff\xfe",
    "surrogate": b"\xed\xa0\x80",
    "line feed": b"a\nb",
    "return": b"a\rb",
    "tab": b"a\tb",
    "quotes": b"a'b\"c",
    "control": b"\x01\x7f",
    "escape": b"\x1b[31m",
    "emoji": "😀".encode(),
    "blanks": b" a ",
    "backslash": b"a\\b",
    "comma": b"a,b",
    "braces": b"a{1,2}b",
    "wildcards": b"a*b[c]?",
    "percent": b"a%20b",
    "long": b"n" * 240,
    "NFC": NFC.encode(),
    "NFD": NFD.encode(),
}


def png(text: bytes) -> bytes:
    """An image, and bytes of its own behind it."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(file, "png")
    return file.getvalue() + text


def write_images(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ODD.values():
        (folder / os.fsdecode(name + b".png")).write_bytes(png(name))
    return folder


def seen(dataset: hr.Dataset, field: str = "image") -> list[bytes]:
    """What a loader gives, by sample; it must be what the dataset reads."""
    found = [b""] * len(dataset)
    with loader_of(dataset, "exact") as loader:
        for batch in loader:
            for number, value in zip(batch.sample_id, getattr(batch, field), strict=True):
                found[int(number)] = bytes(value)
    assert found == [bytes(each[field]) for each in dataset]
    return found


def test_folders_have_all_names(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"im\xe9\nages")
    for each in (b"y\xe9", b"x\nz"):
        write_images(root / os.fsdecode(each))
    dataset = hr.open(root)
    wanted = [
        png(name) for name in sorted(ODD.values(), key=lambda each: os.fsdecode(each) + ".png")
    ]
    assert seen(dataset) == wanted * 2
    assert dataset.classes == ("x\nz", "y\udce9")
    assert pickle.loads(pickle.dumps(dataset)).fingerprint == dataset.fingerprint
    run("verify", root)
    run("pack", root, tmp_path / "pack")
    pack = hr.open(tmp_path / "pack")
    assert (sorted(seen(pack)), pack.classes) == (sorted(wanted * 2), dataset.classes)


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=str)
def test_tars_have_all_names(tmp_path: Path, format: int) -> None:
    path = tmp_path / os.fsdecode(b"t\xe9\n.tar")
    names = [*ODD.values(), b"folder/" + ODD["latin-1"], b"d\xe9\n/x"]
    with tarfile.open(path, "w", format=format) as tar:
        for name in names:
            info = tarfile.TarInfo(os.fsdecode(name) + ".txt")
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name))
    dataset = hr.open(path)
    assert seen(dataset, "txt") == names
    assert dataset.report == ()


def write_table(folder: Path, kind: str, names: list[str]) -> Path:
    path = folder / f"table.{kind}"
    if kind == "jsonl":  # Bytes that are no UTF-8 as Python's json writes them.
        path.write_text("".join(json.dumps({"path": each, "x": 1}) + "\n" for each in names))
        return path
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="," if kind == "csv" else "\t")
        writer.writerows([["path", "x"], *([each, 1] for each in names)])
    return path


def are_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_tables_name_all_files_that_they_can_name(tmp_path: Path, kind: str) -> None:
    folder = write_images(tmp_path / "images")
    taken = [each for each in ODD.values() if kind == "jsonl" or are_text(each)]
    path = write_table(folder, kind, [os.fsdecode(each) + ".png" for each in taken])
    assert seen(hr.open(path)) == [png(each) for each in taken]


@pytest.mark.parametrize("name", ["latin-1", "no text", "surrogate"])
def test_tables_that_are_no_utf_8_are_refused(tmp_path: Path, name: str) -> None:
    folder = write_images(tmp_path / "images")
    (folder / "table.csv").write_bytes(b"path,x\n" + ODD[name] + b".png,1\n")
    with pytest.raises(errors.DataLossError, match=r"table\.csv: byte \d+: line 2 is not UTF-8"):
        hr.open(folder / "table.csv")


# One letter in two forms: macOS writes the one, most programs the other.

PAIRS = [(NFC, NFD), (NFD, NFC), (f"d{NFC}/x{NFD}", f"d{NFD}/x{NFC}"), ("Ä", "A\u0308")]


@pytest.mark.parametrize(("there", "named"), PAIRS)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_tables_find_names_in_another_form(
    tmp_path: Path, there: str, named: str, kind: str
) -> None:
    root = tmp_path / f"root {NFD}"
    for name in (there, "plain"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.png").write_bytes(png(name.encode()))
    path = write_table(root, kind, [f"{named}.png", "plain.png"])
    assert seen(hr.open(path)) == [png(there.encode()), png(b"plain")]
    (root / "coco.json").write_text(
        json.dumps({"images": [{"id": 1, "file_name": f"{named}.png"}], "annotations": []})
    )
    for row in (None, Coco(folder=".")):
        assert seen(hr.open(root / "coco.json", format=row)) == [png(there.encode())]


def test_a_name_that_is_there_as_it_stands_comes_first(tmp_path: Path) -> None:
    for name in (NFC, NFD):
        (tmp_path / f"{name}.png").write_bytes(png(name.encode()))
    path = write_table(tmp_path, "csv", [f"{NFD}.png", f"{NFC}.png"])
    assert seen(hr.open(path)) == [png(NFD.encode()), png(NFC.encode())]


def test_names_that_are_in_no_form_there_are_missing(tmp_path: Path) -> None:
    (tmp_path / f"{NFD}.png").write_bytes(png(b"x"))
    path = write_table(tmp_path, "csv", [f"{NFC}.png", "ü.png", f"{NFC}/a.png"])
    with pytest.raises(errors.NotFoundError, match=r"line 3 .*2 of 3 rows name files that are not"):
        hr.open(path)
    dataset = hr.open(path, format=Manifest(missing="skip"))
    assert seen(dataset) == [png(b"x")]


@pytest.mark.parametrize(("there", "named"), PAIRS)
def test_paths_of_datasets_are_found_in_another_form(
    tmp_path: Path, there: str, named: str
) -> None:
    path = tmp_path / f"{there}.tar"
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("0.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    dataset = hr.open(tmp_path / f"{named}.tar")
    assert (dataset.path, seen(dataset, "txt")) == (str(path), [b"x"])


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        (b"no\xe9ne", errors.NotFoundError, r"no\\xe9ne: no such file or folder"),
        ("nü", errors.NotFoundError, "nü: no such file or folder"),
        ("\ud800x", errors.InvalidArgumentError, "character 0 is a surrogate, which no file name"),
        ("a\0b", errors.InvalidArgumentError, "a path has no NUL character"),
        ("x" * 300, errors.InvalidArgumentError, "File name too long"),
        ("é" * 300, errors.InvalidArgumentError, "File name too long"),
    ],
)
def test_paths_to_nothing_are_refused(path: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        hr.open(path)
    assert str(caught.value).isprintable()
