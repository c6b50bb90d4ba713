"""`_core.StoredReader`: stored bytes outside a loader."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace import _core, errors

SIZE = 5 * 2**20 + 3  # several reads


def one_file(folder: Path, data: bytes) -> _core.Index:
    """An index of one object and one sample."""
    (folder / "all").write_bytes(data)
    contents = _core.IndexContents(1, str(folder))
    contents.add_objects(["all"], np.array([len(data)], np.uint64), np.zeros(1, np.int64))
    sizes = np.array([len(data)], np.uint64)
    extents = (np.zeros(1, np.uint64), np.zeros(1, np.uint64), sizes)
    contents.add_extent_field("bytes", ("bytes", "uint8", []), extents)
    path = str(folder / "index.hri")
    _core.write_index(contents, path)
    return _core.Index.open(path)


def columns(*ranges: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets, sizes = (np.array(each, np.uint64) for each in zip(*ranges, strict=True))
    return np.zeros(len(ranges), np.uint64), offsets, sizes


ADVICE = ("copy it", "mend it", "move it")


def test_ranges_land_one_after_the_other_whatever_their_sizes(tmp_path: Path) -> None:
    data = np.random.default_rng(3).bytes(SIZE)
    reader = _core.StoredReader(one_file(tmp_path, data), ADVICE, 2)
    ranges = [(SIZE - 1, 1), (0, SIZE), (7, 0), (4095, 4098), (2**20, 2 * 2**20 + 1)]
    target = bytearray(sum(size for _, size in ranges))
    reader.read_into(*columns(*ranges), target)
    assert bytes(target) == b"".join(data[at : at + size] for at, size in ranges)
    reader.close()


def test_a_range_past_the_end_and_a_target_of_another_size_are_refused(tmp_path: Path) -> None:
    reader = _core.StoredReader(one_file(tmp_path, b"0123456789"), ADVICE)
    with pytest.raises(errors.OutOfRangeError, match=r"bytes \[8, 12\): object has 10 bytes"):
        reader.read_into(*columns((8, 4)), bytearray(4))
    with pytest.raises(errors.InvalidArgumentError, match="reading 4 bytes into a buffer of 5"):
        reader.read_into(*columns((0, 4)), bytearray(5))
    with pytest.raises(BufferError):
        reader.read_into(*columns((0, 4)), b"0000")  # type: ignore[arg-type]


def test_sizes_whose_sum_does_not_fit_in_64_bits_are_refused(tmp_path: Path) -> None:
    reader = _core.StoredReader(one_file(tmp_path, b"0123456789"), ADVICE)
    with pytest.raises(errors.InvalidArgumentError, match="range 0 of 9223372036854775808 bytes"):
        reader.read_into(*columns((0, 2**63), (0, 2**63 + 8)), bytearray(8))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"range 1 .* 3 are left in a buffer of 8"
    ):
        reader.read_into(*columns((0, 5), (0, 2**64 - 1)), bytearray(8))


def test_a_changed_file_is_found_by_a_check_and_by_a_read(tmp_path: Path) -> None:
    reader = _core.StoredReader(one_file(tmp_path, b"0123456789"), ADVICE)
    reader.check(0)
    os.truncate(tmp_path / "all", 9)
    with pytest.raises(errors.FailedPreconditionError, match=r"^opening .*was 10, is 9; copy it$"):
        reader.check(0)
    with pytest.raises(errors.FailedPreconditionError, match=r"\[0, 10\): file .*is 9; copy it$"):
        reader.read_into(*columns((0, 10)), bytearray(10))


def test_what_is_closed_reads_no_more(tmp_path: Path) -> None:
    reader = _core.StoredReader(one_file(tmp_path, b"0123456789"), ADVICE)
    reader.close()
    reader.close()
    with pytest.raises(errors.FailedPreconditionError, match="the reader is closed"):
        reader.read_into(*columns((0, 10)), bytearray(10))
    with pytest.raises(errors.FailedPreconditionError, match="the reader is closed"):
        reader.check(0)


def test_a_fork_does_not_read_through_its_parents_reader(tmp_path: Path) -> None:
    reader = _core.StoredReader(one_file(tmp_path, b"0123456789"), ADVICE)
    reader.check(0)
    child = os.fork()
    if child == 0:
        try:
            reader.check(0)
        except errors.FailedPreconditionError as error:
            reader.close()
            forked = "the reader was made before this process was forked; make another one"
            os._exit(0 if forked in str(error) else 1)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    reader.check(0)


def test_samples_are_read_in_a_forked_child(folder: Path) -> None:
    dataset = hr.open(folder)
    expected = dataset.read(3)
    child = os.fork()
    if child == 0:
        os._exit(0 if dataset.read(3) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
