"""The usual way: torch's DataLoader over class folders, Pillow in worker processes.

The transform is torchvision's RandomResizedCrop, RandomHorizontalFlip, ToTensor and Normalize,
written out because torchvision is not always installed.
"""

from __future__ import annotations

import io
import math
import random
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

_MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
_STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]

# Image, label, sample number, seconds to read, seconds to decode and transform.
Sample = tuple[torch.Tensor, int, int, float, float]


class FolderImages(Dataset[Sample]):
    """Class folders; samples numbered by sorted path, labels by sorted folder, as ImageFolder's."""

    def __init__(self, root: Path, side: int) -> None:
        self._side = side
        self._files = [
            (str(file), label)
            for label, folder in enumerate(sorted(p for p in root.iterdir() if p.is_dir()))
            for file in sorted(folder.glob("*.jpg"))
        ]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> Sample:
        path, label = self._files[number]
        began = time.perf_counter()
        with open(path, "rb") as file:
            data = file.read()
        has_read = time.perf_counter()
        pixels = self._transform(Image.open(io.BytesIO(data)).convert("RGB"))
        return pixels, label, number, has_read - began, time.perf_counter() - has_read

    def _transform(self, image: Image.Image) -> torch.Tensor:
        side = (self._side, self._side)
        image = image.resize(side, Image.Resampling.BILINEAR, box=_crop_box(*image.size))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().div_(255).sub_(_MEAN).div_(_STD)


def _crop_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Of 8 to 100 % of the area and an aspect of 3:4 to 4:3; torchvision's way to draw it."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    side = min(width, height)  # Never reached at the aspects of this dataset.
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def make_loader(root: Path, side: int, batch_size: int, workers: int) -> DataLoader[Sample]:
    """At its best for this work: a worker for each core, kept from epoch to epoch."""
    return DataLoader(
        FolderImages(root, side),
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        # What it takes by itself up to Python 3.13. A process that was itself spawned would spawn
        # them: each would import torch anew, for seconds and some 150 MB.
        multiprocessing_context="fork" if workers else None,
    )
