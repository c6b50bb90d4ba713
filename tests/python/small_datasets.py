"""A small dataset of each format that tests can write, in a folder that can be copied."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import headrace as hr
from headrace import _core, _places
from headrace.formats import Builder, Format, Records, Tokens
from headrace.formats._files.objects import folder_of
from headrace.formats._tfrecord.records import masked_crc
from headrace.formats._tokens import megatron
from headrace.pack import PackParameters, write_pack

ROWS = 24
BATCH = 4


def picture(i: int) -> bytes:
    file = BytesIO()
    pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def folder(at: Path) -> Path:
    for i in range(ROWS):
        (at / f"class{i % 3}").mkdir(exist_ok=True)
        (at / f"class{i % 3}/{i:02}.png").write_bytes(picture(i))
    return at


def npy(at: Path) -> Path:
    np.save(at / "rows.npy", np.random.default_rng(1).integers(0, 2**40, (ROWS, 5)))
    return at / "rows.npy"


def npz(at: Path) -> Path:
    rows = np.random.default_rng(1).normal(size=(ROWS, 5))
    np.savez(at / "rows.npz", x=rows, y=np.arange(ROWS))
    return at / "rows.npz"


def records(at: Path) -> Path:
    rows = np.random.default_rng(1).integers(0, 256, (ROWS, 20), np.uint8)
    rows.tofile(at / "rows.bin")
    return at / "rows.bin"


def tokens(at: Path) -> Path:
    """A token file of Megatron, beside its .idx."""
    ids = np.random.default_rng(1).integers(0, 2**15, ROWS * 8 + 1).astype("<u2")
    ids.tofile(at / "text.bin")
    header = megatron.MAGIC + struct.pack("<QBQQ", 1, 8, 1, 2)  # 8: uint16
    sizes, pointers = np.array([len(ids)], "<i4"), np.array([0], "<i8")
    rest = sizes.tobytes() + pointers.tobytes() + np.array([0, 1], "<i8").tobytes()
    (at / "text.idx").write_bytes(header + rest)
    return at / "text.bin"


def tars(at: Path) -> Path:
    for shard in range(3):
        with tarfile.open(at / f"part-{shard}.tar", "w") as tar:
            for i in range(shard * 8, shard * 8 + 8):
                for name, data in ((f"{i:03}.png", picture(i)), (f"{i:03}.txt", b"text %d" % i)):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, BytesIO(data))
    return at


def part(number: int, data: bytes) -> bytes:
    """Of a protocol buffer: a field of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


def tfrecord(at: Path) -> Path:
    framed = []
    for i in range(ROWS):
        data = part(1, part(1, part(1, b"x") + part(2, part(1, part(1, bytes([i]) * (30 + i))))))
        length = struct.pack("<Q", len(data))
        crcs = (struct.pack("<I", masked_crc(each)) for each in (length, data))
        framed.append(length + next(crcs) + data + next(crcs))
    (at / "a.tfrecord").write_bytes(b"".join(framed[: ROWS // 2]))
    (at / "b.tfrecord").write_bytes(b"".join(framed[ROWS // 2 :]))
    return at


class Gzipped(Format):
    """Files of numbers, compressed as a whole."""

    name: ClassVar[str] = "gzipped"
    opens: ClassVar[str] = "a folder of .rows.gz files"

    def recognises(self, path: str) -> bool:
        return False

    def decodes(self, path: str) -> bool:
        return True

    def fill(self, path: str, builder: Builder) -> None:
        builder.add_field("x", "array", "int64")
        for each in sorted(_places.match(f"{path}/*.rows.gz")):
            file = builder.add_file(each, coding="gzip", decoded_bytes=4 * ROWS)
            builder.add_extents("x", file, np.arange(0, 4 * ROWS, 8), 8)


def gzipped(at: Path) -> Path:
    for part in range(2):
        numbers = np.random.default_rng(part).integers(0, 99, ROWS // 2)
        (at / f"{part}.rows.gz").write_bytes(gzip.compress(numbers.tobytes(), mtime=0))
    return at


def table(at: Path) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "x": list(rng.normal(size=(ROWS, 4))),
            "text": [f"row {i}" * (i + 1) for i in range(ROWS)],
            "label": np.arange(ROWS),
        }
    )


def parquet(at: Path) -> Path:
    rows = table(at)
    for part in range(2):
        half = rows.slice(part * ROWS // 2, ROWS // 2)
        pq.write_table(half, at / f"part-{part}.parquet", row_group_size=5)
    return at


def arrow(at: Path) -> Path:
    rows = table(at)
    with pa.OSFile(str(at / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_table(rows, max_chunksize=7)
    return at / "a.arrow"


def manifest(at: Path) -> Path:
    (at / "images").mkdir()
    lines = ["image,label,score"]
    for i in range(ROWS):
        (at / f"images/{i}.png").write_bytes(picture(i))
        lines.append(f"images/{i}.png,{'ab'[i % 2]},{i / 7}")
    (at / "rows.csv").write_text("\n".join(lines) + "\n")
    return at / "rows.csv"


def coco(at: Path) -> Path:
    (at / "annotations").mkdir()
    (at / "train2017").mkdir()
    images = [{"file_name": f"{i:012}.jpg", "id": i, "width": 8} for i in range(ROWS)]
    for i, each in enumerate(images):
        (at / "train2017" / str(each["file_name"])).write_bytes(picture(i))
    notes = [
        {"image_id": i, "id": i, "category_id": i % 2, "bbox": [i, 1, 2, 3], "area": 6}
        for i in range(ROWS)
    ]
    for each in notes:
        each |= {"iscrowd": 0, "segmentation": [[1, 2, 3, 4, 5, 6]]}
    categories = [{"id": i, "name": f"name {i}"} for i in range(2)]
    told = {"images": images, "annotations": notes, "categories": categories}
    path = at / "annotations/instances_train2017.json"
    path.write_text(json.dumps(told))
    return path


def mds(at: Path) -> Path:
    """By the layout of Streaming's MDSWriter."""
    samples = [np.random.default_rng(i).bytes(20 + i) for i in range(ROWS)]
    cells = [np.array([len(each)], "<u4").tobytes() + each for each in samples]
    begin = 4 + 4 * (ROWS + 1)
    ends = np.cumsum([begin, *map(len, cells)]).astype("<u4").tobytes()
    data = np.uint32(ROWS).tobytes() + ends + b"".join(cells)
    (at / "shard.00000.mds").write_bytes(data)
    shard = {
        "column_names": ["x"],
        "column_encodings": ["bytes"],
        "column_sizes": [None],
        "compression": None,
        "format": "mds",
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
        "samples": ROWS,
        "zip_data": None,
    }
    (at / "index.json").write_text(json.dumps({"shards": [shard], "version": 2}))
    return at


def packed(at: Path, **parameters: Any) -> Path:
    source = at.with_name("source")
    source.mkdir(exist_ok=True)
    write_pack(hr.open(folder(source)), at / "packed", PackParameters(**parameters))
    return at / "packed"


def homes(at: Path) -> Path:
    return packed(at, shards_over=2, block_samples=4)


FORMATS: dict[str, tuple[Callable[[Path], Path], Any]] = {
    "folder": (folder, None),
    "npy": (npy, None),
    "npz": (npz, None),
    "records": (records, Records(dtype=(("x", "u1", (19,)), ("y", "u1")))),
    "tokens": (tokens, Tokens(window=8)),
    "tars": (tars, None),
    "tfrecord": (tfrecord, None),
    "gzipped": (gzipped, Gzipped()),
    "parquet": (parquet, None),
    "arrow": (arrow, None),
    "manifest": (manifest, None),
    "coco": (coco, None),
    "mds": (mds, None),
    "pack": (packed, None),
    "homes": (homes, None),
}


class Written:
    """A dataset in a folder, and its copies."""

    def __init__(self, name: str, at: Path) -> None:
        write, self.format = FORMATS[name]
        self.root = at / "here"
        self.root.mkdir()
        self._below = write(self.root).relative_to(self.root)

    @property
    def path(self) -> Path:
        """What is opened."""
        return self.root / self._below

    def copy(self, name: str = "there") -> Path:
        """As `cp -r` makes it: with other times of change."""
        root = self.root.parent / name
        shutil.copytree(self.root, root, copy_function=shutil.copyfile)
        return self.later(root)

    def later(self, root: Path) -> Path:
        """As `touch` leaves it."""
        for each in sorted(root.rglob("*")):
            os.utime(each, ns=(10**18 + 7, 10**18 + 7))
        return root

    def loader(self, root: Path | None = None, **options: Any) -> hr.Loader[Any]:
        dataset = hr.open((root or self.root) / self._below, format=self.format)
        ragged: Any = "list" if "list" in map(dataset.kind, dataset.fields) else None
        output = hr.Output("numpy", ragged=ragged, ids=True)
        return hr.Loader(dataset, BATCH, seed=3, output=output, **options)

    def files(self, root: Path) -> list[Path]:
        return sorted(each for each in root.rglob("*") if each.is_file())


def described(index: _core.Index, root: str) -> dict[str, Any]:
    """All that an index says, with names that do not depend on where the files lie."""
    folder = folder_of(index)
    assert folder.startswith(root)
    columns: list[Any] = []
    for position, field in enumerate(index.fields):
        kind = (field.name, field.kind, field.dtype, field.shape, field.is_inline)
        if not field.is_inline:
            values = [column.tolist() for column in index.extents(position)]
        elif field.kind == "array":
            values = index.inline_values(position).tolist()
        else:
            values = [column.tolist() for column in index.inline_ragged(position)]
        columns.append((*kind, values))
    names = [index.object(number)[:2] for number in range(index.object_count)]
    return {
        "below": folder.removeprefix(root),
        "samples": index.sample_count,
        "columns": columns,
        "files": names,
        "blocks": index.block_count,
    }
