"""The datasets of the matrix test, whose payload says which sample it is."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from loader_data import COUNT, LABELS, write_numbered
from worker_functions import WIDTH, records

import headrace as hr
from headrace import _core
from headrace.formats import Builder
from headrace.formats.pack import PackParameters, write_pack

FIELDS = {
    "inline": ["label"],
    "stored": ["image"],
    "both": None,  # As a user has it who names none.
    "one-of-several": ["record"],
    "several": ["weight", "image", "record", "label"],
    "mapped": ["record"],  # In one file, large enough to be copied from a mapping.
    "ragged": ["said", "caption", "boxes", "frames"],  # Samples differ in length.
    "compressed": ["said", "record"],  # Each sample by itself.
}
SIDE = 8  # of the images that transforms give


@dataclass(frozen=True)
class Data:
    """Folder and pack of images with labels, and of samples of four fields, below one root."""

    root: Path

    def path(self, fields: str, kind: str) -> Path:
        if fields in ("mapped", "ragged", "compressed"):
            return self.root / (f"{fields}.pack" if kind == "pack" else f"{fields}.hri")
        several = "several" in fields
        if kind == "pack":
            return self.root / ("several.pack" if several else "plain.pack")
        return self.root / "several.hri" if several else self.root / "images"

    def encoded(self, sample: int) -> bytes:
        (path,) = (self.root / "images").glob(f"*/{sample:03}.jpg")
        return path.read_bytes()


def write_data(root: Path) -> Data:
    data = Data(root)
    write_numbered(root / "images")
    _write_several(root)
    _write_mapped(root)
    _write_ragged(root)
    _write_compressed(root)
    for fields in ("both", "several", "mapped", "ragged", "compressed"):
        index = {"index": root / "plain.hri"} if fields == "both" else {}
        parameters = PackParameters(order="source", block_bytes=6_000, shard_bytes=30_000)
        source = hr.open(data.path(fields, "folder"), **index)
        write_pack(source, data.path(fields, "pack"), parameters)
    return data


def _write_several(root: Path) -> None:
    """Two stored and two inline fields; the images are files, the records one file."""
    records(COUNT).tofile(root / "records.bin")
    paths = sorted(root.glob("images/*/*.jpg"))
    files = [*paths, root / "records.bin"]
    stats = [path.stat() for path in files]
    sizes = np.array([stat.st_size for stat in stats], np.uint64)
    contents = _core.IndexContents(COUNT, str(root))
    contents.add_objects(
        [str(path.relative_to(root)) for path in files],
        sizes,
        np.array([stat.st_mtime_ns for stat in stats]),
    )
    numbers, zeros = np.arange(COUNT, dtype=np.uint64), np.zeros(COUNT, np.uint64)
    contents.add_extent_field("image", ("image", "uint8", ()), (numbers, zeros, sizes[:-1].copy()))
    size = np.uint64(4 * WIDTH)
    extents = (zeros + np.uint64(COUNT), numbers * size, zeros + size)
    contents.add_extent_field("record", ("array", "float32", (WIDTH,)), extents)
    contents.add_inline_field("label", ("array", "int64", ()), LABELS.astype(np.int64))
    contents.add_inline_field("weight", ("array", "float32", (2,)), weights())
    contents.set_attribute("format", "test")
    _core.write_index(contents, str(root / "several.hri"))


def _write_mapped(root: Path) -> None:
    """Records in one file, and so much behind them that the stores map it."""
    values = records(COUNT)
    path = root / "mapped.bin"
    path.write_bytes(values.tobytes() + bytes(2**20))
    contents = _core.IndexContents(COUNT, str(root))
    stat = path.stat()
    contents.add_objects(
        [path.name], np.array([stat.st_size], np.uint64), np.array([stat.st_mtime_ns])
    )
    size = np.uint64(values[0].nbytes)
    zeros = np.zeros(COUNT, np.uint64)
    extents = (zeros, np.arange(COUNT, dtype=np.uint64) * size, zeros + size)
    contents.add_extent_field("record", ("array", "float32", (WIDTH,)), extents)
    contents.set_attribute("format", "test")
    _core.write_index(contents, str(root / "mapped.hri"))


def _write_ragged(root: Path) -> None:
    """Text and a list in a file, and such fields in the index."""
    stored = [
        part
        for said, frames in zip(RAGGED["said"], RAGGED["frames"], strict=True)
        for part in (said.encode(), frames.tobytes())
    ]
    (root / "ragged.bin").write_bytes(b"".join(stored))
    sizes = [len(part) for part in stored]
    starts = np.cumsum([0, *sizes[:-1]])
    with Builder(root / "ragged.hri", root=root) as builder:
        file = builder.add_file(root / "ragged.bin")
        builder.add_field("said", "text")
        builder.add_field("caption", "text", inline=True)
        builder.add_field("boxes", "array", "float32", (None, 4), inline=True)
        builder.add_field("frames", "array", "int16", (None,))
        builder.add_extents("said", file, starts[::2], sizes[::2])
        builder.add_extents("frames", file, starts[1::2], sizes[1::2])
        builder.add_values("caption", RAGGED["caption"])
        builder.add_values("boxes", RAGGED["boxes"])
        builder.set_attribute("format", "test")


def _write_compressed(root: Path) -> None:
    """Text and records in a file, compressed in two ways; the records shuffled, too."""
    with (
        Builder(root / "compressed.hri", root=root) as builder,
        (root / "compressed.bin").open("wb") as out,
    ):
        places: dict[str, list[tuple[int, int, int]]] = {"said": [], "record": []}
        values = records(COUNT)
        for said, record in zip(RAGGED["said"], values, strict=True):
            shuffled = record.view(np.uint8).reshape(-1, 4).T.tobytes()
            for name, packed, size in (
                ("said", bytes(pa.Codec("zstd").compress(said.encode())), len(said.encode())),
                ("record", zlib.compress(shuffled), record.nbytes),
            ):
                places[name].append((out.tell(), len(packed), size))
                out.write(packed)
        out.flush()
        builder.add_field("said", "text", coding="zstd")
        builder.add_field("record", "array", "float32", (WIDTH,), coding="zlib", shuffled=True)
        file = builder.add_file(out.name)
        for name, found in places.items():
            offsets, sizes, decoded = np.array(found).T
            more = {} if name == "record" else {"decoded": decoded}
            builder.add_extents(name, file, offsets, sizes, **more)
        builder.set_attribute("format", "test")


def weights() -> np.ndarray[Any, Any]:
    return (np.arange(2 * COUNT) / 4).astype(np.float32).reshape(COUNT, 2)


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "label": LABELS.astype(np.int64),
    "record": records(COUNT),
    "weight": weights(),
}
"""Of each field that is an array, the values of all samples."""

RAGGED: dict[str, list[Any]] = {
    "said": [f"{i} été " * (i % 7) for i in range(COUNT)],
    "caption": [f"№ {i} " * (i % 5) for i in range(COUNT)],
    "boxes": [np.full((i % 4, 4), i, np.float32) for i in range(COUNT)],
    "frames": [np.arange(i % 9, dtype=np.int16) + i for i in range(COUNT)],
}
"""Of each field whose samples differ in length, those of all samples."""
