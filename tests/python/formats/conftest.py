"""Packages of formats, for tests that write files with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rank_scripts import real_packages


@pytest.fixture(scope="module")
def h5py() -> Iterator[Any]:
    """The module; made before a test has a cache of its own."""
    folder = str(real_packages("hdf5"))
    sys.path.insert(0, folder)
    import h5py as module

    yield module
    sys.path.remove(folder)
