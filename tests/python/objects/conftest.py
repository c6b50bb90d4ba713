"""A server of objects, and this process settled to use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from object_server import ObjectServer

from headrace._places import table


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with ObjectServer() as started:
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        yield started
        table.LISTER.close()
