"""Messages about HDF5 files that are damaged or lie so that no row can be read alone."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import errors
from headrace.formats import Hdf5
from headrace.formats._hdf5 import datasets

ROWS = np.arange(80, dtype=np.int64).reshape(4, 20)
"""Of 160 bytes each, which are not copied into the index."""


@pytest.fixture(autouse=True)
def _module(h5py: Any) -> None:
    """For the error to be that of the file."""


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(errors.HeadraceError) as caught:
        hr.open(path, format=Hdf5(**options))
    return str(caught.value)


def test_options_that_are_no_names_and_a_dataset_of_one_number(h5py: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["rows"] = ROWS
        file["one"] = 7
    assert refusal(path, columns=(1,)) == "hdf5 columns: got (1,), must be names"
    assert refusal(path, inline=(1,)) == "hdf5 inline: got (1,), must be names"
    assert refusal(path, inline=("x",)) == (f"indexing {path}: inline='x': there are one, rows")
    assert refusal(path, sample="row") == (
        f"indexing {path}: dataset 'one' is one number, no rows; leave it out with columns="
    )
    dataset = hr.open(path, format=Hdf5(sample="row", columns=("rows",)))
    assert [each["rows"].tolist() for each in dataset] == ROWS.tolist()


def test_a_file_that_this_user_may_not_read(
    h5py: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["rows"] = ROWS
    monkeypatch.setattr(os, "access", lambda asked, mode: asked != str(path))
    assert refusal(path) == f"indexing {path}: no permission to read it; chmod it"


def test_rows_that_lie_outside_of_the_file(h5py: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("rows", data=ROWS, chunks=(1, 20))
    with h5py.File(path) as file:
        place = struct.pack("<Q", file["rows"].id.get_chunk_info(3).byte_offset)
    data = path.read_bytes()
    assert data.count(place) == 1
    path.write_bytes(data.replace(place, struct.pack("<Q", 2**40)))
    assert refusal(path) == (
        f"indexing {path}: byte 1,099,511,627,776: dataset 'rows' has 160 bytes here, the file "
        f"{len(data):,}; copy or write the file again"
    )


def test_fields_of_bits_which_are_no_numbers(h5py: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, b"rows", h5py.h5t.STD_B8LE, h5py.h5s.create_simple((4,)))
    assert refusal(path) == (
        f"indexing {path}: dataset 'rows' stores its values otherwise than uint8; write it as "
        "numbers of NumPy"
    )


def test_chunks_that_are_many_or_apart(
    h5py: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name in ("a", "b"):
            file.create_dataset(name, ROWS.shape, ROWS.dtype, chunks=(1, 20))
        for row in range(4):
            for name in ("a", "b"):
                file[name].id.write_direct_chunk((row, 0), ROWS[row].tobytes())
    assert [each["b"].tolist() for each in hr.open(path)] == ROWS.tolist()
    repack = "; `h5repack -l CONTI a.h5 NEW.h5` rewrites it, or leave it out with columns="
    assert refusal(path, sample="file") == (
        f"indexing {path}: dataset 'a' lies in 4 chunks apart from each other, so it is not one "
        f"range of bytes{repack}"
    )
    monkeypatch.setattr(datasets, "_CHUNKS_MAX", 3)
    assert refusal(path, columns=("a",)) == f"indexing {path}: dataset 'a' has 4 chunks{repack}"


def test_a_compressed_chunk_that_is_too_small(h5py: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    rows = np.zeros((3, 4096), np.uint8)
    with h5py.File(path, "w") as file:
        item = file.create_dataset("rows", data=rows, chunks=(1, 4096), compression="gzip")
        item.id.write_direct_chunk((1, 0), b"abc")
    with h5py.File(path) as file:
        begin = file["rows"].id.get_chunk_info(1).byte_offset
    assert refusal(path) == (
        f"indexing {path}: byte {begin:,}: chunk 1 of dataset 'rows' has 3 bytes, too few for gzip "
        "of 4,096; copy or write the file again"
    )
