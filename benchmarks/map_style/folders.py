"""A folder dataset of torchvision on slow storage, in `headrace.torch.DataLoader` and in torch's.

    PYTHONPATH=$(python tools/package_env.py torchvision) python benchmarks/map_style/folders.py

The folder is served by the tests' FUSE server, which answers each read 5 ms late, as a remote store
would; every epoch has a mount of its own, so that no file is in the page cache. Small JPEG files, a
crop and a flip in Python; both loaders with two processes, which give the same samples, which
is checked. Needs the right to mount. Loaders take turns; ratios are of one round, their median is
the figure.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python" / "ends"))

import numpy as np
import torch
import torch.utils.data
from fuse_server import mounted
from PIL import Image

from headrace.torch import DataLoader

COUNT, BATCH, LATENCY_MS = 2048, 32, 5


def folder_module() -> Any:
    """torchvision.datasets.folder, without what its packages import: that needs CUDA."""
    spec = importlib.util.find_spec("torchvision")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations)))
    for name, path in (("torchvision", root), ("torchvision.datasets", root / "datasets")):
        package: Any = ModuleType(name)
        package.__path__ = [str(path)]
        package.get_image_backend = lambda: "PIL"
        sys.modules[name] = package
    return importlib.import_module("torchvision.datasets.folder")


def crop(image: Image.Image) -> torch.Tensor:
    left, top, flip = torch.randint(0, 32, (3,)).tolist()
    image = image.crop((left, top, left + 64, top + 64))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return pixels.flip(2) if flip % 2 else pixels


def write(folder: Path) -> None:
    prng = np.random.default_rng(1)
    for number in range(COUNT):
        where = folder / f"class {number % 8}"
        where.mkdir(exist_ok=True)
        pixels = prng.integers(0, 256, (6, 6, 3), np.uint8)
        Image.fromarray(pixels).resize((96, 96)).save(where / f"{number}.jpg")


def epoch(kind: Any, data: Any) -> tuple[float, list[int]]:
    """Seconds from the first batch to the last, and the labels."""
    loader = kind(
        data, BATCH, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(1)
    )
    labels: list[int] = []
    began = 0.0
    for _, found in loader:
        began = began or time.monotonic()
        labels += found.tolist()
    seconds = time.monotonic() - began
    if kind is DataLoader:
        assert loader.stats()["engine"]["samples"] == COUNT
        loader.close()
    return seconds, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    folder = folder_module()
    rates: dict[str, list[float]] = {"torch": [], "headrace": []}
    with tempfile.TemporaryDirectory() as made:
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        source = Path(made, "images")
        source.mkdir()
        write(source)
        for _ in range(rounds):
            found = []
            for name, kind in (("torch", torch.utils.data.DataLoader), ("headrace", DataLoader)):
                with mounted(source, Path(made, "mount")) as mount:
                    data = folder.ImageFolder(f"{made}/mount", crop)
                    mount.tell(f"slow {LATENCY_MS}")
                    seconds, labels = epoch(kind, data)
                found.append(labels)
                rates[name].append((COUNT - BATCH) / seconds)
            assert found[0] == found[1]
    for name, each in rates.items():
        print(f"{name:10} {median(each):8.0f} samples/s")
    ratios = [ours / theirs for ours, theirs in zip(rates["headrace"], rates["torch"], strict=True)]
    print(f"ratio      {median(ratios):8.2f}  of {[round(each, 2) for each in ratios]}")


if __name__ == "__main__":
    main()
