"""The features of examples, as fields of the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headrace.errors import InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._files.images import BEGIN_BYTES, is_image
from headrace.formats._shards.source import Source
from headrace.formats._tfrecord.example import Feature

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
        self.all: dict[str, str] = {name: kind}
        """The kinds of all features that become fields, for advice."""
        self._count = count
        self._is_list = kind.endswith("[]")
        self._is_inline = kind.startswith("int64") or (kind == "float32" and count == 1)
        self._extents: list[tuple[int, int, int]] = []
        self._numbers: list[NDArray[np.generic]] = []

    @classmethod
    def of(
        cls, source: Source, at: int, name: str, kind: str | None, features: dict[str, Feature]
    ) -> Self:
        """By the first record, whose bytes begin at `at`, and which has the feature."""
        feature = features[name]
        if kind is None:
            begin = feature.extents[0][0] if feature.extents else 0
            front = source.part(at + begin, min(8, feature.extents[0][1])) if begin else b""
            kind = kind_of(bytes(front), feature._replace(extents=[(0, len(front))]))
        return cls(name, kind, len(feature.numbers))

    @property
    def name(self) -> str:
        """Of the feature, and of the field."""
        return self._name

    @property
    def kind(self) -> str:
        """Of `KINDS`."""
        return self._kind

    def empty(self) -> FeatureColumn:
        """The same field, for the records of a file."""
        column = FeatureColumn(self._name, self._kind, self._count)
        column.all = self.all
        return column

    def check_first(self, source: Source, at: int, features: dict[str, Feature]) -> None:
        """Raises if the first record has the feature as another kind than was given."""
        feature = features[self._name]
        if feature.kind not in (None, KINDS[self._kind]):
            fitting = _NUMBERS.get(str(feature.kind), "bytes")
            is_list = self._is_list and fitting != "bytes"
            kinds = self.all | {self._name: f"{fitting}[]" if is_list else fitting}
            raise InvalidArgumentError(
                f"indexing {source.path}: byte {at}: feature {self._name!r} is "
                f"{_shown(feature)}, features= says {self._kind!r}, which needs "
                f"{_with_article(KINDS[self._kind])}; give {_written(kinds)}"
            )

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

    def add(self, source: Source, file: int, at: int, features: dict[str, Feature]) -> None:
        """Adds a record, whose bytes begin at `at`."""
        feature = features.get(self._name)
        if feature is None:
            raise self._refused(source, at, f"the record has no feature {self._name!r}")
        stored = KINDS[self._kind]
        # An empty list may have no kind.
        if feature.kind != stored and (feature.kind is not None or not self._is_list):
            needed = f"{self._kind} needs {_with_article(stored)}"
            what = f"feature {self._name!r} is {_shown(feature)}, {needed}, as in the first record"
            raise self._refused(source, at, what)
        if stored == "bytes_list":
            if len(feature.extents) != 1:
                what = f"feature {self._name!r} has {len(feature.extents)} values, a field has one"
                raise self._refused(source, at, what)
        elif not self._is_list and (len(feature.numbers) != self._count or not self._count):
            raise InvalidArgumentError(
                f"indexing {source.path}: byte {at}: feature {self._name!r} has "
                f"{len(feature.numbers)} values, in the first record {self._count}; say that it "
                f"is a list of any length: {_written(self.all | {self._name: f'{self._kind}[]'})}"
            )
        if self._is_inline:
            self._numbers.append(feature.numbers)
            return
        if len(feature.extents) > 1:
            what = f"the floats of feature {self._name!r} are not packed, so not one range"
            raise self._refused(source, at, what)
        begin, size = feature.extents[0] if feature.extents else (0, 0)
        self._extents.append((file, at + begin, size))

    def flush(self, builder: Builder) -> None:
        """Passes on what was added."""
        if self._extents:
            builder.add_extents(self._name, *zip(*self._extents, strict=True))
        if self._numbers and self._is_list:
            lengths = [len(numbers) for numbers in self._numbers]
            builder.add_ragged(self._name, np.concatenate(self._numbers), lengths)
        elif self._numbers:
            values = np.stack(self._numbers)
            builder.add_values(self._name, values[:, 0] if self._count == 1 else values)
        self._extents.clear()
        self._numbers.clear()

    def _refused(self, source: Source, at: int, what: str) -> InvalidArgumentError:
        others = {name: kind for name, kind in self.all.items() if name != self._name}
        return InvalidArgumentError(
            f"indexing {source.path}: byte {at}: {what}; {_left_out(others)}"
        )


def columns_of(
    source: Source, at: int, wanted: Mapping[str, str | None], features: dict[str, Feature]
) -> list[FeatureColumn]:
    """The features that become fields, by the first record, whose bytes begin at `at`."""
    there = {name: kind for name, kind in wanted.items() if name in features}
    columns = [FeatureColumn.of(source, at, *named_kind, features) for named_kind in there.items()]
    kinds = {column.name: column.kind for column in columns}
    for name in wanted:
        if name not in features:
            has = ", ".join(map(repr, sorted(features))) or "none"
            raise InvalidArgumentError(
                f"indexing {source.path}: byte {at}: the first record has no feature {name!r}; it "
                f"has {has}; {_left_out(kinds)}"
            )
    for column in columns:
        column.all = kinds
    for column in columns:
        column.check_first(source, at, features)
    return columns


def _shown(feature: Feature) -> str:
    return "empty" if feature.kind is None else _with_article(feature.kind)


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _written(kinds: dict[str, str]) -> str:
    return f"format=hr.formats.TFRecord(features={kinds!r})"


def _left_out(others: dict[str, str]) -> str:
    if not others:
        return "open the records as they are: format=hr.formats.TFRecord()"
    return f"leave it out: {_written(others)}"
