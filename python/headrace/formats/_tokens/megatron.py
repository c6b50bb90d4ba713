"""The .idx file of Megatron's indexed datasets, whose .bin file holds the tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _places
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.formats._files.npy import Read
from headrace.formats._files.reading import file_reader

U64 = NDArray[np.uint64]

MAGIC = b"MMIDIDX\0\0"
_HEADER_BYTES = 34  # magic, version, dtype, number of sequences, number of documents
_CODES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}
_AT_ONCE = 2**20  # sequences checked together
_DOCUMENTS_AT_ONCE = 2**18
_AGAIN = "copy or write both files again"


@dataclass(frozen=True)
class Megatron:
    """What an .idx file says."""

    dtype: np.dtype[Any]
    tokens: int
    sequences: int
    documents: int
    """Entries of its list of documents: one more than there are."""


def is_megatron(path: str) -> bool:
    """Whether `path` is an .idx of Megatron, or a .bin beside one."""
    base, suffix = os.path.splitext(path)
    if suffix not in (".bin", ".idx") or not _places.is_file(base + ".idx"):
        return False
    with _places.open(base + ".idx") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_megatron(idx: str, bin_path: str) -> Megatron:
    """Reads and checks the whole .idx, in pieces: the sequences must fill the .bin in order."""
    if not _places.exists(bin_path):
        raise NotFoundError(f"indexing {idx}: its tokens, {bin_path}, are missing; copy both files")
    with file_reader(idx) as (read, size):
        front = read(0, _HEADER_BYTES)
        if len(front) < _HEADER_BYTES:
            raise _damaged(idx, 0, f"the file has {size} bytes, its header alone {_HEADER_BYTES}")
        version = int.from_bytes(front[9:17], "little")
        if front[:9] != MAGIC or version != 1:
            raise _damaged(idx, 0, f"no Megatron index of version 1 (it has version {version})")
        if front[17] not in _CODES:
            raise _damaged(idx, 17, f"dtype code {front[17]}, there are 1 to 8")
        dtype = np.dtype(_CODES[front[17]])
        sequences = int.from_bytes(front[18:26], "little")
        documents = int.from_bytes(front[26:34], "little")
        needed = _HEADER_BYTES + 12 * sequences + 8 * documents
        if size not in (needed, needed + sequences):  # One byte a sequence more: modes.
            raise _damaged(
                idx,
                18,
                f"{sequences} sequences and {documents} documents need {needed} bytes, "
                f"the file has {size}",
            )
        tokens = _count_tokens(read, idx, sequences, dtype.itemsize)
    has = _places.stat(bin_path).st_size
    if has != tokens * dtype.itemsize:
        raise DataLossError(
            f"indexing {bin_path}: it has {has} bytes, its {idx} says {tokens} tokens of "
            f"{dtype}, {tokens * dtype.itemsize} bytes; {_AGAIN}"
        )
    return Megatron(dtype, tokens, sequences, documents)


def document_extents(idx: str, megatron: Megatron) -> Iterator[tuple[U64, U64]]:
    """Offsets and sizes in bytes of the documents in the .bin, in pieces.

    `megatron`: what `read_megatron` returned for this .idx.
    """
    total = megatron.tokens * megatron.dtype.itemsize
    with file_reader(idx) as (read, _):
        table = 12 * megatron.sequences + _HEADER_BYTES
        before = 0  # the sequence that the next document begins with
        for first in range(0, max(megatron.documents - 1, 0), _DOCUMENTS_AT_ONCE):
            count = min(_DOCUMENTS_AT_ONCE, megatron.documents - 1 - first)
            at = table + 8 * first
            begins = np.frombuffer(_all(read, idx, at, 8 * (count + 1)), "<i8")
            falls = np.flatnonzero((np.diff(begins) < 0) | (begins[1:] > megatron.sequences))
            if begins[0] != before or falls.size:
                wrong = int(falls[0]) + 1 if falls.size else 0
                raise _damaged(
                    idx,
                    at + 8 * wrong,
                    f"document {first + wrong} begins at sequence {begins[wrong]} of "
                    f"{megatron.sequences}",
                )
            before = int(begins[-1])
            places = _begins(read, idx, megatron.sequences, begins, total)
            yield places[:-1], np.diff(places)
        if before != megatron.sequences:
            raise _damaged(
                idx,
                table + 8 * max(megatron.documents - 1, 0),
                f"its documents end at sequence {before} of {megatron.sequences}",
            )


def _begins(read: Read, idx: str, sequences: int, numbers: NDArray[np.int64], total: int) -> U64:
    """Where these sequences, in ascending order, begin in the .bin; `total`: where it ends."""
    begins = np.full(len(numbers), total, np.uint64)
    table = _HEADER_BYTES + 4 * sequences
    first = 0
    inside = int(np.searchsorted(numbers, sequences))  # the others are its end
    while first < inside:
        base = int(numbers[first])
        last = int(np.searchsorted(numbers[:inside], base + _AT_ONCE))
        count = int(numbers[last - 1]) - base + 1
        pointers = np.frombuffer(_all(read, idx, table + 8 * base, 8 * count), "<u8")
        begins[first:last] = pointers[numbers[first:last] - base]
        first = last
    return begins


def _count_tokens(read: Read, idx: str, sequences: int, width: int) -> int:
    """Adds the lengths up; each sequence must begin where the one before it ends."""
    end = 0
    for first in range(0, sequences, _AT_ONCE):
        count = min(_AT_ONCE, sequences - first)
        at = _HEADER_BYTES + 4 * first
        lengths = np.frombuffer(_all(read, idx, at, 4 * count), "<i4").astype(np.int64)
        if lengths.min(initial=0) < 0:
            wrong = int(np.argmax(lengths < 0))
            raise _damaged(idx, at + 4 * wrong, f"sequence {first + wrong} has a negative length")
        ends = end + np.cumsum(lengths * width)
        begins = np.concatenate([[end], ends[:-1]])
        at = _HEADER_BYTES + 4 * sequences + 8 * first
        pointers = np.frombuffer(_all(read, idx, at, 8 * count), "<i8")
        if not np.array_equal(pointers, begins):
            wrong = int(np.argmax(pointers != begins))
            raise InvalidArgumentError(
                f"indexing {idx}: byte {at + 8 * wrong}: sequence {first + wrong} begins at byte "
                f"{pointers[wrong]} of the .bin, the one before it ends at {begins[wrong]}: "
                f"windows need tokens without gaps; {_AGAIN}"
            )
        end = int(ends[-1])
    return end // width


def _all(read: Read, idx: str, offset: int, size: int) -> bytes:
    data = read(offset, size)
    if len(data) != size:
        raise _damaged(idx, offset, f"{size} bytes are needed, there are {len(data)}")
    return data


def _damaged(idx: str, offset: int, why: str) -> DataLossError:
    return DataLossError(f"indexing {idx}: byte {offset}: {why}; {_AGAIN}")
