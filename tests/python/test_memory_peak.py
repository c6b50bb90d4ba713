"""The most memory that a loader and its workers take, as the kernel counts it, against memory=."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_runs import group
from PIL import Image

import headrace as hr
from headrace.pack import PackParameters, write_pack

MEMORY = 192 * 2**20
SMALL = 600
HUGE = 12
SLACK = 1.10
LOOP = Path(__file__).with_name("memory_runs") / "loop.py"

REFUSAL = group.refusal()
pytestmark = pytest.mark.skipif(REFUSAL is not None, reason=f"no control group: {REFUSAL}")


def write_image(path: Path, side: tuple[int, int], **options: Any) -> None:
    """Slopes, and in small ones noise: huge ones are small files."""
    row = np.linspace(0, 255, side[0]).astype("uint8")
    column = np.linspace(0, 255, side[1]).astype("uint8")
    red = np.broadcast_to(row, (side[1], side[0]))
    green = np.broadcast_to(column[:, None], red.shape)
    pixels = np.stack([red, green, red ^ green], -1)
    if max(side) < 1000:
        pixels ^= np.random.default_rng(side[0]).integers(0, 255, pixels.shape, "uint8")
    Image.fromarray(pixels).save(path, **options)


def warm(root: Path) -> None:
    """Has the page cache's copies of all files charged to this process's own group."""
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()


@pytest.fixture(scope="module")
def small_ones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small") / "images"
    (root / "a").mkdir(parents=True)
    for number in range(64):
        write_image(root / "a" / f"{number:03}.jpg", (32, 32))
    hr.open(root)
    warm(root)
    return root


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Huge images among small ones, and one that is not decoded: packed."""
    root = tmp_path_factory.mktemp("mixed")
    (root / "images" / "a").mkdir(parents=True)
    for number in range(SMALL):
        write_image(root / "images" / "a" / f"{number:03}.jpg", (160, 120))
    for number in range(HUGE):
        at = number * SMALL // HUGE
        path = root / "images" / "a" / f"{at:03}-huge.jpg"
        write_image(path, (2100, 2100), progressive=True)  # 13 MB of coefficients
    Image.new("1", (100_000_000, 1)).save(root / "images" / "a" / "300-long.png")
    source = hr.open(root / "images", index=root / "source.hri")
    parameters = PackParameters(order="source", block_bytes=2**16, shard_bytes=2**20)
    write_pack(source, root / "pack", parameters)
    hr.open(root / "pack")
    warm(root)
    return root / "pack"


def run(source: Path, order: str, memory: int, workers: int, batch_size: int) -> tuple[Any, int]:
    command = [sys.executable, str(LOOP), str(source), order, str(memory), str(workers)]
    printed, peak = group.measure([*command, str(batch_size)])
    return json.loads(printed), peak


def told(used: Any) -> int:
    """The peaks of all uses in `stats()["memory"]` together."""
    uses = ("staging", "batches", "resident", "scratch", "results", "beyond")
    return sum(used[f"{use}_peak"] for use in uses) + int(used["pinned"])


@pytest.fixture(scope="module")
def idle(small_ones: Path) -> dict[int, int]:
    """Peaks of processes that have almost nothing to do, by workers."""
    peaks = {}
    for workers in (0, 2):
        used, peak = run(small_ones, "exact", 2**23, workers, 1)
        peaks[workers] = peak - told(used)
    return peaks


@pytest.mark.parametrize(
    ("order", "workers"),
    [("exact", 0), ("batch", 0), ("epoch", 0), ("redox", 0), ("exact", 2), ("epoch", 2)],
)
def test_nothing_lies_beside_the_budget(
    mixed: Path, idle: dict[int, int], order: str, workers: int
) -> None:
    used, peak = run(mixed, order, MEMORY, workers, 16)
    assert used["rows"] == SMALL + HUGE + 1
    assert used["substituted"] == 1
    taken = peak - idle[workers]
    assert taken <= SLACK * MEMORY + used["index"]
    assert told(used) <= MEMORY
    assert taken <= SLACK * told(used) + used["index"]
