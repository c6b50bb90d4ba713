"""Files that the user may not use: the error says who lacks permission, and what to do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from loader_data import run_python

REMEDY = (
    f"Permission denied for user {os.geteuid()}: find the file or folder that refuses with "
    "`namei -l PATH`, and chmod it"
)

# Without capabilities even root is refused by a file's mode.
PROGRAM = """
import ctypes, sys, warnings
from pathlib import Path
import headrace as hr
from headrace._dataset import index_folder

nothing = (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), nothing) == 0
place = Path(sys.argv[1])
try:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(sys.argv[2])
except hr.errors.HeadraceError as error:
    print(type(error).__name__, error)
for each in caught:
    print(each.message)
"""


@pytest.fixture
def place(numbered: Path, tmp_path: Path) -> Path:
    """A folder of images, an index of it, and a folder to write to."""
    shutil.copytree(numbered, tmp_path / "images")
    (tmp_path / "to").mkdir()
    return tmp_path


def said(place: Path, call: str) -> str:
    return run_python(PROGRAM, place, call)


@pytest.mark.parametrize(
    ("closed", "call"),
    [
        ("images", "hr.open(place / 'images')"),
        ("images/class0", "hr.open(place / 'images')"),
        ("images", "hr.open(place / 'images' / 'class0')"),
        ("to", "hr.open(place / 'to' / 'pack')"),
        ("to", "hr.open(place / 'images', index=place / 'to' / 'x.hri')"),
        ("to", "index_folder(place / 'images', place / 'to' / 'deep' / 'x.hri')"),
        ("to", "hr.Loader(place / 'images', tiers=[hr.tiers.Ssd(place / 'to' / 'tier', '1MB')])"),
        ("to", "hr.tiers.Budget('64MiB', [hr.tiers.Ssd(place / 'to' / 'tier', '1MB')])"),
    ],
)
def test_an_error_of_permission_says_whose_and_what_to_do(
    place: Path, closed: str, call: str
) -> None:
    (place / closed).chmod(0)
    try:
        told = said(place, call)
    finally:
        (place / closed).chmod(0o755)
    assert REMEDY in told
    assert str(place / closed) in told or repr(closed.rpartition("/")[2]) in told
    assert told.count("\n") == 1


def test_a_file_that_may_not_be_read_is_named_at_its_step(place: Path) -> None:
    path = place / "images" / "class0" / "000.jpg"
    path.chmod(0)
    told = said(place, "list(hr.Loader(place / 'images', 97, shuffle=False, output='numpy'))")
    assert "class0/000.jpg" in told
    assert REMEDY in told


def test_a_cache_folder_that_may_not_be_written_is_a_warning_with_both_remedies(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "to"))
    (place / "to").chmod(0o555)
    told = said(place, "print(len(hr.open(place / 'images')))")
    assert told.splitlines()[0] == "97"
    assert REMEDY in told
    assert "set XDG_CACHE_HOME" in told


def test_packing_into_a_folder_that_may_not_be_written(place: Path) -> None:
    pytest.importorskip("pyarrow")
    (place / "to").chmod(0o555)
    told = said(
        place,
        "from headrace.pack import write_pack; "
        "write_pack(hr.open(place / 'images'), place / 'to' / 'pack')",
    )
    assert told.startswith(f"UnavailableError packing to {place / 'to' / 'pack'}: {REMEDY}")
