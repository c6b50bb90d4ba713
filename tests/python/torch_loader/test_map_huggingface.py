"""Hugging Face's datasets, the real package, in any format: as torch gives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rank_scripts import real_packages


@pytest.fixture(scope="module")
def folders() -> list[str]:
    """Made in the user's cache folder: not in each test's own."""
    return [str(real_packages(name)) for name in ("loaders", "trainers")]


def test_datasets_of_hugging_face_give_what_torch_gives(folders: list[str]) -> None:
    script = Path(__file__).with_name("huggingface_script.py")
    command = [sys.executable, "-W", "ignore", str(script), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
