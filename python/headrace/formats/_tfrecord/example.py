"""tf.train.Example, from the bytes of the protocol buffer: which features, and where they lie.

Example     { Features features = 1; }
Features    { map<string, Feature> feature = 1; }       an entry: key = 1, value = 2
Feature     { one of BytesList = 1, FloatList = 2, Int64List = 3 }
each list   { repeated value = 1 }                      numbers packed or one by one
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

KINDS = ("bytes_list", "float_list", "int64_list")

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_FIELD_MAX = 2**29

Known = dict[int, tuple[int, ...]]

_MESSAGE: Known = {1: (_LENGTH,)}
_EXAMPLE: Known = {1: (_LENGTH,), 2: (_LENGTH,)}
_ENTRY: Known = {1: (_LENGTH,), 2: (_LENGTH,)}
_FEATURE: Known = {1: (_LENGTH,), 2: (_LENGTH,), 3: (_LENGTH,)}
_FLOATS: Known = {1: (_LENGTH, _FOUR)}
_INTEGERS: Known = {1: (_LENGTH, _VARINT)}


class DamagedError(ValueError):
    """Bytes that are no Example; with their offset in the record."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


class Feature(NamedTuple):
    """A feature of an Example."""

    kind: str | None
    """Of `KINDS`; None: it is empty and has no kind."""
    extents: list[tuple[int, int]]
    """Where values lie in the record, offset and size: each of bytes; runs of floats."""
    numbers: NDArray[Any]
    """Of the others than bytes: int64 or float32."""


def features_of(data: bytes) -> dict[str, Feature]:
    """The features of a record, by name. Raises DamagedError."""
    features: dict[str, Feature] = {}
    for number, begin, end in _fields(data, 0, len(data), _EXAMPLE):
        if number == 2:
            raise DamagedError(begin, "it has lists of features, as a SequenceExample")
        for _, first, last in _fields(data, begin, end, _MESSAGE):
            name, feature = _entry(data, first, last)
            features[name] = feature  # The last one of a name counts, as for protocol buffers.
    return features


def _entry(data: bytes, begin: int, end: int) -> tuple[str, Feature]:
    name, place = "", (end, end)
    for number, first, last in _fields(data, begin, end, _ENTRY):
        if number == 1:
            try:
                name = data[first:last].decode()
            except UnicodeDecodeError:
                raise DamagedError(first, "a name of a feature is not UTF-8") from None
        else:
            place = (first, last)
    return name, _feature(data, *place)


def _feature(data: bytes, begin: int, end: int) -> Feature:
    feature = Feature(None, [], np.empty(0, np.int64))
    for number, first, last in _fields(data, begin, end, _FEATURE):
        if feature.kind is not None:
            raise DamagedError(first, "a feature has two lists")
        if number == 1:
            extents = [(at, stop - at) for _, at, stop in _fields(data, first, last, _MESSAGE)]
            feature = Feature(KINDS[0], extents, np.empty(0, np.uint8))
        elif number == 2:
            feature = _floats(data, first, last)
        else:
            feature = _integers(data, first, last)
    return feature


def _floats(data: bytes, begin: int, end: int) -> Feature:
    parts = []
    for _, first, last in _fields(data, begin, end, _FLOATS):
        if (last - first) % 4:
            raise DamagedError(first, f"a list of floats has {last - first} bytes")
        parts.append((first, last - first))
    values = b"".join(data[at : at + size] for at, size in parts)
    return Feature(KINDS[1], parts, np.frombuffer(values, "<f4").astype(np.float32))


def _integers(data: bytes, begin: int, end: int) -> Feature:
    parts = [data[first:last] for _, first, last in _fields(data, begin, end, _INTEGERS)]
    return Feature(KINDS[2], [], _varints(b"".join(parts), begin))


def _varints(data: bytes, at: int) -> NDArray[np.int64]:
    """All numbers of a list: seven bits a byte, the lowest first; the last byte is below 128."""
    values = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(values < 0x80)
    if not values.size:
        return np.empty(0, np.int64)
    if values[-1] >= 0x80:
        raise DamagedError(at, "a number that does not end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    places = np.arange(values.size) - np.repeat(starts, ends + 1 - starts)
    if places.max() > 9 or (values[places == 9] > 1).any():
        raise DamagedError(at, "a number of more than 64 bits")
    parts = (values & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(parts, starts).view(np.int64)


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, at
    raise DamagedError(min(at, end), "a number that does not end, or has more than 64 bits")


def _fields(data: bytes, at: int, end: int, known: Known) -> Iterator[tuple[int, int, int]]:
    """Of each known field of a message: its number, where its value begins and ends.

    `known`: the wire types of fields, by number. Others are passed over.
    """
    while at < end:
        tag, begin = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == _LENGTH:
            size, begin = _varint(data, begin, end)
            stop = begin + size
        elif wire == _VARINT:
            _, stop = _varint(data, begin, end)
        elif wire in (_EIGHT, _FOUR):
            stop = begin + (8 if wire == _EIGHT else 4)
        else:
            raise DamagedError(at, f"a field of wire type {wire}")
        if stop > end or not 0 < number < _FIELD_MAX:
            raise DamagedError(at, f"field {number} ends at {stop}, its message at {end}")
        wanted = known.get(number)
        if wanted is not None:
            if wire not in wanted:
                raise DamagedError(at, f"field {number} has wire type {wire}")
            yield number, begin, stop
        at = stop
