"""The features of examples, as fields of the index."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from headrace.errors import InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._files.images import BEGIN_BYTES, is_image
from headrace.formats._shards.example import Feature
from headrace.formats._shards.source import Source

KINDS = {
    "bytes": "bytes_list",
    "image": "bytes_list",
    "text": "bytes_list",
    "int64": "int64_list",
    "int64[]": "int64_list",
    "float32": "float_list",
    "float32[]": "float_list",
}
"""What a feature may become, and the list that it is stored as. []: any number of values."""

_NUMBERS = {"int64_list": "int64", "float_list": "float32"}


def kind_of(record: bytes, feature: Feature) -> str:
    """What a feature becomes by default: by its value in the first record."""
    if feature.kind != "bytes_list":
        return _NUMBERS.get(feature.kind or "", "bytes")
    first = feature.extents[0][0] if feature.extents else len(record)
    return "image" if is_image(record[first : first + BEGIN_BYTES]) else "bytes"


class FeatureColumn:
    """A feature that becomes a field.

    One number a record is in the index, as are lists of integers, which have no fixed width in the
    record. Bytes, and floats of other numbers than one, are extents.
    """

    def __init__(self, name: str, kind: str, count: int) -> None:
        """`count`: of the values in each record, where it is the same."""
        self._name = name
        self._kind = kind
        self._count = count
        self._is_list = kind.endswith("[]")
        self._is_inline = kind.startswith("int64") or (kind == "float32" and count == 1)
        self._extents: list[tuple[int, int, int]] = []
        self._numbers: list[NDArray[np.generic]] = []

    @classmethod
    def of(
        cls, source: Source, at: int, name: str, kind: str | None, found: dict[str, Feature]
    ) -> Self:
        """By the first record, whose bytes begin at `at`."""
        feature = found.get(name)
        if feature is None:
            raise _refused(source, at, f"the first record has no feature {name!r}", name, found)
        if kind is None:
            begin = feature.extents[0][0] if feature.extents else 0
            front = source.part(at + begin, min(8, feature.extents[0][1])) if begin else b""
            kind = kind_of(bytes(front), feature._replace(extents=[(0, len(front))]))
        return cls(name, kind, len(feature.numbers))

    def empty(self) -> FeatureColumn:
        """The same field, for the records of a file."""
        return FeatureColumn(self._name, self._kind, self._count)

    def declare(self, builder: Builder) -> None:
        """Adds the field."""
        if self._kind in ("bytes", "image", "text"):
            builder.add_field(self._name, self._kind)  # type: ignore[arg-type]
            return
        shape: list[int | None] = [None] if self._is_list else []
        if not self._is_list and self._count != 1:
            shape = [self._count]
        dtype = self._kind.removesuffix("[]")
        builder.add_field(self._name, "array", dtype, shape, inline=self._is_inline)

    def add(self, source: Source, file: int, at: int, found: dict[str, Feature]) -> None:
        """Adds a record, whose bytes begin at `at`."""
        feature = found.get(self._name)
        if feature is None:
            raise _refused(source, at, f"it has no feature {self._name!r}", self._name, found)
        stored = KINDS[self._kind]
        # An empty list may have no kind.
        if feature.kind != stored and (feature.kind is not None or not self._is_list):
            what = f"feature {self._name!r} is {_shown(feature)}, {self._kind} needs a {stored}"
            raise _refused(source, at, what, self._name, found)
        if stored == "bytes_list":
            if len(feature.extents) != 1:
                what = f"feature {self._name!r} has {len(feature.extents)} values, a field has one"
                raise _refused(source, at, what, self._name, found)
        elif not self._is_list and (len(feature.numbers) != self._count or not self._count):
            raise InvalidArgumentError(
                f"indexing {source.path}: byte {at}: feature {self._name!r} has "
                f"{len(feature.numbers)} values, in the first record {self._count}; say that it "
                f"is a list of any length: features={{{self._name!r}: '{self._kind}[]', ...}}"
            )
        if self._is_inline:
            self._numbers.append(feature.numbers)
            return
        if len(feature.extents) > 1:
            what = f"the floats of feature {self._name!r} are not packed, so not one range"
            raise _refused(source, at, what, self._name, found)
        begin, size = feature.extents[0] if feature.extents else (0, 0)
        self._extents.append((file, at + begin, size))

    def flush(self, builder: Builder) -> None:
        """Passes on what was added."""
        if self._extents:
            builder.add_extents(self._name, *zip(*self._extents, strict=True))
        if self._numbers and self._is_list:
            lengths = [len(each) for each in self._numbers]
            builder.add_ragged(self._name, np.concatenate(self._numbers), lengths)
        elif self._numbers:
            values = np.stack(self._numbers)
            builder.add_values(self._name, values[:, 0] if self._count == 1 else values)
        self._extents.clear()
        self._numbers.clear()


def _shown(feature: Feature) -> str:
    return "empty" if feature.kind is None else f"a {feature.kind}"


def _refused(
    source: Source, at: int, what: str, name: str, found: dict[str, Feature]
) -> InvalidArgumentError:
    kinds = {
        each: "bytes" if feature.kind == "bytes_list" else f"{_NUMBERS[feature.kind]}"
        for each, feature in sorted(found.items())
        if each != name and feature.kind is not None
    }
    return InvalidArgumentError(
        f"indexing {source.path}: byte {at}: {what}; name features that all records have, as "
        f"features={kinds!r:.300}"
    )
