"""Runs the code of docs/guides/coming-from.md that is of other packages, on data in their formats.

Usage: python their_loaders.py FOLDER <BLOCKS >RESULTS, with the packages of tools/envs/loaders.txt
and trainers.txt. FOLDER/images has class folders; their samples are written to FOLDER/mds, chunks,
shards and saved. BLOCKS is JSON, [[TITLE, CODE], ...]; RESULTS has for each the samples that it
trained on, in order: the grey of each image, and its label.
"""

from __future__ import annotations

import importlib.machinery
import io
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

# Streaming imports it for its datasets of images; none is used here.
for name in ("", ".datasets", ".transforms", ".transforms.functional"):
    module = types.ModuleType(f"torchvision{name}")
    module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
    module.VisionDataset = module.to_tensor = object  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module

import datasets  # noqa: E402
import webdataset as wds  # noqa: E402
from litdata.streaming import serializers  # noqa: E402
from litdata.streaming.writer import BinaryWriter  # noqa: E402
from streaming import MDSWriter  # noqa: E402


def samples() -> list[tuple[bytes, int]]:
    files = sorted(Path("images").glob("*/*.jpg"))
    classes = sorted({file.parent.name for file in files})
    return [(file.read_bytes(), classes.index(file.parent.name)) for file in files]


def write() -> None:
    """The samples in each package's format, as images and numbers."""
    with MDSWriter(out="mds", columns={"image": "jpeg", "label": "int"}) as sink:
        for encoded, label in samples():
            sink.write({"image": Image.open(io.BytesIO(encoded)), "label": label})
    writer = BinaryWriter("chunks", chunk_bytes=10_000)
    for number, (encoded, label) in enumerate(samples()):
        writer.add_item(number, {"image": Image.open(io.BytesIO(encoded)), "label": label})
    writer.done()
    writer.merge(1)
    Path("shards").mkdir()
    for shard in range(4):
        with wds.TarWriter(f"shards/train-{shard:06}.tar") as tar:
            for number, (encoded, label) in list(enumerate(samples()))[shard::4]:
                tar.write({"__key__": f"{number:06}", "jpg": encoded, "cls": label})
    images, labels = zip(*samples(), strict=True)
    rows = {"image": [{"bytes": encoded, "path": None} for encoded in images], "label": labels}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk("saved")


def transform(image: Any) -> torch.Tensor:
    """Of a Pillow image, or of one that LitData has decoded without torchvision."""
    return torch.from_numpy(np.array(image.resize((4, 4)))).permute(2, 0, 1)


class Pictures(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __init__(self) -> None:
        self._samples = samples()

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        encoded, label = self._samples[number]
        return transform(Image.open(io.BytesIO(encoded))), label


def main() -> None:
    os.chdir(sys.argv[1])
    serializers._decode_image_tensor = lambda data: Image.open(io.BytesIO(data))  # torchvision's
    write()
    results = {}
    for title, code in json.load(sys.stdin):
        seen: list[list[int]] = []

        def train(images: Any, labels: Any, seen: list[list[int]] = seen) -> None:
            greys = images[:, 0, 0, 0].tolist()
            seen += [[int(grey), int(label)] for grey, label in zip(greys, labels, strict=True)]

        names = {"__name__": title, "transform": transform, "train": train, "dataset": Pictures()}
        exec(compile(code, title, "exec"), names)
        results[title] = seen
    print(json.dumps(results))


if __name__ == "__main__":
    main()
