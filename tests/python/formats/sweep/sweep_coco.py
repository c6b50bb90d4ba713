"""Oddities of annotations of COCO."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sweep_cases import ODD_NAMES, Case, Rows, cell
from sweep_writers import picture

NOTE = {"id": 1, "image_id": 1, "category_id": 7, "bbox": [1, 2, 3, 4]}


def path_in(at: Path) -> Path:
    return at / "annotations" / "instances.json"


def write_coco(at: Path, numbers: Sequence[int], name: str = "{:03}.png", **more: Any) -> Rows:
    """`at` is the file of annotations; the images lie beside its folder, in `images`."""
    at.parent.mkdir(parents=True, exist_ok=True)
    images = at.parents[1] / "images"
    images.mkdir(exist_ok=True)
    for number in numbers:
        (images / name.format(number)).write_bytes(picture(number))
    told = {
        "images": [{"id": n, "file_name": name.format(n)} for n in map(int, numbers)],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 7, "bbox": [n, 1, 2, 3]}
            for n in map(int, numbers)
        ],
        "categories": [{"id": 7, "name": "thing"}],
    }
    at.write_text(json.dumps(told | more))
    return [
        {
            "image": picture(n),
            "image_id": np.int64(n),
            "boxes": np.array([[n, 1, 2, 3]], float),
            "labels": np.array([0]),
        }
        for n in numbers
    ]


@cell("COCO", oddity="nulls")
def _(format: str, at: Path) -> Iterator[Case]:
    for name, odd in (
        ("nulls", NOTE | {"id": 2, "bbox": None}),
        ("a member less", {k: v for k, v in NOTE.items() if k != "bbox"} | {"id": 2}),
    ):
        path = path_in(at / name)
        write_coco(path, [1, 2], annotations=[NOTE, odd])
        yield Case(name, path, None, [path, "bbox"])
    path = path_in(at / "none")
    rows = write_coco(path, [1, 2], annotations=[NOTE])
    rows[0]["boxes"] = np.array([[1, 2, 3, 4.0]])
    rows[1] |= {"boxes": np.zeros((0, 4)), "labels": np.zeros(0, int)}
    yield Case("an image without annotations", path, rows)


@cell("COCO", oddity="splits")
def _(format: str, at: Path) -> Iterator[Case]:
    paths = [at / "annotations" / f"instances_{split}2017.json" for split in ("train", "val")]
    rows = [write_coco(paths[0], [1, 2]), write_coco(paths[1], [3])]
    yield Case("the folder", at, None, [at])
    for path, wanted in zip(paths, rows, strict=True):
        yield Case("a file", path, wanted)


@cell("COCO", oddity="links")
def _(format: str, at: Path) -> Iterator[Case]:
    rows = write_coco(path_in(at / "there"), [1, 2])
    (at / "link").symlink_to(at / "there")
    yield Case("a linked folder", path_in(at / "link"), rows)
    for folder in ("images", "annotations"):
        (at / "here" / folder).mkdir(parents=True)
    os.link(path_in(at / "there"), path_in(at / "here"))
    for each in (at / "there" / "images").iterdir():
        (at / "here" / "images" / each.name).symlink_to(each)
    yield Case("linked images", path_in(at / "here"), rows)


@cell("COCO", oddity="names")
def _(format: str, at: Path) -> Iterator[Case]:
    for number, name in enumerate(ODD_NAMES[:-1]):  # JSON has no names that are no UTF-8.
        path = path_in(at / str(number))
        odd = name.replace("{", "{{").replace("}", "}}")
        yield Case(ascii(name), path, write_coco(path, [1, 2], "{:03}" + odd + ".png"))
    path = path_in(at / "latin")
    write_coco(path, [1])
    path.write_bytes(path.read_bytes().replace(b"thing", b"\xe9"))
    yield Case("Latin-1", path, None, [path])


@cell("COCO", oddity="zero samples")
def _(format: str, at: Path) -> Iterator[Case]:
    write_coco(path_in(at), [])
    yield Case("no images", path_in(at), None, [path_in(at)])


@cell("COCO", oddity="one sample")
def _(format: str, at: Path) -> Iterator[Case]:
    yield Case("one", path_in(at), write_coco(path_in(at), [3]))


@cell("COCO", oddity="files beside")
def _(format: str, at: Path) -> Iterator[Case]:
    rows = write_coco(path_in(at), [1, 2])
    (at / "annotations" / "a.txt").write_text("x")
    (at / "images" / "3.png").write_bytes(picture(3))
    yield Case("notes, and an image more", path_in(at), rows)


@cell("COCO", oddity="nested folders")
def _(format: str, at: Path) -> Iterator[Case]:
    (at / "images" / "x").mkdir(parents=True)
    yield Case("of images", path_in(at), write_coco(path_in(at), [1, 2], "x/{}.png"))


@cell("COCO", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    path = path_in(at / "a")
    rows = write_coco(path, [1, 2], info={"year": 2017}, licenses=[{"id": 1}])
    text = json.dumps(json.loads(path.read_text()), indent=1)
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text(text, encoding=encoding)
        yield Case(encoding, path, rows)
    path.write_text(text, encoding="utf-16")
    yield Case("UTF-16", path, None, [path])
    path = path_in(at / "b")
    write_coco(path, [1, 2], categories=[])
    yield Case("an unknown category", path, None, [path, "7"])
    path.write_text(text[:-9])
    yield Case("cut", path, None, [path])


@cell("COCO", oddity="NaN and infinities")
def _(format: str, at: Path) -> Iterator[Case]:
    for name, value in (("NaN", np.nan), ("infinity", -np.inf)):
        path = path_in(at / name)
        rows = write_coco(path, [1], annotations=[NOTE | {"bbox": [1, value, 3, 4]}])
        rows[0]["boxes"] = np.array([[1, value, 3, 4]])
        yield Case(name, path, rows)


@cell("COCO", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    path = path_in(at / "a")
    rows = write_coco(path, [1, 2], images=[{"id": n, "file_name": "001.png"} for n in (1, 2)])
    rows[1]["image"] = rows[0]["image"]
    yield Case("a file twice", path, rows)
    path = path_in(at / "b")
    write_coco(path, [1, 2], images=[{"id": 1, "file_name": f"00{n}.png"} for n in (1, 2)])
    yield Case("an id twice", path, None, [path, "1"])
