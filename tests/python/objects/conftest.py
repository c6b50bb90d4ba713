"""A server of objects, and this process settled to use it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rank_scripts import real_packages
from served_objects.object_server import ObjectServer

from headrace._places import table


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with ObjectServer() as started:
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        yield started
        table.LISTER.close()


@pytest.fixture
def h5py(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(real_packages("hdf5")), *sys.path])
    return pytest.importorskip("h5py")
