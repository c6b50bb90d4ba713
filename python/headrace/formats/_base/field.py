"""A field of a Builder, and what the values of an inline one become."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import choice, integer, shown
from headrace.errors import InvalidArgumentError
from headrace.formats._files.nested import LENGTH_MAX, LENGTHS_DTYPE, hidden_name, is_hidden_name

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Field:
    """A field that was added to a builder."""

    name: str
    position: int
    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of a sample; if samples differ in length, of an entry of one."""
    is_inline: bool
    is_variable: bool
    """Whether samples differ in length."""
    has_decoded_sizes: bool = False
    """Whether `add_extents` needs the bytes that each sample decodes to."""
    decoding: tuple[str, bool, int] = ("stored", False, 0)
    """How each sample is compressed, whether it is shuffled, the bytes in front of its value."""
    nested: Literal["", "text", "values"] = ""
    """Whether a sample is a list of such values, of text, or of arrays or bytes."""

    @property
    def lengths_field(self) -> str:
        """The name of the field that has the lengths of inner lists."""
        return hidden_name(self.name, is_text=self.nested == "text")

    def inner_lengths(self, lengths: Any, counts: Any) -> tuple[npt.NDArray[Any], U64]:
        """The lengths of inner lists as their field holds them, and their bytes of each sample."""
        numbers = np.asarray(lengths)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InvalidArgumentError(
                f"field {self.name!r}: inner lengths: got {shown(lengths)}, must be one number for "
                "each inner list"
            )
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) <= LENGTH_MAX:
            raise InvalidArgumentError(
                f"field {self.name!r}: inner lengths: got {int(numbers.min())} to "
                f"{int(numbers.max())}, must be in [0, {LENGTH_MAX}]"
            )
        stored = numbers.astype(LENGTHS_DTYPE)
        return stored, self._lengths(counts, numbers.size) * np.uint64(stored.itemsize)

    def refuse_inner(self, inner: Inner | None) -> NoReturn:
        """Raises as the lengths of inner lists are missing, or were given and are not needed."""
        raise InvalidArgumentError(
            f"field {self.name!r}: inner= is needed: (lengths, counts) of the lists in each sample"
            if inner is None
            else f"field {self.name!r}: inner= was given, but its samples are no lists of lists; "
            "add it with shape=(None, None, ...) for arrays, or (None,) for text and bytes"
        )

    def flat(self, values: Any) -> tuple[npt.NDArray[Any], Sequence[int], Inner]:
        """Samples that are lists of values: as `Builder.add_ragged` takes them."""
        samples = [list(value) for value in values]
        data, lengths = self.joined([value for sample in samples for value in sample])
        counts = [len(sample) for sample in samples]
        ends = list(accumulate(counts, initial=0))
        return data, [sum(lengths[i:j]) for i, j in pairwise(ends)], (lengths, counts)

    def added(self, core: _core.IndexBuilder, batch_dtype: npt.DTypeLike | None = None) -> Field:
        """Adds it to an index; the field with its position there."""
        is_list = self.is_variable and self.kind == "array"
        stored = "bytes" if self.nested else self.kind  # Inner texts are cut out of bytes.
        position = core.add_field(
            self.name,
            ("list" if is_list else stored, self.dtype.name, list(self.shape)),
            is_inline=self.is_inline,
            batch_dtype=None if batch_dtype is None else dtype_name(self.name, batch_dtype),
            decoding=(*self.decoding, self.has_decoded_sizes),
        )
        return replace(self, position=position)

    def check_decoded(self, is_given: bool) -> None:
        """Raises if decoded sizes are needed and not given, or given and not needed."""
        if self.has_decoded_sizes != is_given:
            raise InvalidArgumentError(
                f"field {self.name!r}: decoded= was given, but its samples are not compressed, or "
                "arrays of one shape; leave it out"
                if is_given
                else f"field {self.name!r}: decoded= is needed: the bytes that each sample decodes "
                "to"
            )

    def check_inline(self) -> None:
        """Raises if the values are not in the index."""
        if not self.is_inline:
            raise InvalidArgumentError(f"field {self.name!r}: it is not inline; call add_extents()")

    def array(self, values: Any, count: str) -> npt.NDArray[Any]:
        """Values as an array of this field's type, [`count`, *shape]."""
        array = self._numbers(values)
        if array.shape[1:] != self.shape or array.ndim != len(self.shape) + 1:
            raise InvalidArgumentError(
                f"field {self.name!r}: got values of shape {list(array.shape)}, must be "
                f"{[count, *self.shape]}"
            )
        return np.ascontiguousarray(array.astype(self.dtype, copy=False))

    def ragged(self, values: Any, lengths: Any) -> tuple[npt.NDArray[Any], U64]:
        """Values end to end, and the bytes of each sample."""
        if not self.is_variable:
            raise InvalidArgumentError(
                f"field {self.name!r}: its samples have one shape; call add_values()"
            )
        data = self.array(values, "entries") if self.kind == "array" else self._bytes(values)
        counts = self._lengths(lengths, len(data))
        if self.kind == "text":
            self._check_text(data, counts)
        return data, counts * np.uint64(self.dtype.itemsize * math.prod(self.shape))

    def joined(self, values: Any) -> tuple[npt.NDArray[Any], Sequence[int]]:
        """Values that come one by one: end to end, and their lengths, as `ragged` takes them."""
        if isinstance(values, (str, bytes, bytearray, memoryview)):
            raise InvalidArgumentError(
                f"field {self.name!r}: got {shown(values)}, must be a sequence of values, one a "
                "sample"
            )
        if self.kind == "array":
            parts = [self._entries(value) for value in values]
            none = np.empty((0, *self.shape), self.dtype)
            return np.concatenate([none, *parts]), [len(part) for part in parts]
        encoded = [self._encoded(value) for value in values]
        data = np.frombuffer(b"".join(encoded), np.uint8)
        return data, [len(part) for part in encoded]

    def _numbers(self, values: Any) -> npt.NDArray[Any]:
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InvalidArgumentError(
                f"field {self.name!r}: {error}; give samples of one shape"
            ) from error
        if array.size and not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise InvalidArgumentError(
                f"field {self.name!r}: got values of {array.dtype}, it holds {self.dtype}; "
                "convert them"
            )
        return array

    def _entries(self, value: Any) -> npt.NDArray[Any]:
        array = self._numbers(value)
        # An empty list has neither a type nor an inner shape.
        return (
            self.array(array, "entries") if array.size else np.empty((0, *self.shape), self.dtype)
        )

    def _bytes(self, values: Any) -> npt.NDArray[np.uint8]:
        if isinstance(values, (bytes, bytearray, memoryview)):
            return np.frombuffer(values, np.uint8)
        array = np.asarray(values)
        if array.size and array.dtype != np.uint8:
            raise InvalidArgumentError(
                f"field {self.name!r} of {self.kind}: got values of {array.dtype}, must be bytes, "
                "or an array of uint8"
            )
        return np.ascontiguousarray(array.astype(np.uint8, copy=False).reshape(-1))

    def _lengths(self, lengths: Any, entries: int) -> U64:
        counts = np.asarray(lengths)
        if counts.ndim != 1 or (counts.size and counts.dtype.kind not in "iu"):
            raise InvalidArgumentError(
                f"field {self.name!r}: lengths: got {shown(lengths)}, must be one number a sample"
            )
        if counts.size and counts.min() < 0:
            raise InvalidArgumentError(
                f"field {self.name!r}: lengths: got {int(counts.min())}, must be 0 or more"
            )
        total = sum(counts.tolist())  # Python's numbers do not wrap.
        if total != entries:
            raise InvalidArgumentError(
                f"field {self.name!r}: lengths: their sum is {total}, but there are {entries} "
                f"{'entries' if self.kind == 'array' else 'bytes'} of values"
            )
        return np.ascontiguousarray(counts.astype(np.uint64))

    def _encoded(self, value: Any) -> bytes:
        is_text = isinstance(value, str)
        if is_text != (self.kind == "text") or not isinstance(
            value, (str, bytes, bytearray, memoryview)
        ):
            raise InvalidArgumentError(
                f"field {self.name!r} of {self.kind}: got {shown(value)}, must be "
                f"{'text' if self.kind == 'text' else 'bytes'}"
            )
        if not isinstance(value, str):
            return bytes(value)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"field {self.name!r}: got {shown(value)}, which is not UTF-8: "
                f"{error.reason}; give text without surrogates"
            ) from error

    def _check_text(self, data: npt.NDArray[np.uint8], lengths: U64) -> None:
        """Raises if the whole is not UTF-8, or a value begins inside a character."""
        starts = np.cumsum(lengths, dtype=np.int64)[:-1]
        try:
            data.tobytes().decode()
            begins = data[starts[starts < data.size]]
            if not ((begins & 0xC0) == 0x80).any():
                return
            reason = "a value begins inside a character"
        except UnicodeDecodeError as error:
            reason = str(error)
        raise InvalidArgumentError(
            f"field {self.name!r}: its text is not UTF-8: {reason}; encode it so, or make "
            "it a field of bytes"
        )


Column = Sequence[int] | npt.NDArray[np.integer[Any]]

Inner = tuple[Column, Column]
"""The length of each inner list, and how many of them each sample has."""

Kind = Literal["bytes", "image", "array", "text"]

Numbers = int | Sequence[int] | npt.NDArray[np.integer[Any]]
"""One number for each entry, or one for all."""


def nested_kind(
    name: str, kind: Kind, dtype: object, shape: Sequence[int | None]
) -> Literal["", "text", "values"]:
    """Whether a sample of a field is a list of such values; raises if the field cannot be."""
    choice("field kind", kind, ("bytes", "image", "array", "text"))
    if (kind == "array") != (dtype is not None):
        raise InvalidArgumentError(
            f"field {name!r}: got kind={kind!r} and dtype={shown(dtype)}; an array has a "
            "dtype, other fields have none; give kind='array' with a dtype, or neither"
        )
    if is_hidden_name(name):
        raise InvalidArgumentError(
            f"field {name!r}: such a name is that of the lengths of lists; choose another"
        )
    if kind == "array":
        return "values" if tuple(shape[:2]) == (None, None) else ""
    if not shape:
        return ""
    if kind == "image" or tuple(shape) != (None,):
        raise InvalidArgumentError(
            f"field {name!r}: got kind={kind!r} and shape={list(shape)}; only an array has one; "
            "of text and bytes (None,) means lists of them; leave shape= out"
        )
    return "text" if kind == "text" else "values"


def new_field(
    name: str,
    kind: Kind,
    dtype: npt.DTypeLike | None,
    shape: Sequence[int | None],
    decoding: tuple[str, bool, int],
) -> Field:
    """A field as `Builder.add_field` takes it, which is not inline and not added yet."""
    nested = nested_kind(name, kind, dtype, shape)
    if nested:
        shape = shape[1:]
    if dtype is not None:
        dtype_name(name, dtype)  # Raises if there is no such type.
    of = np.dtype("uint8" if dtype is None else dtype)
    is_list = bool(shape) and shape[0] is None
    inner = tuple(dimensions(name, shape[1:] if is_list else shape))
    coding, _, header_bytes = decoding
    choice("field coding", coding, ("stored", "zstd", "zlib", "deflate", "snappy", "gzip"))
    integer(f"field {name!r}: header_bytes", header_bytes, 0, 2**32 - 1)
    is_variable = is_list or kind != "array"
    sized = coding != "stored" and is_variable
    return Field(name, -1, kind, of, inner, False, is_variable, sized, decoding, nested)


def lengths_of(nested: Field) -> Field:
    """The hidden field of a list of lists, which is not added yet."""
    return Field(nested.lengths_field, -1, "array", np.dtype(LENGTHS_DTYPE), (), True, True)


def dimensions(field: str, shape: Sequence[int | None]) -> list[int]:
    """The shape of an entry, of which no dimension is open."""
    inner = []
    for size in shape:
        if size is None:
            raise InvalidArgumentError(
                f"field {field!r}: got shape {list(shape)}: only the first dimension may be "
                "None, or the first two"
            )
        inner.append(int(size))
    return inner


def dtype_name(field: str, dtype: npt.DTypeLike) -> str:
    """The name of a dtype that batches can hold."""
    try:
        numpy_dtype = np.dtype(dtype)
    except TypeError:
        raise InvalidArgumentError(
            f"field {field!r}: got dtype {shown(dtype)}, must be one of NumPy's"
        ) from None
    if not numpy_dtype.isnative:
        raise InvalidArgumentError(
            f"field {field!r}: got dtype {numpy_dtype.str}, must be little-endian: write the data "
            "in that order"
        )
    return numpy_dtype.name


def part_name(path: str, part: tuple[int, int], size: int) -> str:
    """A part of a file of `size` bytes, offset and size, as the names of objects have it."""
    offset, count = part
    integer(f"adding file {path}: offset of part", offset, 0, size)
    integer(f"adding file {path}: size of part", count, 0, size - offset)
    return f"{offset}+{count}"


def unsigned(values: Numbers) -> U64:
    """A column of extents."""
    array = np.asarray(values)
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0):
        raise InvalidArgumentError(f"extents: got {shown(values)}, must be numbers of 0 and more")
    if array.ndim > 1:
        raise InvalidArgumentError(f"extents: got {array.ndim} dimensions, must be one number each")
    return array.astype(np.uint64, copy=False)


def stretched(column: U64, count: int) -> U64:
    """A column of `count` entries, from one with as many, or with one."""
    if column.ndim and column.size != count:
        raise InvalidArgumentError(
            f"extents: files, offsets and sizes differ in number: {column.size}, {count}; give as "
            "many of each, or one"
        )
    return np.ascontiguousarray(np.broadcast_to(column, (count,)))
