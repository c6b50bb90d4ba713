"""What a dataset holds, apart from where its files lie and when they were written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace import _core, _places
from headrace.formats._files.objects import is_decoded, object_path

PIECES = 512
PIECE_BYTES = 16 * 2**10
"""What is read of files without checksums: so many pieces of so many bytes, spread over all of
them. Of at most 8 MiB that is all."""

_READS_AT_ONCE = 16
_PIECES_AT_ONCE = 8  # of one file, one after the other
_SAMPLES_AT_ONCE = 2**18

UNREADABLE = ""
"""In place of a hash: a file could not be read, or was not as it was indexed."""


class _Piece(NamedTuple):
    number: int  # of its object
    offset: int
    size: int


class Content:
    """What a state says of a dataset. A copy of the dataset has the same.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, index: _core.Index, fields: tuple[str, ...]) -> None:
        """`fields`: in the order of the index, as earlier states have them."""
        self._index = index
        self.holds = f"{index.sample_count} samples of {', '.join(fields)}"
        """The number of samples, and the fields."""

    @cached_property
    def known(self) -> str:
        """32 hexadecimal digits, of all that the index knows but the files' times of change."""
        return self._index.content()

    @property
    def is_known(self) -> bool:
        """Whether the index has the checksums of all that lies in files."""
        return all(field.is_inline or field.has_checksums for field in self._index.fields)

    @cached_property
    def sampled(self) -> str | None:
        """16 hexadecimal digits, of some bytes of files whose checksums are not known; None: of
        all they are. `UNREADABLE`: equal to none. Reads files the first time."""
        return None if self.is_known else _sampled(self._index, self.known)


def _sampled(index: _core.Index, known: str) -> str:
    columns = index.pieces(PIECES, PIECE_BYTES, int(known[:16], 16))
    pieces = list(map(_Piece._make, np.column_stack(columns).tolist()))
    files = [
        list(of_one)
        for first in range(0, len(pieces), _PIECES_AT_ONCE)
        for _, of_one in groupby(
            pieces[first : first + _PIECES_AT_ONCE], lambda piece: piece.number
        )
    ]
    with ThreadPoolExecutor(_READS_AT_ONCE, "headrace-content") as threads:
        try:
            stored = b"".join(threads.map(lambda of_file: _read(index, of_file), files))
        except OSError:
            return UNREADABLE
    return f"{_core.hash64(stored):016x}"


def _read(index: _core.Index, pieces: list[_Piece]) -> bytes:
    """Pieces of one object. OSError: they cannot be read, or are not as they were indexed."""
    number = pieces[0].number
    _, size, mtime_ns = index.object(number)
    path = object_path(index, number)
    with closing(_places.reader(path)) as file:
        now = _places.stat(path)
        if mtime_ns not in (0, now.st_mtime_ns):
            raise OSError("it has changed since it was indexed")
        if is_decoded(index):
            pieces = list(_as_stored(pieces, size, now.st_size))
        return b"".join(file.read(piece.offset, piece.size) for piece in pieces)


def _as_stored(pieces: list[_Piece], decoded: int, stored: int) -> Iterator[_Piece]:
    """Pieces of a file that stand for those of what it, or a part of it, decodes to."""
    for number, offset, size in pieces:
        begin, end = offset * stored // decoded, -(-(offset + size) * stored // decoded)
        yield _Piece(number, begin, min(max(end - begin, PIECE_BYTES), stored - begin))


def difference(saved: _core.Index, now: _core.Index) -> str | None:
    """How what an index describes differs from what another one did, with the file; None: not in
    what a copy keeps."""
    number = saved.first_other_object(now)
    if number is not None:
        return _other_object(saved, now, number)
    if [*map(_type_of, saved.fields)] != [*map(_type_of, now.fields)]:
        return "the fields differ"
    if saved.sample_count != now.sample_count:
        return f"it had {saved.sample_count} samples, and has {now.sample_count}"
    for position, field in enumerate(saved.fields):
        sample = _first_other_sample(saved, now, position, field)
        if sample is not None:
            where = f"sample {sample}: its field {field.name!r} differs"
            if not field.is_inline:
                file = object_path(now, int(now.extents(position, sample, 1)[0][0]))
                where = f"{file}: sample {sample}, field {field.name!r}, differs"
            return where
    return None


def _type_of(field: _core.Field) -> tuple[object, ...]:
    return (
        field.name,
        field.kind,
        field.dtype,
        field.shape,
        field.batch_dtype,
        field.is_inline,
        field.has_checksums,
        field.coding,
    )


def _other_object(saved: _core.Index, now: _core.Index, number: int) -> str:
    if number >= now.object_count:
        return f"{saved.object(number)[0]} is missing"
    path = object_path(now, number)
    if number >= saved.object_count:
        return f"{path} is new"
    (name, size, _), (name_now, size_now, _) = saved.object(number), now.object(number)
    if name == name_now:
        return f"{path} had {size} bytes, and has {size_now}"
    if is_decoded(now) and name.partition("/")[2] == name_now.partition("/")[2]:
        return f"{path} has another size, or other parts"
    return f"{path} is where {name} was"


def _first_other_sample(
    saved: _core.Index, now: _core.Index, position: int, field: _core.Field
) -> int | None:
    for first in range(0, now.sample_count, _SAMPLES_AT_ONCE):
        part = (position, first, min(_SAMPLES_AT_ONCE, now.sample_count - first))
        if field.is_inline and field.kind != "array":
            other = _first_other_value(saved.inline_ragged(*part), now.inline_ragged(*part))
        else:
            columns = zip(_columns(saved, field, part), _columns(now, field, part), strict=True)
            other = _first(np.logical_or.reduce([a != b for a, b in columns]))
        if other is not None:
            return first + other
    return None


def _first(differs: npt.NDArray[np.bool_]) -> int | None:
    return int(differs.argmax()) if differs.any() else None


def _columns(
    index: _core.Index, field: _core.Field, part: tuple[int, int, int]
) -> list[npt.NDArray[Any]]:
    """What the index has of each sample, but for values that differ in length."""
    if field.is_inline:
        values = np.ascontiguousarray(index.inline_values(*part))
        rows = values.reshape(part[2], -1).view(np.uint8)
        return list(rows.T)
    checksums = index.checksums(*part)
    return [*index.extents(*part), *(() if checksums is None else (checksums,))]


_Ragged = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]


def _first_other_value(saved: _Ragged, now: _Ragged) -> int | None:
    """The first of the values, given end to end with the bytes of each, that differs."""
    bytes_of_both = min(len(saved[0]), len(now[0]))
    at = _first(saved[0][:bytes_of_both] != now[0][:bytes_of_both])
    by_length = _first(saved[1] != now[1])
    if at is None:
        return by_length
    by_value = int(np.searchsorted(np.cumsum(now[1]), at, side="right"))
    return by_value if by_length is None else min(by_value, by_length)
