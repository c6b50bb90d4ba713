"""The datasets that the benchmarks read: made once, kept in a folder outside the project.

Sizes are log-normal around 100 KB, as photographs' are. `raw` holds random bytes under JPEG names,
for runs that do not decode; `images` real JPEG files. Each exists as a folder of class folders and
as packs of it: shuffled, as `headrace pack` makes them by default, and in the folder's order, so
that sample numbers mean the same in both.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import headrace as hr
from headrace import _core
from headrace.pack import PackParameters, write_pack

MEAN_BYTES = 100_000
_CLASSES = 10
_SIGMA = 0.4  # of the logarithm of the sizes


@dataclass(frozen=True)
class BenchData:
    """One dataset in its layouts."""

    folder: Path
    pack: Path  # shuffled
    source_pack: Path  # in the folder's order

    def files(self, layout: Path) -> list[Path]:
        """All files below a layout."""
        return sorted(path for path in layout.rglob("*") if path.is_file())


def default_folder() -> Path:
    """Where datasets are kept if nobody says: the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "headrace-bench"


def raw_data(root: Path, total_bytes: int) -> BenchData:
    """Random bytes, `total_bytes` of them."""
    return _make(root / f"raw-{total_bytes // 10**6}MB", total_bytes, _write_raw)


def image_data(root: Path, total_bytes: int) -> BenchData:
    """Textured JPEG files, about `total_bytes` of them."""
    return _make(root / f"images-{total_bytes // 10**6}MB", total_bytes, _write_images)


def record_data(root: Path, count: int, record_bytes: int) -> tuple[Path, Path]:
    """`count` records of random bytes: one file of them, for NumPy to map, and a shuffled pack."""
    folder = root / f"records-{count}x{record_bytes}"
    records, pack = folder / "records.bin", folder / "pack"
    if not pack.exists():
        print(f"making {folder}: {count * record_bytes / 1e6:.0f} MB", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rng = np.random.default_rng(0)
        with records.open("wb") as file:
            for begin in range(0, count, 8192):
                file.write(rng.bytes(min(8192, count - begin) * record_bytes))
        contents = _core.IndexContents(count, str(folder))
        stat = records.stat()
        sizes, times = np.array([stat.st_size], np.uint64), np.array([stat.st_mtime_ns])
        contents.add_objects([records.name], sizes, times)
        offsets = np.arange(count, dtype=np.uint64) * np.uint64(record_bytes)
        lengths = np.full(count, record_bytes, np.uint64)
        extents = (np.zeros(count, np.uint64), offsets, lengths)
        contents.add_extent_field("record", ("array", "uint8", (record_bytes,)), extents)
        contents.set_attribute("format", "records")
        _core.write_index(contents, str(folder / "records.hri"))
        write_pack(hr.open(folder / "records.hri"), pack, PackParameters(order="shuffled"))
        os.sync()
    return records, pack


def token_data(root: Path, count: int) -> Path:
    """A raw file of `count` random uint16 tokens."""
    path = root / f"tokens-{count}" / "tokens.bin"
    if not path.exists():
        print(f"making {path}: {2 * count / 1e6:.0f} MB", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for begin in range(0, count, 2**24):
                size = min(2**24, count - begin)
                file.write(rng.integers(0, 50_000, size, np.uint16).tobytes())
        part.rename(path)
        os.sync()
    return path


def _make(root: Path, total_bytes: int, write: Callable[[Path, int, int], None]) -> BenchData:
    data = BenchData(root / "folder", root / "pack", root / "source.pack")
    if not data.folder.exists():
        print(f"making {root}: {total_bytes / 1e6:.0f} MB", flush=True)
        partial = root / "folder.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for label in range(_CLASSES):
            (partial / f"class{label}").mkdir(parents=True)
        count = max(1, total_bytes // MEAN_BYTES // _CLASSES)
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as executor:
            list(
                executor.map(
                    write,
                    [partial / f"class{label}" for label in range(_CLASSES)],
                    [count] * _CLASSES,
                    range(_CLASSES),
                )
            )
        partial.rename(data.folder)
    for target, order in ((data.pack, "shuffled"), (data.source_pack, "source")):
        if not target.exists():
            write_pack(hr.open(data.folder), target, PackParameters(order=order))
    os.sync()
    return data


def _sizes(rng: np.random.Generator, count: int) -> list[float]:
    sizes = rng.lognormal(np.log(MEAN_BYTES) - _SIGMA**2 / 2, _SIGMA, count)
    return [float(size) for size in sizes]


def _write_raw(folder: Path, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = rng.bytes(16 * 2**20)  # Each file is a piece of it, at an offset of its own.
    for number, size in enumerate(_sizes(rng, count)):
        offset = int(rng.integers(0, len(pool) - int(size)))
        (folder / f"{number:06}.jpg").write_bytes(pool[offset : offset + int(size)])


def _write_images(folder: Path, count: int, seed: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(seed)
    for number, size in enumerate(_sizes(rng, count)):
        # This texture takes about 0.45 bytes a pixel at quality 90.
        width = int(np.sqrt(size / 0.45 * 4 / 3))
        height = width * 3 // 4
        coarse = rng.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        noise = rng.normal(0, 9, (height, width, 1))
        pixels = np.clip(np.asarray(smooth) + noise, 0, 255).astype(np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(pixels).save(encoded, "JPEG", quality=90)
        (folder / f"{number:06}.jpg").write_bytes(encoded.getvalue())
