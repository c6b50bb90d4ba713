"""What the extension shows to the outside: its stub, its symbols, its libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headrace._core
from headrace._loading.node import executable

ROOT = Path(__file__).resolve().parent.parent
EXTENSION = Path(headrace._core.__file__)


def test_the_stub_and_the_names_are_those_of_the_extension() -> None:
    command = [sys.executable, str(ROOT / "tools" / "make_stub.py"), "--check"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr


def test_exports_nothing_but_its_entry_point() -> None:
    command = ["nm", "--dynamic", "--defined-only", "--format=just-symbols", str(EXTENSION)]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert symbols == ["PyInit__core"]


def test_links_no_library_that_belongs_elsewhere() -> None:
    command = ["objdump", "--private-headers", str(EXTENSION)]
    headers = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = [line.split()[1] for line in headers.splitlines() if line.strip().startswith("NEEDED")]
    foreign = ("libgrpc", "libabsl", "libprotobuf", "libcares", "libre2", "libssl", "libcrypto")
    foreign += ("libarrow", "libpython", "libtorch")
    assert needed
    assert not [name for name in needed if name.startswith(foreign)]


def test_only_the_node_process_has_grpc() -> None:
    """As libraries or compiled in."""
    assert b"grpc" in Path(executable()).read_bytes()
    assert b"grpc" not in EXTENSION.read_bytes()
