"""The sources of most tests of mixtures."""

from __future__ import annotations

from pathlib import Path

import pytest
from mixture_data import write_sources


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, str]:
    """Three arrays, whose rows say which they are."""
    return write_sources(tmp_path)
