"""The cells of the sweep. Here those that all formats of files have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sweep_arrays  # noqa: F401
import sweep_coco  # noqa: F401
import sweep_folders  # noqa: F401
import sweep_shards  # noqa: F401
import sweep_tables  # noqa: F401
from sweep_cases import CELLS, NUMBERS, ODD_NAMES, Case, cell
from sweep_writers import KINDS, Kind, picture

FORMATS = ("folder", "sounds", *KINDS, "MDS", "COCO")


def options_of(kind: Kind) -> dict[str, Any]:
    return {} if kind.format is None else {"format": kind.format}


@cell(*KINDS, oddity="splits")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    options = options_of(kind)
    rows = {}
    for split, first in (("train", 1), ("test", 101)):
        numbers = np.arange(first, first + 3)
        kind.write(at / f"{split}{kind.suffix}", numbers)
        rows[split] = kind.rows(numbers)
    yield Case("no `split=`", at, None, [at, "split='train'", "test"], options)
    yield Case("asked", at, rows["test"], options=options | {"split": "test"})
    yield Case("an unknown split", at, None, [at, "'val'"], options | {"split": "val"})


@cell(*KINDS, oddity="links")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    options = options_of(kind)
    for folder in ("there", "here", "both", "lost"):
        (at / folder).mkdir()
    there = at / "there" / f"a{kind.suffix}"
    kind.write(there, NUMBERS)
    rows = kind.rows(NUMBERS)
    soft, hard = at / f"soft{kind.suffix}", at / f"hard{kind.suffix}"
    soft.symlink_to(there)
    yield Case("a link", soft, rows, options=options)
    os.link(there, hard)
    yield Case("a hard link", hard, rows, options=options)
    (at / "linked").symlink_to(at / "there")
    yield Case("a linked folder", at / "linked", rows, options=options)
    (at / "here" / f"a{kind.suffix}").symlink_to(there)
    yield Case("a folder of links", at / "here", rows, options=options)
    lost = at / "lost" / f"a{kind.suffix}"
    lost.symlink_to(at / "nowhere")
    yield Case("to nothing", lost, None, [lost], options)


@cell(*KINDS, oddity="names")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    for number, name in enumerate(ODD_NAMES):
        folder = at / str(number) / name
        folder.mkdir(parents=True)
        path = folder / f"{name}{kind.suffix}"
        kind.write(path, NUMBERS)
        yield Case(ascii(name), path, kind.rows(NUMBERS), options=options_of(kind))


@cell(*KINDS, oddity="zero samples")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    path = at / f"a{kind.suffix}"
    kind.write(path, NUMBERS[:0])
    yield Case("no rows", path, None, [path], options_of(kind))
    empty = at / f"b{kind.suffix}"
    empty.write_bytes(b"")
    yield Case("no bytes", empty, None, [empty], options_of(kind))


@cell(*KINDS, oddity="one sample")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    path = at / f"a{kind.suffix}"
    kind.write(path, NUMBERS[:1])
    yield Case("one", path, kind.rows(NUMBERS[:1]), options=options_of(kind))


@cell(*KINDS, oddity="files beside")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    options = options_of(kind)
    # A message about tokens names windows of 1,024.
    numbers = np.arange(600) if format == "tokens" else NUMBERS
    for folder in ("notes", "other"):
        (at / folder).mkdir()
        kind.write(at / folder / f"a{kind.suffix}", numbers)
    for name in ("README.md", ".hidden", "LICENSE", *(["a.log"] * (format != "Parquet"))):
        (at / "notes" / name).write_text("x")
    yield Case("notes", at / "notes", kind.rows(numbers), options=options)
    (at / "other" / "a.png").write_bytes(picture(1))
    rows = kind.rows(numbers)
    if format == "Parquet":
        yield Case("images", at / "other", rows, ["1 .png"], warns=True)
    else:
        yield Case("images", at / "other", None, [at / "other", "1 .png"])


@cell(*KINDS, oddity="nested folders")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    options = options_of(kind)
    rows = []
    for folder, first in (("x", 1), ("y", 101)):
        (at / folder / "deep").mkdir(parents=True)
        numbers = np.arange(first, first + (600 if format == "tokens" else 3))
        kind.write(at / folder / "deep" / f"a{kind.suffix}", numbers)
        rows += kind.rows(numbers)
    yield Case("the folder", at, None, [at])
    yield Case("with `format=`", at, None, [at, "format="], {"format": kind.format or kind.named})
    yield Case("by a pattern", f"{at}/**/*{kind.suffix}", rows, options=options)


@cell(*KINDS, oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    kind = KINDS[format]
    path = at / f"a{kind.suffix}"
    kind.write(path, NUMBERS)
    yield Case("a file twice", [path, path], kind.rows(NUMBERS) * 2, [path], options_of(kind))


def cases(format: str, oddity: str, at: Path) -> Iterator[Case]:
    """Written while they are iterated."""
    for number, write in enumerate(CELLS.get((format, oddity), [])):
        (at / str(number)).mkdir()
        yield from write(format, at / str(number))
