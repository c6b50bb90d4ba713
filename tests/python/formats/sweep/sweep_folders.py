"""Oddities of folders: of images, of sounds, of MDS."""

from __future__ import annotations

import io
import json
import os
import wave
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sweep_cases import NUMBERS, ODD_NAMES, Case, Rows, cell
from sweep_writers import Numbers, picture, text_of


def write_folder(at: Path, numbers: Sequence[int], suffix: str = ".png") -> Rows:
    """Two classes of images, by turns."""
    names = sorted({"ab"[number % 2] for number in numbers})
    rows: list[tuple[str, int, bytes]] = []
    for number in numbers:
        name = "ab"[number % 2]
        (at / name).mkdir(parents=True, exist_ok=True)
        (at / name / f"{number:03}{suffix}").write_bytes(picture(number))
        rows.append((f"{name}/{number:03}", names.index(name), picture(number)))
    return [{"image": data, "label": np.int64(label)} for _, label, data in sorted(rows)]


def wav(number: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(np.arange(number, number + 20, dtype="<i2").tobytes())
    return file.getvalue()


def write_sounds(at: Path, numbers: Sequence[int]) -> Rows:
    at.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (at / f"{number:03}.wav").write_bytes(wav(number))
    return [{"audio": wav(number)} for number in numbers]


def write_mds(at: Path, numbers: Numbers, **more: Any) -> Rows:
    """By the layout of Streaming's MDSWriter: numbers before texts, as their sizes are known."""
    at.mkdir(parents=True, exist_ok=True)
    texts = [text_of(each).encode() for each in numbers]
    cells = [
        np.uint32(len(text)).tobytes() + text + np.float64(x).tobytes()
        for x, text in zip(numbers, texts, strict=True)
    ]
    begin = 4 + 4 * (len(cells) + 1)
    ends = np.cumsum([begin, *map(len, cells)]).astype("<u4").tobytes()
    data = np.uint32(len(cells)).tobytes() + ends + b"".join(cells)
    shards = []
    if cells:
        (at / "shard.00000.mds").write_bytes(data)
        shards = [
            {
                "column_names": ["text", "x"],
                "column_encodings": ["str", "float64"],
                "column_sizes": [None, 8],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
                "samples": len(cells),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": None,
            }
            | more
        ]
    (at / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    return [
        {"text": text.decode(), "x": np.float64(x)} for x, text in zip(numbers, texts, strict=True)
    ]


WRITES: dict[str, Callable[[Path, Any], Rows]] = {
    "folder": write_folder,
    "sounds": write_sounds,
    "MDS": write_mds,
}
"""Datasets that are folders."""


@cell(*WRITES, oddity="splits")
def _(format: str, at: Path) -> Iterator[Case]:
    rows = {}
    for split, first in (("train", 1), ("test", 101)):
        rows[split] = WRITES[format](at / split, np.arange(first, first + 4))
    yield Case("no `split=`", at, None, [at, "split='train'"])
    yield Case("asked", at, rows["test"], options={"split": "test"})
    yield Case("an unknown split", at, None, [at, "'val'"], {"split": "val"})


@cell(*WRITES, oddity="links")
def _(format: str, at: Path) -> Iterator[Case]:
    rows = WRITES[format](at / "there", NUMBERS)
    (at / "link").symlink_to(at / "there")
    yield Case("a linked folder", at / "link", rows)
    for name, link in (("links", os.symlink), ("hard links", os.link)):
        for each in sorted((at / "there").rglob("*")):
            target = at / name / each.relative_to(at / "there")
            target.parent.mkdir(parents=True, exist_ok=True)
            if each.is_file():
                link(each, target)
        yield Case(f"a folder of {name}", at / name, rows)


@cell(*WRITES, oddity="names")
def _(format: str, at: Path) -> Iterator[Case]:
    for number, name in enumerate(ODD_NAMES):
        rows = WRITES[format](at / str(number) / name, NUMBERS)
        if format == "sounds":
            (at / str(number) / name / "001.wav").rename(at / str(number) / name / f"000{name}.wav")
        if format == "folder":
            (at / str(number) / name / "a" / "002.png").rename(
                at / str(number) / name / "a" / f"002{name}.png"
            )
        yield Case(ascii(name), at / str(number) / name, rows)


@cell(*WRITES, oddity="zero samples")
def _(format: str, at: Path) -> Iterator[Case]:
    (at / "a").mkdir()
    WRITES[format](at / "a", NUMBERS[:0])
    yield Case("none", at / "a", None, [at / "a"])
    if format == "folder":
        (at / "b").mkdir()
        (at / "b" / "x").mkdir()
        (at / "b" / "y").mkdir()
        (at / "b" / "x" / "1.png").write_bytes(picture(1))
        yield Case("an empty class", at / "b", None, [at / "b", "y"])


@cell(*WRITES, oddity="one sample")
def _(format: str, at: Path) -> Iterator[Case]:
    yield Case("one", at / "a", WRITES[format](at / "a", NUMBERS[:1]))


@cell(*WRITES, oddity="files beside")
def _(format: str, at: Path) -> Iterator[Case]:
    rows = WRITES[format](at, NUMBERS)
    for name in ("README.md", ".hidden", "LICENSE", "a.log"):
        (at / name).write_text("x")
    yield Case("notes", at, rows)
    if format == "sounds":
        (at / "a.png").write_bytes(picture(1))
        yield Case("images", at, None, [at, "png"])


@cell(*WRITES, oddity="nested folders")
def _(format: str, at: Path) -> Iterator[Case]:
    if format == "folder":
        rows = write_folder(at / "deep", NUMBERS)
        for name in "ab":
            (at / "classes" / name / "x").mkdir(parents=True)
            (at / "deep" / name).rename(at / "classes" / name / "x" / "y")
        yield Case("in classes", at / "classes", rows)
        return
    rows = WRITES[format](at / "x" / "y", NUMBERS)
    if format == "sounds":
        rows = [row | {"label": np.int64(0)} for row in rows]
        yield Case("in classes", at, rows)
    else:
        yield Case("one folder", at, None, [at, f"hr.open('{at}/x/y')"])
        WRITES[format](at / "z", NUMBERS)
        yield Case("folders", at, None, [at, f"hr.open('{at}/x/y')", f"hr.open('{at}/z')"])


@cell("folder", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    yield Case("a PNG called .jpg", at / "a", write_folder(at / "a", NUMBERS, ".jpg"))


@cell("folder", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    write_folder(at, [2, 4])
    (at / "b").symlink_to(at / "a")
    rows = [{"image": picture(n), "label": np.int64(c)} for c in (0, 1) for n in (2, 4)]
    yield Case("a class twice", at, rows)


@cell("sounds", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    plain = wav(1)
    odd = plain[:4] + b"\xff" * 4 + plain[8:40] + b"\xff" * 4 + plain[44:]
    listed = plain[:36] + b"LIST" + (5).to_bytes(4, "little") + b"ISFTx\0" + plain[36:]
    for name, data in (("of a pipe", odd), ("a list", listed)):
        (at / name).mkdir()
        (at / name / "1.wav").write_bytes(data)
        yield Case(name, at / name, [{"audio": data}])
    (at / "none").mkdir()
    (at / "none" / "1.wav").write_bytes(plain[:12])
    yield Case("no data", at / "none", [{"audio": plain[:12]}], ["1.wav"], warns=True)


@cell("sounds", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    rows = write_sounds(at, [1, 2])
    (at / "003.wav").symlink_to(at / "001.wav")
    yield Case("a file twice", at, [*rows, rows[0]])


@cell("MDS", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    write_mds(at / "a", NUMBERS, samples=4)
    yield Case("another count", at / "a", None, [at / "a"])
    write_mds(at / "b", NUMBERS, column_encodings=["str", "pkl"], column_sizes=[None, None])
    yield Case("pickles", at / "b", None, [at / "b", "'x'"])
    write_mds(at / "c", NUMBERS, format="csv")
    yield Case("another format", at / "c", None, [at / "c"])
    write_mds(at / "d", NUMBERS)
    (at / "d" / "index.json").write_text("{")
    yield Case("no JSON", at / "d", None, [at / "d"])
    write_mds(at / "e", NUMBERS)
    shard = at / "e" / "shard.00000.mds"
    shard.write_bytes(shard.read_bytes()[:-1])
    yield Case("cut", at / "e", None, [shard])


@cell("MDS", oddity="NaN and infinities")
def _(format: str, at: Path) -> Iterator[Case]:
    yield Case("", at, write_mds(at, np.array([np.nan, np.inf, -np.inf, -0.0])))


@cell("MDS", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    write_mds(at / "a", NUMBERS, column_names=["x", "x"])
    yield Case("columns of one name", at / "a", None, [at / "a", "'x'"])
