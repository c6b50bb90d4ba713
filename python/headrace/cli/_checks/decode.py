"""Reads and decodes every sample of a dataset, as a loader would."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import given_path
from headrace._dataset import Dataset, epoch_samples, left_out_of, samples_of
from headrace._dataset.left_out import has, write_listed
from headrace._text import one_line, printable
from headrace._units import counted
from headrace.cli._checks.verify import Problem, Progress
from headrace.errors import HeadraceError, InvalidArgumentError

_SAMPLES_A_TASK = 256
_NAMES_SHOWN = 3

_Bytes = NDArray[np.uint8]


def decode(
    dataset: Dataset, *, threads: int | None = None, progress: Progress | None = None
) -> list[Problem]:
    """Reads and decodes every sample as a loader does: what fails, by sample.

    Images and sounds are decoded by headrace's own decoders, other fields are decompressed, and
    text is read as UTF-8. Samples that are left out are not read.
    """
    total = len(dataset)
    problems: list[Problem] = []
    done = 0
    count = threads or os.cpu_count() or 1
    run = max(1, min(_SAMPLES_A_TASK, total // (4 * count)))
    with (
        closing(dataset.stored_reader()) as reader,
        ThreadPoolExecutor(count, "headrace-decode") as pool,
    ):
        firsts = iter(range(0, total, run))
        tasks = deque(
            pool.submit(_decode_run, dataset, reader, first, run)
            for first in islice(firsts, 2 * count)
        )
        try:
            while tasks:
                problems += tasks.popleft().result()
                done = min(done + run, total)
                if progress is not None:
                    progress(done, total)
                first = next(firsts, None)
                if first is not None:
                    tasks.append(pool.submit(_decode_run, dataset, reader, first, run))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return problems


def _decode_run(
    dataset: Dataset, reader: _core.StoredReader, first: int, count: int
) -> list[Problem]:
    numbers = range(first, min(first + count, len(dataset)))
    faults = (_decoding_fault(dataset, reader, number) for number in numbers)
    return [fault for fault in faults if fault is not None]


def _decoding_fault(dataset: Dataset, reader: _core.StoredReader, number: int) -> Problem | None:
    if has(left_out_of(dataset), number):
        return None
    name = None
    try:
        sample = samples_of(dataset).read(reader, number)
        for name, decode in _decoders(dataset):
            decode(np.frombuffer(sample[name], np.uint8))
    except HeadraceError as error:
        where = "" if name is None else f" ({name})"
        return Problem(f"sample {number}{where}: {error}", number, name)
    return None


def _decoders(dataset: Dataset) -> list[tuple[str, Callable[[_Bytes], object]]]:
    """The fields whose stored bytes a loader decodes, each with its decoder."""
    decoders: list[tuple[str, Callable[[_Bytes], object]]] = []
    for position in dataset.nesting.visible:
        field = dataset.index.fields[position]
        if field.kind == "image":
            decoders.append((field.name, _core.decode_pixels))
        elif field.kind == "bytes" and field.coding == "stored" and field.has_decoded_sizes:
            decoders.append((field.name, _core.decode_sound))
    return decoders


def check_failures(decode: bool, failures: str | None, skip: list[str] | None) -> None:
    """Before the work: what would be lost at its end."""
    if failures is None:
        return
    if not decode:
        raise InvalidArgumentError("--failures: what fails is found by --decode; add it")
    if f"@{failures}" in (skip or ()):
        raise InvalidArgumentError(
            f"--failures {failures}: --skip leaves out what this file lists, which would not be in "
            "the new one; leave --skip out, or name another file"
        )
    folder = os.path.dirname(os.path.abspath(given_path("--failures", failures)))
    if not os.access(folder, os.W_OK):
        raise InvalidArgumentError(
            f"--failures {failures}: no file can be written in {folder}; name another folder"
        )


def write_failures(path: str, dataset: Dataset, problems: list[Problem]) -> list[str]:
    """Writes the samples that failed into a file that `skip="@FILE"` reads; see `write_listed`."""
    messages = {
        problem.sample: problem.message for problem in problems if problem.sample is not None
    }
    by_name = dataset.format_row.follows_skip
    return write_listed(path, dataset.index, dataset.path, messages, by_name=by_name)


def print_failures(
    dataset: Dataset, problems: list[Problem], failures: str | None, unlisted: list[str]
) -> None:
    """Prints what failed, and what to do about it. `failures`: the file that lists it, but for
    files of the names `unlisted`."""
    for problem in problems:
        print(f"bad: {printable(one_line(problem.message))}", file=sys.stderr)
    print(
        f"{'BAD' if problems else 'good'}: {counted(epoch_samples(dataset), 'sample')} read and "
        f"decoded, {len(problems)} failed"
    )
    if problems and failures is None:
        print(
            '(--failures FILE writes these into a file; hr.open(PATH, skip="@FILE") leaves them '
            'out, and Loader(on_error="substitute") replaces them)'
        )
    elif problems:
        print(f'(they are in {failures}; hr.open(PATH, skip="@{failures}") leaves them out)')
    if unlisted:
        names = ", ".join(repr(name) for name in unlisted[:_NAMES_SHOWN])
        print(
            f"({counted(len(unlisted), 'file')} with *, ?, tab or newline in the name cannot be "
            f"listed: {names}; rename these, and run this again)"
        )
