"""TFRecord: files of records of bytes, and the features of their tf.train.Example."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace import _core, _places
from headrace._arguments import shown
from headrace._text import unread_reason
from headrace.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format
from headrace.formats._fields.order import FieldType, data_first
from headrace.formats._files.patterns import expand
from headrace.formats._files.reading import file_reader
from headrace.formats._shards.source import AGAIN, Source
from headrace.formats._tfrecord.example import DamagedError, Feature, features_of
from headrace.formats._tfrecord.feature_columns import KINDS, FeatureColumn, columns_of
from headrace.formats._tfrecord.records import HEAD_BYTES, Ahead, masked_crc, records

_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")
_NUMBERED = re.compile(r".-\d{5,}-of-\d{5,}")
_BESIDE = (".json", ".txt")  # as TensorFlow Datasets has them beside its records
_RECORDS_AT_ONCE = 20_000


@dataclass(frozen=True, kw_only=True)
class TFRecord(Format):
    """TFRecord files: `headrace docs formats/tfrecord`.

    >>> hr.open("train-{00000..00009}-of-00010", format=TFRecord(examples=True))
    """

    name: ClassVar[str] = "tfrecord"
    opens: ClassVar[str] = "TFRecord files"
    chooses: ClassVar[tuple[str, ...]] = ("features",)

    examples: bool = False
    """Whether records are tf.train.Example: the features of the first record become fields."""
    features: Mapping[str, str] | None = None
    """The features that become fields, each with its kind, if records are examples."""

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        features: Any = self.features
        valid = features is None or (isinstance(features, Mapping) and len(features) > 0)
        if not valid or not all(kind in KINDS for kind in (features or {}).values()):
            raise InvalidArgumentError(
                f"tfrecord features: got {shown(features)}, must be the kind of each feature, as "
                f"{{'label': 'int64'}}: one of {', '.join(KINDS)}"
            )

    def recognises(self, path: str) -> bool:
        if _places.is_folder(path):
            return bool(_files_in(path))
        first = expand(path)[0]
        if not _places.is_file(first):
            return False
        return _is_named(first) or (_is_numbered(first) and _begins(first))

    def takes(self, name: str) -> bool:
        return _is_named(name) or (_is_numbered(name) and name[-1].isdigit())

    def fill(self, path: str, builder: Builder) -> None:
        if _places.is_folder(path):
            builder.depends_on(path)
        files = _files(path)
        first = self._first(files)
        if first is None:
            raise InvalidArgumentError(
                f"indexing {path}: it holds no samples; open files that have records"
            )
        for column in first.columns or ():
            column.declare(builder)
        if first.columns is None:
            builder.add_field("record", "bytes")

        def describe(file_path: str, part: Builder) -> None:
            with file_reader(file_path) as (read, size):
                source = Source(file_path, size, read)
                ahead = Ahead(source)
                columns = _RecordColumns(part, part.add_file(file_path), first.begin())
                samples = 0
                for at, length in records(source, ahead):
                    features = self._features(source, ahead, samples, at, length)
                    columns.add(source, at, length, features)
                    samples += 1
                    if samples % _RECORDS_AT_ONCE == 0:
                        columns.flush(samples)
                columns.flush(samples)

        builder.add_parts(files, describe)

    def _first(self, files: list[str]) -> _First | None:
        """What the first record says; None: there is none."""
        for file in files:
            with file_reader(file) as (read, size):
                source = Source(file, size, read)
                ahead = Ahead(source, HEAD_BYTES)
                for at, length in records(source, ahead):
                    features = self._features(source, ahead, 0, at, length)
                    return _First(self._chosen(source, at, features))
        return None

    def _features(
        self, source: Source, ahead: Ahead, number: int, at: int, length: int
    ) -> dict[str, Feature] | None:
        """Of a record that is an example."""
        if not self.examples and self.features is None:
            return None
        try:
            return features_of(ahead.bytes_at(at, length, ahead=False))
        except DamagedError as error:
            raise DataLossError(
                f"indexing {source.path}: byte {at + error.offset}: record {number} is no "
                f"tf.train.Example: {error}; open the records as they are: "
                f"format=hr.formats.TFRecord(), or {AGAIN}"
            ) from error

    def _chosen(
        self, source: Source, at: int, features: dict[str, Feature] | None
    ) -> list[FeatureColumn] | None:
        """The features that become fields, by the first record."""
        if features is None:
            return None
        wanted: Mapping[str, str | None] = self.features or dict.fromkeys(sorted(features))
        if not wanted:
            raise InvalidArgumentError(
                f"indexing {source.path}: byte {at}: the first record has no features; open the "
                "records as they are: format=hr.formats.TFRecord()"
            )
        return columns_of(source, at, wanted, features)

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        # The features of an example have no order: the index has their names sorted.
        chosen = self.chose_fields(index)
        return super().field_order(index, fields) if chosen else data_first(fields)


@dataclass(frozen=True)
class _First:
    """What the first record says."""

    columns: list[FeatureColumn] | None
    """The features that become fields; None: a sample is a record."""

    def begin(self) -> list[FeatureColumn] | None:
        """The columns, for the records of a file."""
        return None if self.columns is None else [column.empty() for column in self.columns]


class _RecordColumns:
    """Adds the records of a file to the builder, many at a time."""

    def __init__(self, builder: Builder, number: int, features: list[FeatureColumn] | None) -> None:
        """`number`: of the file."""
        self._builder = builder
        self._number = number
        self._features = features
        self._extents: list[tuple[int, int]] = []

    def add(
        self, source: Source, at: int, length: int, features: dict[str, Feature] | None
    ) -> None:
        if self._features is None or features is None:
            self._extents.append((at, length))
            return
        for column in self._features:
            column.add(source, self._number, at, features)

    def flush(self, samples: int) -> None:
        """Passes on what was added."""
        if self._features is None and self._extents:
            offsets, sizes = zip(*self._extents, strict=True)
            self._builder.add_extents("record", self._number, offsets, sizes)
            self._extents.clear()
        for column in self._features or ():
            column.flush(self._builder)
        self._builder.tell(samples)


def _is_named(path: str) -> bool:
    """Whether the name alone says that it is one."""
    return path.endswith(_SUFFIXES) or (
        _is_numbered(path) and any(f"{suffix}-" in path for suffix in _SUFFIXES)
    )


def _is_numbered(path: str) -> bool:
    return _NUMBERED.search(os.path.basename(path)) is not None


def _begins(path: str) -> bool:
    """Whether a record begins the file: any file may have such a name."""
    with _places.open(path) as file:
        head = file.read(HEAD_BYTES)
    return len(head) == HEAD_BYTES and int.from_bytes(head[8:], "little") == masked_crc(head[:8])


def _files_in(folder: str) -> list[str]:
    """The files of records of a folder that has no others; else none."""
    files = []
    with _places.entries(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith(_BESIDE):
                continue
            if not _is_named(entry.name) or not entry.is_file():
                return []
            files.append(os.path.join(folder, entry.name))
    return sorted(files)


def _files(path: str) -> list[str]:
    if not _places.is_folder(path):
        return expand(path)
    try:
        return _files_in(path)
    except OSError as error:
        raise FailedPreconditionError(f"indexing {path}: {unread_reason(error)}") from error
