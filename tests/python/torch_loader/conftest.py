"""Every test of a DataLoader ends its processes."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from folder_data import COUNT, write_images
from rank_scripts import real_packages

_PACKAGES = ("torchvision", "torchvision.datasets")


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Fails the test that leaves one, not a later one that counts them."""
    before = set(multiprocessing.active_children())
    yield
    left = set(multiprocessing.active_children()) - before
    assert left == set(), "processes are left, perhaps by an iterator that something keeps"


@pytest.fixture(scope="module")
def vision() -> Iterator[Any]:
    """torchvision.datasets.folder, without what its packages import: that needs CUDA."""
    root = real_packages("torchvision")
    before = {name: each for name, each in sys.modules.items() if name.startswith("torchvision")}
    for name in before:
        del sys.modules[name]
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    sys.modules["torchvision"].get_image_backend = lambda: "PIL"  # type: ignore[attr-defined]
    yield importlib.import_module("torchvision.datasets.folder")
    for name in [each for each in sys.modules if each.startswith("torchvision")]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"), COUNT, 1)


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("more"), 17, 2)
