"""What the extension shows to the outside: its stub, its symbols, its libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headrace._core
from headrace._nodes.process import executable

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


def run(code: str) -> str:
    """What a new interpreter prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_headrace_alone_imports_neither_torch_nor_numpy_until_it_is_used() -> None:
    code = """
import sys, headrace
names = ["torch", "headrace.torch", "numpy", "headrace._loader"]
print([name for name in names if name in sys.modules])
headrace.Loader, headrace.open, headrace.orders.Epoch, headrace.formats.Parquet
print([name for name in names if name in sys.modules])
"""
    assert run(code) == "[]\n['numpy', 'headrace._loader']\n"


def test_every_public_name_is_found() -> None:
    code = "from headrace import *; import headrace; print({*headrace.__all__} - {*globals()})"
    assert run(code) == "set()\n"
    assert set(headrace.__all__) <= set(dir(headrace))


def test_packs_are_written_after_import_headrace_alone() -> None:
    code = "import headrace; print(headrace.pack.write_pack.__module__)"
    assert run(code) == "headrace.pack._write\n"
    assert "pack" not in headrace.__all__  # `from headrace import *` needs no pyarrow.
