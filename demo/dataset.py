"""A JPEG dataset that a small network can learn and a loader has to work for.

Nine classes, three hues by three orientations of a grating, under noise of many scales: without the
noise JPEG would shrink a grating to nothing. Widths, heights, noise and quality vary, so that file
sizes are spread about as those of photographs: log-normal, around 100 KB.

An image depends on the seed and its number alone. So an interrupted run is continued, and a dataset
that is complete is used again.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

HUES = {"amber": (1.0, 0.7, 0.3), "jade": (0.35, 1.0, 0.6), "violet": (0.7, 0.4, 1.0)}
# A horizontal flip, which training uses, maps each of these onto itself.
GRATINGS = ("checked", "level", "upright")
CLASSES = tuple(f"{hue}-{grating}" for hue in HUES for grating in GRATINGS)

_FILE_BYTES_MEAN = 95_000  # what `make_image` comes to, measured
_IMAGES_A_TASK = 16
_WIDTH, _HEIGHT = 500, 400
_OCTAVES = (4, 9, 20, 45, 100, 225)  # cells across the image
_COARSE_CELLS = 100  # octaves up to this are added on a grid this coarse: a third of the time

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class DatasetParameters:
    """Everything that the files depend on."""

    images: int
    seed: int
    version: int = 2  # of `make_image`

    @classmethod
    def of_size(cls, size_mb: int, seed: int = 0) -> DatasetParameters:
        """So many images as come to about `size_mb` megabytes."""
        return cls(images=max(len(CLASSES), size_mb * 1_000_000 // _FILE_BYTES_MEAN), seed=seed)


def make_image(seed: int, number: int) -> tuple[Image.Image, int]:
    """Image `number`, whose class is `number` modulo their count, and the JPEG quality to save."""
    random = np.random.Generator(np.random.PCG64([seed, number]))
    hue, grating = CLASSES[number % len(CLASSES)].split("-")
    scale = math.exp(random.normal(0.0, 0.19))
    aspect = math.exp(random.normal(0.0, 0.1))
    width, height = round(_WIDTH * scale * aspect), round(_HEIGHT * scale / aspect)

    noise = _noise(random, width, height) * np.float32(math.exp(random.normal(0.0, 0.3)))
    light = 118 + random.uniform(30, 55) * _grating(random, grating, width, height) + 25 * noise
    tint = np.array(HUES[hue]) * random.uniform(0.8, 1.2, 3)
    pixels = light[:, :, np.newaxis] * tint.astype(np.float32)
    np.clip(pixels, 0, 255, out=pixels)
    quality = int(random.integers(86, 97))
    return Image.fromarray(pixels.astype(np.uint8)), quality


def _grating(random: np.random.Generator, kind: str, width: int, height: int) -> Floats:
    waves = random.uniform(10, 24) * 2 * math.pi / _WIDTH
    x = np.sin(np.arange(width) * waves + random.uniform(0, 2 * math.pi)).astype(np.float32)
    y = np.sin(np.arange(height) * waves + random.uniform(0, 2 * math.pi)).astype(np.float32)
    if kind == "upright":
        return np.broadcast_to(x, (height, width))
    if kind == "level":
        return np.broadcast_to(y[:, np.newaxis], (height, width))
    checked: Floats = y[:, np.newaxis] * x
    return checked


def _noise(random: np.random.Generator, width: int, height: int) -> Floats:
    """Octaves of smoothed noise and white noise on top, of standard deviation about 1."""
    total = 0.55 * random.standard_normal((height, width), np.float32)
    coarse = np.zeros((_COARSE_CELLS * height // width, _COARSE_CELLS), np.float32)
    for cells in _OCTAVES:
        octave = random.standard_normal((max(2, cells * height // width), cells), np.float32)
        target = coarse if cells <= _COARSE_CELLS else total
        target += np.float32(0.4) * _resized(octave, target.shape)
    total += _resized(coarse, total.shape)
    return total


def _resized(cells: Floats, shape: tuple[int, ...]) -> Floats:
    height, width = shape
    image = Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image)


def make_dataset(
    folder: Path,
    parameters: DatasetParameters,
    progress: Callable[[int, int], object],
) -> bool:
    """Makes what is missing of the dataset; False if nothing was.

    `progress` is called with images done and in all. Beside the folder stands NAME.json, which says
    what it holds: a folder without is not ours, and left alone.
    """
    manifest = folder.with_name(folder.name + ".json")
    found = _read(manifest)
    if folder.exists() and found is None and any(folder.iterdir()):
        raise SystemExit(f"demo: {folder} is not a dataset of this demo; choose another --out")
    wanted = asdict(parameters)
    if found == wanted | {"complete": True}:
        return False
    if found is not None and found != wanted | {"complete": False}:
        shutil.rmtree(folder, ignore_errors=True)
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    _write(manifest, wanted | {"complete": False})
    _make_images(folder, parameters, progress)
    os.sync()  # Pages that are not yet written cannot be dropped from the cache later.
    _write(manifest, wanted | {"complete": True})
    return True


def _make_images(
    folder: Path, parameters: DatasetParameters, progress: Callable[[int, int], object]
) -> None:
    # Not forked: the progress bar has a thread.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        tasks = {
            pool.submit(_make_files, folder, parameters.seed, range(first, end)): end - first
            for first in range(0, parameters.images, _IMAGES_A_TASK)
            for end in [min(first + _IMAGES_A_TASK, parameters.images)]
        }
        done = 0
        try:
            for task in as_completed(tasks):
                task.result()
                done += tasks[task]
                progress(done, parameters.images)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _make_files(folder: Path, seed: int, numbers: range) -> None:
    for number in numbers:
        path = folder / CLASSES[number % len(CLASSES)] / f"{number:06}.jpg"
        if path.exists():
            continue
        image, quality = make_image(seed, number)
        # Whole or not at all, and meanwhile no file that an index would take for an image.
        temporary = path.with_name(f".{path.name}.partial")
        image.save(temporary, "JPEG", quality=quality)
        temporary.rename(path)


def _read(manifest: Path) -> object:
    try:
        found: object = json.loads(manifest.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found


def _write(manifest: Path, content: dict[str, object]) -> None:
    temporary = manifest.with_suffix(".partial")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.rename(manifest)
