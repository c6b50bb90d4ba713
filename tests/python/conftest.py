"""Small datasets, and a cache folder of its own for each test."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from loader_data import write_numbered
from PIL import Image

import headrace as hr
from headrace.pack import PackParameters, write_pack

CLASSES = ("ant", "bee", "cat")
IMAGES_A_CLASS = 20

# A shell starts what runs in the background with Ctrl-C ignored, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def torch_does_not_wait() -> None:
    """torch waits 5 s for each worker of a DataLoader that does not end, as after its error."""
    if "torch" in sys.modules:
        import torch.utils.data._utils as waits

        waits.MP_STATUS_CHECK_INTERVAL = 0.5


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folder indexes are kept during this test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of JPEGs with sizes from 1 to 12 KiB. Not to be changed."""
    root = tmp_path_factory.mktemp("images")
    random = np.random.Generator(np.random.PCG64(5))
    for name in CLASSES:
        (root / name).mkdir()
        for number in range(IMAGES_A_CLASS):
            side = int(random.integers(24, 96))
            pixels = random.integers(0, 255, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number:03}.jpg", quality=80)
    return root


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of `original` that a test may change."""
    return Path(shutil.copytree(original, tmp_path / "images"))


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `write_numbered`. Not to be changed."""
    return write_numbered(tmp_path_factory.mktemp("numbered") / "images")


@pytest.fixture(scope="session")
def source_pack(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`original` as a pack that is not shuffled. Not to be changed."""
    root = tmp_path_factory.mktemp("pack")
    source = hr.open(original, index=root / "source.hri")
    parameters = PackParameters(order="source", block_bytes=30_000, shard_bytes=100_000)
    write_pack(source, root / "pack", parameters)
    return root / "pack"


@pytest.fixture
def numbered_copy(numbered: Path, tmp_path: Path) -> Path:
    """A copy of `numbered` that a test may change."""
    return Path(shutil.copytree(numbered, tmp_path / "numbered"))
