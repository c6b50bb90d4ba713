"""Folders of images, as torchvision reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from headrace.torch import DataLoader

COUNT = 41


def write_images(root: Path, count: int, seed: int) -> Path:
    """JPEG and PNG files of several sizes and modes in three classes."""
    prng = np.random.default_rng(seed)
    for number in range(count):
        folder = root / f"class {number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        side = 5 + number % 4
        pixels = prng.integers(0, 256, (side, 2 * side, 3), np.uint8)
        mode = ("RGB", "L", "CMYK", "P")[number % 4]
        suffix = "png" if mode == "P" else "JPG"
        Image.fromarray(pixels).convert(mode).save(folder / f"{number:03}.{suffix}")
    return root


def fixed(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image.resize((4, 4)))).permute(2, 0, 1)


def read_ahead(loader: DataLoader) -> int:
    """How many samples' files the engine read ahead."""
    engine = loader.stats()["engine"]
    return 0 if engine is None else int(engine["samples"])
