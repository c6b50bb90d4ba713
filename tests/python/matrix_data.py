"""The datasets of the matrix test, whose payload says which sample it is.

Others are made of these: packs, compressed files, row groups.
"""

from __future__ import annotations

import gzip
import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loader_data import COUNT, LABELS, write_numbered
from matrix_cells import NODES
from served_objects.object_server import ObjectServer
from worker_functions import WIDTH, records

import headrace as hr
from headrace import _core
from headrace.formats import Builder
from headrace.pack import PackParameters, write_pack

FIELDS = {
    "inline": ["label"],
    "stored": ["image"],
    "both": None,  # As a user has it who names none.
    "one-of-several": ["record"],
    "several": ["weight", "image", "record", "label", "tokens"],  # Batches hold wider tokens.
    "mapped": ["record"],  # In one file, large enough to be copied from a mapping.
    "ragged": ["said", "caption", "boxes", "frames"],  # Samples differ in length.
    "compressed": ["said", "record"],  # Each sample by itself.
    "nested": ["turns"],  # Lists of lists; some samples have no bytes.
}
FILLED = ["level", "age", "age_valid", "said"]
"""The fields of the dataset that `open_filled` opens."""
MIXED = {"here": 2.0, "there": 1.0}
"""The weights of the mixture that `open_mixed` opens."""
HAVE_IMAGES = ("stored", "both", "several")
SIDE = 8  # of the images that transforms give
TOKENS = 24  # of a sample; two bytes each in storage, eight in batches
DECODED_ROWS = 7  # of a compressed file, or of a row group


BUCKET = "matrix"
_SERVED_ZIPPED = "plain.mds"

_OWN_DATA = ("mapped", "ragged", "compressed", "nested")


@dataclass(frozen=True)
class Data:
    """Folder and pack of images with labels, and of samples of five fields, below one root."""

    root: Path

    def path(self, fields: str, kind: str, node: int | None = None) -> Path:
        """`node`: what lies on this node's own disks, where the format has homes."""
        name = fields if fields in _OWN_DATA else "plain"
        if "several" in fields:
            name = "several"
        if kind == "homes" and node is not None:
            return self.root / f"{name}.homes-{node}"
        if kind == "folder":
            return self.root / ("images" if name == "plain" else f"{name}.hri")
        return self.root / f"{name}.{kind}{'.hri' if kind == 'zipped' else ''}"

    def url(self, path: Path) -> str:
        """Where `put` has a file or folder of the data."""
        name = path.relative_to(self.root).as_posix().replace("plain.zipped.hri", _SERVED_ZIPPED)
        return f"s3://{BUCKET}/{name}"

    def put(self, server: ObjectServer) -> None:
        """Writes the plain data to an object store; what is zipped as shards of MDS."""
        source = hr.open(self.path("both", "folder"), index=self.root / "plain.hri")
        write_zstd_shards(source, self.root / _SERVED_ZIPPED)
        for name in ("images", "plain.pack", "plain.homes", "plain.row-groups", _SERVED_ZIPPED):
            for path in (self.root / name).rglob("*"):
                if path.is_file():
                    key = path.relative_to(self.root).as_posix()
                    server.put(key, path.read_bytes(), bucket=BUCKET)

    @property
    def elsewhere(self) -> Data:
        """The plain data in other files: names and sizes differ, numbers and pixels do not."""
        return Data(self.root / "elsewhere")

    def open_split(self, kind: str) -> hr.Dataset:
        """The part `train` of a folder of two, which is the plain data."""
        return hr.open(self.root / f"parts.{kind}", split="train")

    def open_mixed(self, kind: str) -> hr.Dataset:
        """The plain data and their copy in other files, whose numbers come after those."""
        sources = {"here": self.path("both", kind), "there": self.elsewhere.path("both", kind)}
        return hr.mix(sources, MIXED)

    def open_filled(self) -> hr.Dataset:
        """Columns with nulls, which `fill=` and `optional=` give values."""
        options = hr.formats.Parquet(fill={"level": -1, "said": "none"}, optional=("age",))
        return hr.open(self.root / "absent.row-groups", format=options)

    def encoded(self, sample: int) -> bytes:
        if sample >= COUNT:  # of the mixture
            return self.elsewhere.encoded(sample - COUNT)
        (path,) = (self.root / "images").glob(f"*/{sample:03}.jpg")
        return path.read_bytes()


def write_data(root: Path) -> Data:
    data = Data(root)
    write_numbered(root / "images")
    _write_several(root)
    _write_mapped(root)
    _write_ragged(root)
    _write_compressed(root)
    _write_nested(root)
    for fields in ("both", "several", *_OWN_DATA):
        index = {"index": root / "plain.hri"} if fields == "both" else {}
        parameters = PackParameters(order="source", block_bytes=6_000, shard_bytes=30_000)
        source = hr.open(data.path(fields, "folder"), **index)
        write_pack(source, data.path(fields, "pack"), parameters)
        if fields == "nested":
            _write_nested_zipped(data.path(fields, "zipped"))
        else:
            _write_zipped(source, data.path(fields, "zipped"))
        write_row_groups(source, data.path(fields, "row-groups"))
        _write_homes(source, data, fields)
    _write_elsewhere(data)
    _write_parts(data)
    _write_absent(root / "absent.row-groups")
    return data


def _write_elsewhere(data: Data) -> None:
    root = data.elsewhere.root
    for path in sorted((data.root / "images").glob("*/*.jpg")):
        folder = root / "images" / path.parent.name.replace("class", "kind")
        folder.mkdir(parents=True, exist_ok=True)
        more = b"\xff\xfe\0\x12" + b"another file...."  # A comment of JPEG.
        (folder / path.name).write_bytes(path.read_bytes()[:2] + more + path.read_bytes()[2:])
    source = hr.open(root / "images", index=root / "plain.hri")
    parameters = PackParameters(order="source", block_bytes=6_000, shard_bytes=30_000)
    write_pack(source, data.elsewhere.path("both", "pack"), parameters)
    _write_zipped(source, data.elsewhere.path("both", "zipped"))
    write_row_groups(source, data.elsewhere.path("both", "row-groups"))


def _write_parts(data: Data) -> None:
    """The plain data as `train`, and one class of it as `test`."""
    folders = data.root / "parts.folder"
    folders.mkdir()
    shutil.copytree(data.root / "images", folders / "train")
    shutil.copytree(data.root / "images" / "class1", folders / "test" / "class1")
    tables = data.root / "parts.row-groups"
    tables.mkdir()
    for number, path in enumerate(sorted(data.path("both", "row-groups").iterdir())):
        shutil.copy(path, tables / f"train-{number:05}-of-00002.parquet")
    shutil.copy(path, tables / "test-00000-of-00001.parquet")


def _write_absent(folder: Path) -> None:
    folder.mkdir()
    columns = {
        name: [None if n in ABSENT[name] else values[n] for n in range(COUNT)]
        for name, values in (("level", range(COUNT)), ("age", range(COUNT)), ("said", _texts()))
    }
    types = {"level": pa.int64(), "age": pa.float32(), "said": pa.string()}
    table = pa.table({name: pa.array(columns[name], types[name]) for name in types})
    path = folder / "part-0.parquet"
    pq.write_table(table, path, compression="zstd", row_group_size=DECODED_ROWS)


ABSENT = {
    "level": {*range(0, COUNT, 5)},
    "age": {*range(1, COUNT, 3), COUNT - 1},
    "said": {*range(2, COUNT, 7)},
}
"""The samples without a value of each column."""


def _texts() -> list[str]:
    return [f"{number} été" for number in range(COUNT)]


def _write_homes(source: hr.Dataset, data: Data, fields: str) -> None:
    """A pack for two nodes, and what each of them has of it."""
    target = data.path(fields, "homes")
    parameters = PackParameters(order="source", block_samples=4, shards_over=NODES)
    write_pack(source, target, parameters)
    for node in range(NODES):
        own = shutil.copytree(target, data.path(fields, "homes", node))
        for other in range(NODES):
            if other != node:
                shutil.rmtree(own / f"home-{other}")


def _write_zipped(source: hr.Dataset, index: Path) -> None:
    """Files of a few samples each: gzip, zstd, and as they are."""
    folder = index.with_suffix(".files")
    folder.mkdir()
    stored = [field.name for field in source.index.fields if not field.is_inline]
    dtypes = {field.name: field.dtype for field in source.index.fields}
    rows = list(source)
    with Builder(index, root=folder, decodes=True) as builder:
        for field in source.index.fields:
            is_list = field.kind == "list"
            kind: Any = "array" if is_list else field.kind
            dtype = field.dtype if kind == "array" else None
            shape = (None, *field.shape) if is_list else field.shape
            wide = None if field.batch_dtype == field.dtype else field.batch_dtype
            builder.add_field(
                field.name, kind, dtype, shape, inline=field.is_inline, batch_dtype=wide or None
            )
            if field.is_inline:
                builder.add_values(field.name, [row[field.name] for row in rows])
        for number, first in enumerate(range(0, len(rows), DECODED_ROWS)):
            part = rows[first : first + DECODED_ROWS]
            values = [[_stored(row[name], dtypes[name]) for name in stored] for row in part]
            file, size = _add_zipped(
                builder, folder / f"{number:03}", b"".join(map(b"".join, values))
            )
            sizes = np.array([[len(value) for value in row] for row in values])
            ends = np.cumsum(sizes).reshape(sizes.shape)
            for column, name in enumerate(stored):
                offsets = (ends - sizes)[:, column]
                builder.add_extents(name, file, offsets, sizes[:, column])
            builder.add_blocks([len(part)], file, 0, size)
        builder.set_classes(source.classes)
        builder.set_attribute("format", "test")


def _write_nested_zipped(index: Path) -> None:
    folder = index.with_suffix(".files")
    folder.mkdir()
    with Builder(index, root=folder, decodes=True) as builder:
        builder.add_field("turns", "array", "int32", (None, None))
        for first in range(0, COUNT, DECODED_ROWS):
            part = NESTED["turns"][first : first + DECODED_ROWS]
            data, sizes, inner = _joined(part)
            file, size = _add_zipped(builder, folder / f"{first:03}", data)
            builder.add_extents("turns", file, np.cumsum(sizes) - sizes, sizes, inner=inner)
            builder.add_blocks([len(part)], file, 0, size)
        builder.set_attribute("format", "test")


def _joined(samples: list[list[Any]]) -> tuple[bytes, Any, tuple[list[int], list[int]]]:
    """Lists of arrays as they are stored: their bytes, how many a sample has, and the lengths."""
    parts = [b"".join(each.tobytes() for each in sample) for sample in samples]
    lengths = [len(each) for sample in samples for each in sample]
    return b"".join(parts), np.array(list(map(len, parts))), (lengths, list(map(len, samples)))


def _stored(value: Any, dtype: str) -> bytes:
    if isinstance(value, np.ndarray) and dtype:
        value = value.astype(dtype)
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def _add_zipped(builder: Builder, path: Path, data: bytes) -> tuple[int, int]:
    """Writes a file and adds it: its number, and what it decodes to."""
    coding: Any = ("gzip", "zstd", "stored")[int(path.name) % 3]
    packed = {"gzip": gzip.compress, "zstd": pa.Codec("zstd").compress, "stored": bytes}[coding]
    path.write_bytes(memoryview(packed(data)))
    size = None if coding == "stored" else len(data)
    return builder.add_file(path, coding=coding, decoded_bytes=size), len(data)


def write_row_groups(source: hr.Dataset, folder: Path) -> None:
    """Compressed Parquet, of two files."""
    folder.mkdir()
    rows = list(source)
    if source.fields == ("turns",):
        lists = [[each.tolist() for each in row["turns"]] for row in rows]
        table = pa.table({"turns": pa.array(lists, pa.list_(pa.list_(pa.int32())))})
    else:
        columns = {
            field.name: pa.array(
                [row[field.name].tolist() if _is_array(field) else row[field.name] for row in rows],
                _arrow_type(field),
            )
            for field in source.index.fields
        }
        table = pa.table(columns)
    for number, part in enumerate((table.slice(0, 20), table.slice(20))):
        path = folder / f"part-{number}.parquet"
        pq.write_table(part, path, compression="zstd", row_group_size=DECODED_ROWS)


def _is_array(field: _core.Field) -> bool:
    return field.kind in ("array", "list")


def _arrow_type(field: _core.Field) -> Any:
    if not _is_array(field):
        return {"text": pa.string()}.get(field.kind, pa.binary())
    found = pa.from_numpy_dtype(np.dtype(field.batch_dtype or field.dtype))
    for size in reversed(field.shape):
        found = pa.list_(found, size)
    return pa.list_(found) if field.kind == "list" else found


def write_zstd_shards(source: hr.Dataset, folder: Path) -> None:
    """MDS shards of images and labels, each compressed as a whole."""
    folder.mkdir()
    rows = list(source)
    shards = []
    for number, first in enumerate(range(0, len(rows), DECODED_ROWS)):
        part = rows[first : first + DECODED_ROWS]
        samples = [
            np.uint32(len(row["image"])).tobytes() + row["image"] + np.int64(row["label"]).tobytes()
            for row in part
        ]
        ends = np.cumsum([4 * (len(part) + 2), *map(len, samples)]).astype(np.uint32)
        data = np.uint32(len(part)).tobytes() + ends.tobytes() + b"".join(samples)
        packed = pa.Codec("zstd").compress(data, asbytes=True)
        name = f"shard.{number:05}.mds"
        (folder / f"{name}.zstd").write_bytes(packed)
        shards.append(
            {
                "column_encodings": ["jpeg", "int"],
                "column_names": ["image", "label"],
                "column_sizes": [None, 8],
                "compression": "zstd",
                "format": "mds",
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "samples": len(part),
                "zip_data": {"basename": f"{name}.zstd", "bytes": len(packed), "hashes": {}},
            }
        )
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def _write_several(root: Path) -> None:
    """Three stored and two inline fields; records and tokens are a file each."""
    records(COUNT).tofile(root / "records.bin")
    ARRAYS["tokens"].astype(np.uint16).tofile(root / "tokens.bin")
    paths = sorted(root.glob("images/*/*.jpg"))
    files = [*paths, root / "records.bin", root / "tokens.bin"]
    stats = [path.stat() for path in files]
    sizes = np.array([stat.st_size for stat in stats], np.uint64)
    contents = _core.IndexContents(COUNT, str(root))
    contents.add_objects(
        [str(path.relative_to(root)) for path in files],
        sizes,
        np.array([stat.st_mtime_ns for stat in stats]),
    )
    numbers, zeros = np.arange(COUNT, dtype=np.uint64), np.zeros(COUNT, np.uint64)
    contents.add_extent_field("image", ("image", "uint8", ()), (numbers, zeros, sizes[:-2].copy()))
    size = np.uint64(4 * WIDTH)
    extents = (zeros + np.uint64(COUNT), numbers * size, zeros + size)
    contents.add_extent_field("record", ("array", "float32", (WIDTH,)), extents)
    size = np.uint64(2 * TOKENS)
    extents = (zeros + np.uint64(COUNT + 1), numbers * size, zeros + size)
    contents.add_extent_field("tokens", ("array", "uint16", (TOKENS,)), extents, None, "int64")
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


def _write_nested(root: Path) -> None:
    data, sizes, inner = _joined(NESTED["turns"])
    (root / "nested.bin").write_bytes(data)
    with Builder(root / "nested.hri", root=root) as builder:
        builder.add_field("turns", "array", "int32", (None, None))
        file = builder.add_file(root / "nested.bin")
        builder.add_extents("turns", file, np.cumsum(sizes) - sizes, sizes, inner=inner)
        builder.set_attribute("format", "test")


def weights() -> np.ndarray[Any, Any]:
    return (np.arange(2 * COUNT) / 4).astype(np.float32).reshape(COUNT, 2)


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "label": LABELS.astype(np.int64),
    "record": records(COUNT),
    "tokens": np.arange(COUNT * TOKENS, dtype=np.int64).reshape(COUNT, TOKENS) * 28,
    "weight": weights(),
    "level": np.array([-1 if n in ABSENT["level"] else n for n in range(COUNT)]),
    "age": np.array([0 if n in ABSENT["age"] else n for n in range(COUNT)], np.float32),
    "age_valid": np.array([n not in ABSENT["age"] for n in range(COUNT)]),
}
"""Of each field that is an array, the values of all samples."""

RAGGED: dict[str, list[Any]] = {
    "said": [f"{i} été " * (i % 7) for i in range(COUNT)],
    "caption": [f"№ {i} " * (i % 5) for i in range(COUNT)],
    "boxes": [np.full((i % 4, 4), i, np.float32) for i in range(COUNT)],
    "frames": [np.arange(i % 9, dtype=np.int16) + i for i in range(COUNT)],
}
FILLED_TEXTS = ["none" if n in ABSENT["said"] else text for n, text in enumerate(_texts())]
"""Of the field `said` of the dataset that `open_filled` opens."""
"""Of each field whose samples differ in length, those of all samples."""

NESTED: dict[str, list[list[Any]]] = {
    "turns": [
        [np.arange(i, i + (i + j) % 4, dtype=np.int32) for j in range(i % 5)] for i in range(COUNT)
    ],
}
"""Of each field that is lists of lists, those of all samples. Every fifth has none."""
