"""The interface of a loader's module, and what several of them use.

A module has:

    FORMAT                  name of its files' format; modules with one name share the files
    choices(task)           settings that are tried; the fastest is used
    shuffle(task)           how it shuffles, for the table
    prepare(source, folder) writes the samples in its format, into an empty folder
    epochs(task)            an iterator of epochs; an epoch is an iterator of `Batch`
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

IMAGE_SIZE = 224
SCALE = (0.08, 1.0)  # of the area, that a crop has
RATIO = (3 / 4, 4 / 3)

_SHARD_BYTES_MAX = 50 * 10**6
_SHARDS_MIN = 24

Settings = dict[str, Any]

WORKERS: list[Settings] = [
    {"workers": 0},
    *({"workers": workers, "prefetch": 2} for workers in (1, 2, 4)),
]
"""Of loaders on torch's DataLoader; `bench.py` then tries the fastest with more prefetch."""


@dataclass(frozen=True)
class Source:
    """The samples that every format is written from."""

    path: Path
    record_bytes: int  # 0: a folder of class folders of files

    def __post_init__(self) -> None:
        files = [] if self.record_bytes else sorted(self.path.glob("*/*.jpg"))
        classes = sorted({file.parent.name for file in files})
        numbers = {name: number for number, name in enumerate(classes)}
        object.__setattr__(self, "files", files)
        object.__setattr__(self, "labels", [numbers[file.parent.name] for file in files])

    def __len__(self) -> int:
        if self.record_bytes:
            return self.path.stat().st_size // self.record_bytes
        return len(self.files)  # type: ignore[attr-defined]

    @cached_property
    def shard_bytes(self) -> int:
        """Of a file in formats of many files: enough of them for a shuffle and for workers."""
        paths = [self.path] if self.record_bytes else self.files  # type: ignore[attr-defined]
        total = sum(path.stat().st_size for path in paths)
        return min(_SHARD_BYTES_MAX, total // _SHARDS_MIN)

    def shuffled(self) -> Iterator[tuple[int, bytes, int]]:
        """Number, bytes and label of each sample, in an order that mixes the classes.

        All formats are written in this order, as their documentations advise.
        """
        order = np.random.default_rng(0).permutation(len(self))
        if self.record_bytes:
            table = np.memmap(self.path, np.uint8, "r").reshape(-1, self.record_bytes)
            for i in order:
                yield int(i), table[i].tobytes(), int(i) % 10
            return
        for i in order:
            yield int(i), self.files[i].read_bytes(), self.labels[i]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Task:
    """What a loader is asked for."""

    source: Source
    stored: Path  # the folder that `prepare` filled
    images: bool  # decode, crop, flip; otherwise deliver the bytes
    batch: int
    window: int  # samples in the buffer of loaders that shuffle in one
    settings: Settings = field(default_factory=dict)

    @property
    def workers(self) -> int:
        return int(self.settings.get("workers", 0))

    @property
    def prefetch(self) -> int | None:
        """Batches for each worker, as torch's DataLoader wants it."""
        return int(self.settings.get("prefetch", 2)) if self.workers else None


@dataclass(frozen=True)
class Batch:
    """What a training loop got. `parts` has the bytes of each sample, for a check of them."""

    samples: int
    payload_bytes: int
    parts: Callable[[], Iterable[Any]]


def flat_batch(flat: Any, lengths: Any) -> Batch:
    """Samples one after the other in one array of bytes."""
    sizes = np.asarray(lengths, dtype=np.int64)
    ends = np.cumsum(sizes)

    def parts() -> Iterator[memoryview]:
        data = memoryview(np.ascontiguousarray(flat))
        for end, size in zip(ends, sizes, strict=True):
            yield data[end - size : end]

    return Batch(len(sizes), int(ends[-1]), parts)


def image_batch(images: Any) -> Batch:
    """Decoded images, height x width x 3 bytes each."""
    shape = tuple(images.shape)
    if shape[1:] != (IMAGE_SIZE, IMAGE_SIZE, 3):
        raise RuntimeError(f"images of shape {shape[1:]} came")
    return Batch(shape[0], math.prod(shape), lambda: images)


def join(parts: list[bytes]) -> tuple[Any, Any]:
    """One array of the bytes of all samples, and their lengths: cheaper than a list."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    flat = np.frombuffer(b"".join(parts), dtype=np.uint8)
    return flat, lengths


def decode_one(encoded: bytes) -> Any:
    """A random resized crop with flip by Pillow, which decodes what torchvision's does."""
    import io

    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as file:
        image = file.convert("RGB")
    left, top, width, height = random_box(*image.size)
    image = image.resize(
        (IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BILINEAR, (left, top, left + width, top + height)
    )
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image)


def decode(parts: list[bytes]) -> Any:
    """A batch of them."""
    images = np.empty((len(parts), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    for slot, part in enumerate(parts):
        images[slot] = decode_one(part)
    return images


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """As torchvision's RandomResizedCrop draws it: left, top, width, height."""
    for _ in range(10):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    return 0, 0, width, height


def to_tensors(parts: list[bytes], images: bool) -> Any:
    """A collated batch for torch: one tensor of images, or one of bytes and one of lengths."""
    import torch

    if images:
        return torch.from_numpy(decode(parts))
    lengths = torch.tensor([len(part) for part in parts])
    flat = torch.empty(int(lengths.sum()), dtype=torch.uint8)
    out, at = memoryview(flat.numpy()), 0
    for part in parts:
        out[at : at + len(part)] = part
        at += len(part)
    return flat, lengths


def of_tensors(collated: Any, images: bool) -> Batch:
    """The batch of what `to_tensors` made."""
    return image_batch(collated.numpy()) if images else flat_batch(*(t.numpy() for t in collated))
