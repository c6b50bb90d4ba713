"""Writes tars with webdataset's TarWriter and MDS with MDSWriter, whose members and columns these
sort, and what each package's own loop gives of them.

Usage: python write_field_orders.py FOLDER, with the packages of tools/envs/loaders.txt and
trainers.txt. FOLDER/rows.json has by name of a dataset [[IMAGE'S FIRST PIXEL, LABEL], ...].
"""

from __future__ import annotations

import importlib.machinery
import io
import json
import sys
import types
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

import webdataset as wds  # noqa: E402
from streaming import MDSWriter, StreamingDataset  # noqa: E402

COUNT = 24


def picture(i: int, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 9, 3), i * 9, np.uint8)).save(file, kind, lossless=True)
    return file.getvalue()


def pixel(image: Any) -> int:
    return int(np.asarray(image)[0, 0, 0])


def tars(folder: Path) -> dict[str, list[list[int]]]:
    """Of a dataset's name, the members beside the image and the label."""
    more = {"plain": [], "described": ["json", "txt"], "array": ["box.npy"]}
    rows = {}
    for name, kinds in more.items():
        values = {"json": {"a": 1}, "txt": "x", "box.npy": np.arange(4)}
        with wds.TarWriter(f"{folder}/{name}.tar") as sink:
            for i in range(COUNT):
                beside = {kind: values[kind] for kind in kinds}
                image = {"png": picture(i, "PNG")}
                sink.write({"__key__": f"{i:04}", **image, "cls": i % 5, **beside})
        read = wds.WebDataset(f"{folder}/{name}.tar", shardshuffle=False)
        own = read.decode("pil").to_tuple("png", "cls")
        rows[name] = [[pixel(image), int(label)] for image, label in own]
    with wds.TarWriter(f"{folder}/captions.tar") as sink:
        for i in range(COUNT):
            image = {"webp": picture(i, "WEBP")}
            sink.write({"__key__": f"{i:04}", "txt": str(i % 5), "json": {"a": 1}, **image})
    return rows


def shards(folder: Path) -> dict[str, list[list[int]]]:
    columns = {"photo": "png", "category": "int"}
    with MDSWriter(out=f"{folder}/mds", columns=columns) as sink:
        for i in range(COUNT):
            image = Image.open(io.BytesIO(picture(i, "PNG")))
            sink.write({"photo": image, "category": i % 5})
    own = StreamingDataset(local=f"{folder}/mds", shuffle=False, batch_size=1)
    return {"mds": [[pixel(row["photo"]), int(row["category"])] for row in own]}


def main() -> None:
    folder = Path(sys.argv[1])
    rows = tars(folder) | shards(folder)
    (folder / "rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
