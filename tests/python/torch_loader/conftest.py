"""Every test of a DataLoader ends its processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Fails the test that leaves one, not a later one that counts them."""
    before = set(multiprocessing.active_children())
    yield
    left = set(multiprocessing.active_children()) - before
    assert left == set(), "processes are left, perhaps by an iterator that something keeps"
