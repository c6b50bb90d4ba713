"""Compares a dataset with its index: files, checksums, every sample."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from headrace import _core
from headrace._dataset import Dataset
from headrace._units import counted
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.formats._files.objects import file_count, object_path

_PIECE_BYTES = 8 * 2**20  # read at a time
_TASKS_MAX = 4096  # files are grouped, so that millions of them are few tasks

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Problem:
    """A difference from the index."""

    message: str
    sample: int | None = None  # None: a file or the index itself
    field: str | None = None


@dataclass
class Report:
    """The result of `verify`."""

    samples: int = 0
    samples_compared: int = 0  # against a checksum
    files: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything matches the index."""
        return not self.problems


def verify(
    dataset: Dataset,
    *,
    homes: Sequence[int] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Checks the index, then every file's size and time, then every sample that has a checksum.

    If the index has no checksums, it checks files but not their contents. What else a file must be,
    its format says. `homes`: only what lies at these; None: everything.
    """
    index = dataset.index
    report = Report(samples=len(dataset), files=file_count(index))
    wanted = range(index.object_count) if homes is None else _at_homes(dataset, homes, report)
    try:
        index.verify_all()
    except HeadraceError as error:
        report.problems.append(Problem(str(error)))
        return report
    by_object = _samples_of_objects(index)
    done = 0
    count = threads or min(8, 2 * (os.cpu_count() or 1))
    run = len(wanted) // _TASKS_MAX + 1
    with (
        closing(dataset.stored_reader()) as reader,
        ThreadPoolExecutor(count, "headrace-verify") as pool,
    ):
        tasks = [
            pool.submit(_verify_objects, dataset, reader, wanted[first : first + run], by_object)
            for first in range(0, len(wanted), run)
        ]
        try:
            for task in tasks:
                part = task.result()
                report.samples_compared += part.samples_compared
                report.bytes += part.bytes
                report.problems += part.problems
                done += part.files
                if progress is not None:
                    progress(done, len(wanted))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    report.problems = list(dict.fromkeys(report.problems))  # A file may have many row groups.
    return report


def _at_homes(dataset: Dataset, homes: Sequence[int], report: Report) -> Sequence[int]:
    """The objects at these homes. `report` gets their number, and that of their samples."""
    table = dataset.home_table
    for home in homes:
        if not 0 <= home < table.count:
            raise InvalidArgumentError(
                f"verifying {dataset.path}: --home: got {home}, the dataset has "
                f"{counted(table.count, 'home')}, numbered from 0; give one of these"
            )
    objects = [n for n in range(dataset.index.object_count) if table.of_object(n) in homes]
    report.samples = int(np.isin(table.of_samples(), homes).sum())
    report.files = len(objects)
    return objects


_Extents = dict[int, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]


def _samples_of_objects(index: _core.Index) -> Callable[[int], _Extents]:
    """For an object: by field, the (samples, offsets, sizes, checksums) in it."""
    columns = {}
    for position, info in enumerate(index.fields):
        checksums = None if info.is_inline else index.checksums(position)
        if checksums is None:
            continue
        objects, offsets, sizes = index.extents(position)
        order = np.argsort(objects, kind="stable")
        starts = np.searchsorted(objects[order], np.arange(index.object_count + 1))
        columns[position] = (order, starts, offsets, sizes, checksums)

    def of(number: int) -> _Extents:
        extents: _Extents = {}
        for position, (order, starts, offsets, sizes, checksums) in columns.items():
            samples = order[starts[number] : starts[number + 1]]
            extents[position] = (samples, offsets[samples], sizes[samples], checksums[samples])
        return extents

    return of


def _verify_objects(
    dataset: Dataset,
    reader: _core.StoredReader,
    numbers: Sequence[int],
    by_object: Callable[[int], _Extents],
) -> Report:
    report = Report()
    for number in numbers:
        report.files += 1
        try:
            _verify_object(dataset, reader, number, by_object(number), report)
        except HeadraceError as error:
            report.problems.append(Problem(str(error)))
    return report


def _verify_object(
    dataset: Dataset, reader: _core.StoredReader, number: int, extents: _Extents, report: Report
) -> None:
    """Adds the findings of one file to `report`."""
    reader.check(number)
    path = object_path(dataset.index, number)
    read = functools.partial(_read, reader, number)
    problems = len(report.problems)
    for position, columns in extents.items():
        name = dataset.index.fields[position].name
        for sample, offset, length, good in _compare(read, columns):
            report.samples_compared += 1
            report.bytes += length
            if not good:
                text = (
                    f"sample {sample} ({name}): {path} bytes [{offset}, {offset + length}) are "
                    "not those that were indexed"
                )
                report.problems.append(Problem(text, sample, name))
    if len(report.problems) > problems:
        return
    fault = dataset.format_row.file_fault(dataset.index, number, read)
    if fault is not None:
        report.problems.append(Problem(fault))


def _read(reader: _core.StoredReader, number: int, offset: int, size: int) -> bytearray:
    """The object's bytes [offset, offset + size)."""
    data = bytearray(size)
    objects, offsets, sizes = (np.array([n], np.uint64) for n in (number, offset, size))
    reader.read_into(objects, offsets, sizes, data)
    return data


def _compare(
    read: Callable[[int, int], bytes | bytearray],
    columns: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> Iterator[tuple[int, int, int, bool]]:
    """(sample, offset, size, whether its bytes are good), read in pieces of near samples."""
    samples, offsets, sizes, checksums = (column.tolist() for column in columns)
    first = 0
    while first < len(samples):
        start = end = offsets[first]
        last = first
        while last < len(samples) and start <= offsets[last] <= end + _PIECE_BYTES:
            new_end = max(end, offsets[last] + sizes[last])
            if last > first and new_end - start > _PIECE_BYTES:
                break
            end = new_end
            last += 1
        data = read(start, end - start)
        hashes = _core.hash64_ranges(
            data,
            np.array(offsets[first:last], np.uint64) - np.uint64(start),
            np.array(sizes[first:last], np.uint64),
        ).tolist()
        for i in range(first, last):
            yield samples[i], offsets[i], sizes[i], hashes[i - first] == checksums[i]
        first = last
