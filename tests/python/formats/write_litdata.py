"""Writes datasets with LitData, and the rows that its StreamingDataset reads.

Usage: python write_litdata.py FOLDER, with the packages of tools/envs/loaders.txt and trainers.txt.
Each FOLDER/NAME is a dataset; FOLDER/rows.json has the rows of each, by NAME: every value as JSON
has it, bytes and arrays in hexadecimal.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from litdata import StreamingDataset
from litdata.streaming import serializers
from litdata.streaming.item_loader import TokensLoader
from litdata.streaming.writer import BinaryWriter
from PIL import Image

serializers._decode_image_tensor = bytes  # Its own needs torchvision.

TEXTS = ["", "ü", "日本語 🚀", "a\0b", "x" * 300, "line\nline"]
BLOCKS = {"tokens": 5, "tokens-packed": 16, "tokens-numpy": 3}


def picture(i: int) -> Any:
    """As opened from a file: LitData then keeps its bytes."""
    file = io.BytesIO()
    Image.fromarray(np.full((4 + i, 5, 3), 9 * i, np.uint8)).save(file, "jpeg")
    return Image.open(file)


def every(i: int) -> dict[str, Any]:
    """Every serializer that headrace reads."""
    return {
        "int": i - 3,
        "float": i / 7,
        "bool": i % 3 == 0,
        "str": TEXTS[i % len(TEXTS)],
        "bytes": bytes([i]) * (i % 5),
        "jpeg": picture(i),
        "fixed": torch.full((2, 3), i, dtype=torch.float32),
        "scalar": torch.tensor(i, dtype=torch.int16),
        "rows": torch.arange(2 * i).reshape(-1, 2),
        "flags": torch.tensor([i % 2 == 0, True]),
        "line": torch.arange(i, dtype=torch.uint8),
        "array": np.full((2, 1, 2), i, np.float16),
        "arrays": np.full((i + 1, 2), i, np.uint32),
        "numbers": np.arange(i, dtype=np.int64),
    }


def pair(i: int) -> dict[str, Any]:
    return {"text": f"{i} " + TEXTS[i % len(TEXTS)] * (i % 4), "x": torch.full((2,), i)}


def nested(i: int) -> dict[str, Any]:
    return {"image": {"size": (i, 2 * i), "data": bytes(i)}, "x": (torch.zeros(i), f"t{i}")}


def row(i: int) -> dict[str, Any]:
    """What LitData stores as a table of Arrow."""
    return {
        "text": TEXTS[i % len(TEXTS)] * (i % 3),
        "label": i,
        "score": i / 7,
        "ok": i % 3 == 0,
        "raw": bytes([i % 256]) * (i % 5),
        "ids": list(range(i % 4)),
    }


def write(folder: Path, items: list[Any], **options: Any) -> None:
    folder.mkdir()
    if "chunk_size" not in options:
        options = {"chunk_bytes": 400} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Items larger than a chunk.
        sink = BinaryWriter(str(folder), **options)
        for i, item in enumerate(items):
            sink[i] = item
        sink.done()
        sink.merge()


def shown(value: Any) -> Any:
    """As JSON."""
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, np.ndarray):
        return [value.dtype.name, list(value.shape), value.tobytes().hex()]
    return value.item() if isinstance(value, np.generic) else value


def flat(value: Any) -> list[Any]:
    """The leaves of a sample, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in flat(each)]
    return [shown(value)]


def main(folder: Path) -> None:
    write(folder / "every", [every(i) for i in range(9)])
    write(folder / "one", [pair(3)])
    write(folder / "one-a-chunk", [pair(i) for i in range(7)], chunk_size=1)
    write(folder / "uneven", [pair(i) for i in range(60)], chunk_bytes=700)
    write(folder / "leaf", list(range(-4, 9)))
    write(folder / "nested", [nested(i) for i in range(9)])
    write(folder / "tuple", [(i, torch.ones(2, 2) * i) for i in range(9)])
    packed = {"compression": "zstd", "compression_level": "chunk", "chunk_bytes": 700}
    write(folder / "packed", [pair(i) for i in range(100)], **packed)
    write(folder / "packed-9", [pair(i) for i in range(9)], **packed | {"compression": "zstd:9"})
    write(folder / "packed-every", [every(i) for i in range(9)], **packed)
    ids = [torch.arange(i, i + 7 + i % 3).to(torch.uint16) for i in range(60)]
    loader = {"item_loader": TokensLoader()}
    write(folder / "tokens", ids, chunk_size=50, **loader)
    write(folder / "tokens-packed", ids, **packed, **loader)
    write(folder / "tokens-numpy", [each.numpy().astype(np.int32) for each in ids], **loader)
    small = {"compression": "zstd", "chunk_bytes": 700, "compression_batch_size": 4}
    write(folder / "batch", [pair(i) for i in range(100)], **small)
    write(folder / "batch-every", [every(i) for i in range(9)], **small)
    sample = {"compression": "zstd:2", "compression_level": "sample", "chunk_bytes": 700}
    write(folder / "sample", [pair(i) for i in range(100)], **sample)
    write(folder / "sample-every", [every(i) for i in range(9)], **sample)
    write(folder / "pickled", [{"a": {1, i}, "l": [i], "x": torch.zeros(2)} for i in range(3)])
    write(folder / "rows", [row(i) for i in range(300)], chunk_bytes=3000)
    write(folder / "rows-packed", [row(i) for i in range(9)], compression="zstd")
    write(folder / "rows-nested", [{"a": {"b": 1}, "c": f"{i}"} for i in range(3)])
    found = {}
    for each in sorted(folder.iterdir()):
        if each.name in ("pickled", "rows-packed", "rows-nested"):
            continue
        copy = folder.with_name("read-here") / each.name  # LitData decompresses in place.
        shutil.copytree(each, copy)
        block = BLOCKS.get(each.name)
        loaders = {} if block is None else {"item_loader": TokensLoader(block_size=block)}
        dataset = StreamingDataset(str(copy), **loaders)
        items = [dataset[i] for i in range(len(dataset))]
        if each.name == "rows":
            found[each.name] = [[shown(value) for value in item.values()] for item in items]
        else:
            found[each.name] = [flat(item) for item in items]
    (folder / "rows.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
