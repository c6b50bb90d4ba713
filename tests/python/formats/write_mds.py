"""Writes MDS datasets with MosaicML Streaming, and the rows that its StreamingDataset reads.

Usage: python write_mds.py FOLDER, with the packages of tools/envs/loaders.txt and trainers.txt.
Each FOLDER/NAME is a dataset; FOLDER/rows.json has the rows of each, by NAME: every value as JSON
has it, bytes and arrays in hexadecimal.
"""

from __future__ import annotations

import importlib.machinery
import io
import json
import shutil
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# Streaming imports it for its datasets of images; none is used here.
for name in ("", ".datasets", ".transforms", ".transforms.functional"):
    module = types.ModuleType(f"torchvision{name}")
    module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
    module.VisionDataset = module.to_tensor = object  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module

from streaming import MDSWriter, StreamingDataset  # noqa: E402
from streaming.base.util import merge_index  # noqa: E402

NUMBERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "float32", "float64")
TEXTS = ["", "ü", "日本語 🚀", "a\0b", "x" * 300, "line\nline"]


def picture(i: int, kind: str) -> bytes:
    image = Image.fromarray(np.full((4 + i, 5, 3), 9 * i, np.uint8))
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def small(i: int) -> dict[str, Any]:
    """Every encoding but those of several images, pixels and pickles."""
    return {
        "int": i - 3,
        "str": TEXTS[i % len(TEXTS)],
        "bytes": bytes([i]) * (i % 5),
        "json": {"i": i, "ü": [1, None]},
        "jpeg": picture(i, "jpeg"),
        "png": picture(i, "png"),
        "str_int": (-7) ** i,
        "str_float": i / 7,
        "str_decimal": Decimal("1.10") ** i,
        "fixed": np.full((2, 3), i, np.float32),
        "rows": np.arange(100 * i + 100).reshape(-1, 2).astype(np.uint16),
        "any": np.full((3, 1, 2), i, np.int64),
        **{name: min(40 * i, 127) for name in NUMBERS},
        **dict.fromkeys(FLOATS, i / 4),
    }


SMALL = {
    "int": "int",
    "str": "str",
    "bytes": "bytes",
    "json": "json",
    "jpeg": "jpeg",
    "png": "png",
    "str_int": "str_int",
    "str_float": "str_float",
    "str_decimal": "str_decimal",
    "fixed": "ndarray:float32:2,3",
    "rows": "ndarray:uint16",
    "any": "ndarray",
    **{name: name for name in (*NUMBERS, *FLOATS)},
}
TEXT = {"text": "str", "label": "int"}


def text(i: int) -> dict[str, Any]:
    return {"text": f"{i} " + TEXTS[i % len(TEXTS)] * (i % 4), "label": i}


def write(folder: Path, columns: dict[str, str], rows: list[Any], **options: Any) -> None:
    with MDSWriter(out=str(folder), columns=columns, **options) as sink:
        for row in rows:
            sink.write(row)


def shown(value: Any) -> Any:
    """As JSON."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray):
        return [value.dtype.name, list(value.shape), value.tobytes().hex()]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Image.Image):
        return [value.format, list(value.size), np.asarray(value).tobytes().hex()]
    return value


def main(folder: Path) -> None:
    write(folder / "all", SMALL, [small(i) for i in range(9)])
    write(folder / "one", TEXT, [text(3)])
    write(folder / "one-a-shard", TEXT, [text(i) for i in range(7)], size_limit=1)
    write(folder / "uneven", TEXT, [text(i) for i in range(60)], size_limit=700)
    for name in ("zstd", "gz", "zstd:9", "br", "snappy", "bz2"):
        write(
            folder / f"packed-{name.replace(':', '-')}",
            TEXT,
            [text(i) for i in range(100)],
            size_limit=800,
            compression=name,
            hashes=["sha1"],
        )
    write(folder / "packed-all", SMALL, [small(i) for i in range(9)], compression="zstd")
    write(folder / "none", TEXT, [])
    for part in range(3):
        rows = [text(i) for i in range(10 * part, 10 * part + 10)]
        write(folder / "merged" / f"part-{part}", TEXT, rows, size_limit=500)
    merge_index(str(folder / "merged"))
    pickled = {"text": "str", "thing": "pkl", "many": "jpegarray", "pixels": "pil"}
    image = Image.fromarray(np.zeros((2, 2, 3), np.uint8))
    rows = [
        {"text": str(i), "thing": {i}, "many": [picture(i, "jpeg")], "pixels": image}
        for i in range(3)
    ]
    write(folder / "refused", pickled, rows)
    found = {}
    for each in sorted(folder.iterdir()):
        if each.name in ("none", "refused"):
            continue
        copy = folder.with_name("read-here") / each.name  # Streaming decompresses in place.
        shutil.copytree(each, copy)
        dataset = StreamingDataset(local=str(copy), shuffle=False, batch_size=1)
        found[each.name] = [
            {name: shown(value) for name, value in dataset[i].items()} for i in range(len(dataset))
        ]
    (folder / "rows.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
