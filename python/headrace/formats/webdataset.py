"""WebDataset: tar files in which members with one key are a sample."""

from __future__ import annotations

import gzip
import io
import re
import warnings
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from headrace import _core, _places
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._base.builder import Builder, FieldCoding
from headrace.formats._base.findings import (
    TAR_LINK,
    TAR_OTHER,
    TAR_SPECIAL,
    TAR_TWICE,
    FindingCounts,
    callers_level,
)
from headrace.formats._base.format import Format
from headrace.formats._base.sounds import sound_bytes
from headrace.formats._fields.order import FieldType, data_first
from headrace.formats._files.gzipped import decoded_front, decoded_size
from headrace.formats._files.npy import NpyHeader, Read, read_npy_header
from headrace.formats._files.patterns import expand, files_at
from headrace.formats._folders.calls import open_call
from headrace.formats._tars.advice import DEREFERENCE, unlike, without_bytes
from headrace.formats._tars.samples import IMAGES, keys_again, samples_of
from headrace.formats._tars.tar import Member, TarReader, open_tar

_SOUNDS = ("wav", "flac")
_LABEL = "cls"
_GZIP = ".gz"
_LABEL_BYTES_MAX = 20
_SAMPLES_AT_ONCE = 20_000
_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4")


@dataclass(frozen=True, kw_only=True)
class WebDataset(Format):
    """Tar files as webdataset writes them: `headrace docs formats/webdataset`.

    >>> hr.open("train-{0000..0099}.tar", format=WebDataset(members=("jpg", "cls")))
    """

    name: ClassVar[str] = "webdataset"
    opens: ClassVar[str] = 'tar files of samples (webdataset), also as "a-{000..099}.tar"'

    members: tuple[str, ...] | None = None
    """The extensions to take; None: those of the first sample."""
    raw: tuple[str, ...] = ()
    """Extensions whose members stay bytes, whatever they are."""

    def recognises(self, path: str) -> bool:
        if _places.is_folder(path):
            return _are_tars(path)
        first = expand(path)[0]
        return first.endswith(_SUFFIXES) and _places.is_file(first)

    def takes(self, name: str) -> bool:
        return name.endswith(_SUFFIXES)

    def fill(self, path: str, builder: Builder) -> None:
        if _places.is_folder(path):
            builder.depends_on(path)
        shards = _shards(path)
        fields = self._first_fields(path, shards)
        self._check_names(path, fields)
        for field in fields:
            field.declare(builder)

        def describe(shard: str, part: Builder) -> str | None:
            with open_tar(shard) as tar:
                columns = _MemberColumns(part, part.add_file(shard), fields, self)
                keys = array("q")
                for key, members in samples_of(tar):
                    keys.append(hash(key))
                    columns.add(tar, key, self._taken(members))
                columns.flush()
                for key in keys_again(tar, keys):
                    columns.findings.add(TAR_TWICE, key)
            return columns.findings.json() if columns.findings.by_kind else None

        findings = FindingCounts()  # For `Dataset.report`.
        builder.add_parts(shards, describe, findings.add_json)
        findings.report(builder)
        _warn_of_missing(path, findings)

    def _first_fields(self, path: str, shards: Sequence[str]) -> list[_Field]:
        """The fields, from the first sample that has one of the members."""
        first: tuple[str, str, dict[str, Member]] | None = None
        for shard in shards:
            with open_tar(shard) as tar:
                for key, members in samples_of(tar):
                    first = first or (shard, key, members)
                    if not all(member.missing for member in self._taken(members).values()):
                        return self._fields(tar, key, members)
        if first is None:
            raise InvalidArgumentError(
                f"indexing {path}: it holds no samples; name tars whose members are KEY.EXTENSION"
            )
        shard, key, members = first
        for member in self._taken(members).values():
            raise without_bytes(shard, key, member)
        raise InvalidArgumentError(
            f"indexing {shard}: the first sample, {key!r}, has members {', '.join(members)}, and "
            f"no sample of {path} has one of members={self.members!r}; give some of these"
        )

    def _check_names(self, path: str, fields: Sequence[_Field]) -> None:
        """Raises if two members of a sample would be one field."""
        known: dict[str, str] = {}
        for field in fields:
            other = known.setdefault(field.name, field.extension)
            if other == field.extension:
                continue
            renamed = other if field.name == field.extension else field.extension
            left = tuple(x.extension for x in fields if x is not field)
            fewer = open_call(path, replace(self, members=left))
            own = open_call(path, replace(self, raw=(*self.raw, renamed)))
            raise InvalidArgumentError(
                f"indexing {path}: members .{other} and .{field.extension} would both be the field "
                f"{field.name!r}; take one of them, {fewer}, or keep the bytes of one under its "
                f"own name, {own}"
            )

    def _taken(self, members: dict[str, Member]) -> dict[str, Member]:
        if self.members is None:
            return members
        return {name: member for name, member in members.items() if name in self.members}

    def _fields(self, tar: TarReader, key: str, members: dict[str, Member]) -> list[_Field]:
        """The fields, from the first sample."""
        taken = {
            extension: member
            for extension, member in self._taken(members).items()
            if not member.missing
        }
        wanted = tuple(self.members or taken)
        missing = [
            extension for extension in wanted if extension not in taken and extension not in IMAGES
        ]
        if missing:
            what = f"has members {', '.join(members)}, but members={self.members!r} was given"
            raise unlike(tar, key, members, what, self.members, self.raw)
        images = [
            extension for extension in taken if extension in IMAGES and extension not in self.raw
        ]
        fields = []
        for extension in taken:
            name = _name(extension, images, self.raw)
            kind = extension.removesuffix(_GZIP).rpartition(".")[2]
            coding: FieldCoding = "gzip" if extension.endswith(_GZIP) else "stored"
            if extension in self.raw:
                fields.append(_Field(extension, extension, "bytes"))
            elif extension == _LABEL:
                fields.append(_Field(name, extension, "label"))
            elif kind in IMAGES:
                fields.append(_Field(name, extension, "image", coding))
            elif kind == "npy":
                fields.append(
                    _Field(name, extension, "array", coding, _npy(tar, taken[extension], coding))
                )
            elif kind in _SOUNDS and coding == "stored":
                fields.append(_Field(name, extension, "sound"))
            else:
                fields.append(_Field(name, extension, "bytes", coding))
        return fields

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        # Writers sort members, or write them as they come.
        return data_first(fields)

    def _decoded(self, extension: str, data: bytes) -> Any:
        if extension in self.raw:
            return data
        if extension == _LABEL:
            return np.int64(data)
        if extension.endswith(_GZIP):
            data = gzip.decompress(data)
        if extension.removesuffix(_GZIP).rpartition(".")[2] == "npy":
            return np.load(io.BytesIO(data))
        return data


def _name(extension: str, images: list[str], raw: tuple[str, ...]) -> str:
    """The field of an extension: the only plain image and the label have the usual names."""
    if extension in raw:
        return extension
    if images == [extension]:
        return "image"
    name = re.sub(r"\W", "_", extension)
    return "label" if extension == _LABEL else name if name.isidentifier() else extension


@dataclass(frozen=True)
class _Field:
    """A field, the extension of its members, and what they are."""

    name: str
    extension: str
    kind: str
    coding: FieldCoding = "stored"
    npy: NpyHeader | None = None

    @property
    def has_decoded_sizes(self) -> bool:
        return self.kind == "sound" or (self.coding != "stored" and self.npy is None)

    def declare(self, builder: Builder) -> None:
        """Adds the field."""
        if self.kind == "label":
            builder.add_field(self.name, "array", "int64", inline=True)
        elif self.npy is not None:
            # Of compressed bytes the values cannot be named alone.
            front = 0 if self.coding == "stored" else self.npy.data_offset
            builder.add_field(
                self.name,
                "array",
                self.npy.dtype,
                self.npy.shape,
                coding=self.coding,
                header_bytes=front,
            )
        else:
            kind: Literal["image", "bytes"] = "image" if self.kind == "image" else "bytes"
            sized = self.kind == "sound"
            builder.add_field(self.name, kind, coding=self.coding, decoded_sizes=sized)


class _MemberColumns:
    """Adds the samples of a tar to the builder, many at a time."""

    def __init__(
        self, builder: Builder, number: int, fields: list[_Field], row: WebDataset
    ) -> None:
        """`number`: of the tar."""
        self._row = row
        self._builder = builder
        self._number = number
        self._fields = fields
        self._samples = 0  # passed on
        self._waiting = 0
        self._offsets: dict[str, list[int]] = {field.name: [] for field in fields}
        self._sizes: dict[str, list[int]] = {field.name: [] for field in fields}
        self._decoded: dict[str, list[int]] = {field.name: [] for field in fields}
        self._extensions = {field.extension for field in fields}
        self.findings = FindingCounts()  # Also of what has no bytes in the tar.

    def add(self, tar: TarReader, key: str, members: dict[str, Member]) -> None:
        taken = {extension: member for extension, member in members.items() if not member.missing}
        if len(taken) < len(members):
            for entry in members.values():
                if entry.missing:
                    self.findings.add(TAR_LINK if entry.is_link else TAR_SPECIAL, entry.name)
        if not taken:
            if not members:
                self.findings.add(TAR_OTHER, key)
            return
        unknown = taken.keys() - self._extensions
        for field in self._fields:
            member = taken.get(field.extension)
            if member is None and field.name == "image":  # A .png among .jpg, and the like.
                other = next((extension for extension in IMAGES if extension in unknown), None)
                if other is not None:
                    unknown.discard(other)
                    member = taken[other]
            if member is None and field.extension in members:
                raise without_bytes(tar.path, key, members[field.extension])
            if member is None:
                raise self._unlike(tar, key, taken, f"has no .{field.extension}")
            self._add_member(tar, field, member)
        if unknown:
            more = ", ".join(f".{extension}" for extension in sorted(unknown))
            raise self._unlike(tar, key, taken, f"has {more}, too")
        self._waiting += 1
        if self._waiting >= _SAMPLES_AT_ONCE:
            self.flush()

    def _unlike(
        self, tar: TarReader, key: str, taken: dict[str, Member], what: str
    ) -> InvalidArgumentError:
        named = ", ".join(f".{field.extension}" for field in self._fields)
        what = f"{what}; the first sample has {named}"
        return unlike(tar, key, taken, what, self._row.members, self._row.raw)

    def _add_member(self, tar: TarReader, field: _Field, member: Member) -> None:
        offset, size = member.offset, member.size
        if field.kind == "label":
            text = tar.bytes_at(offset, size).strip() if size <= _LABEL_BYTES_MAX else b""
            try:
                label = int(text)
            except ValueError:
                label = 2**63
            if not -(2**63) <= label < 2**63:
                raise DataLossError(
                    f"indexing {tar.path}: byte {offset}: {member.name!r} is no whole number of 64 "
                    f"bits; write digits, or keep its bytes with raw=({_LABEL!r},)"
                )
            self._offsets[field.name].append(label)
            return
        if field.npy is not None:
            header = _npy(tar, member, field.coding)
            if (header.dtype, header.shape) != (field.npy.dtype, field.npy.shape):
                raise InvalidArgumentError(
                    f"indexing {tar.path}: byte {offset}: {member.name!r} is {header.dtype} "
                    f"{list(header.shape)}, that of the first sample {field.npy.dtype} "
                    f"{list(field.npy.shape)}; keep the files as bytes with "
                    f"raw=({field.extension!r},)"
                )
            if field.coding == "stored":
                offset, size = offset + header.data_offset, size - header.data_offset
            elif header.data_offset != field.npy.data_offset:
                raise InvalidArgumentError(
                    f"indexing {tar.path}: byte {offset}: the header of {member.name!r} has "
                    f"{header.data_offset} bytes, that of the first sample "
                    f"{field.npy.data_offset}; write them with one version of NumPy, or keep the "
                    f"files as bytes with raw=({field.extension!r},)"
                )
        if field.kind == "sound":
            read, _, _ = _whole(tar, member)
            decoded = sound_bytes(read, size)
            if decoded is None:
                self.findings.add(f".{field.extension}", member.name)
            self._decoded[field.name].append(decoded or 0)
        elif field.has_decoded_sizes:
            self._decoded[field.name].append(decoded_size(*_whole(tar, member)))
        self._offsets[field.name].append(offset)
        self._sizes[field.name].append(size)

    def flush(self) -> None:
        """Passes on what was added."""
        if not self._waiting:
            return
        for field in self._fields:
            offsets, sizes = self._offsets[field.name], self._sizes[field.name]
            decoded = self._decoded[field.name]
            if field.kind == "label":
                self._builder.add_values(field.name, np.array(offsets, np.int64))
            else:
                self._builder.add_extents(
                    field.name,
                    self._number,
                    offsets,
                    sizes,
                    decoded=decoded if field.has_decoded_sizes else None,
                )
            for column in (offsets, sizes, decoded):
                column.clear()
        self._samples += self._waiting
        self._waiting = 0
        self._builder.tell(self._samples)


def _warn_of_missing(path: str, findings: FindingCounts) -> None:
    """Warns of members that have no bytes in their tar."""
    texts = [
        str(finding)
        for finding in findings.as_findings()
        if finding.kind in (TAR_LINK, TAR_SPECIAL)
    ]
    if texts:
        warnings.warn(
            f"headrace: indexing {path}: {'; '.join(texts)}; {DEREFERENCE}",
            RuntimeWarning,
            stacklevel=callers_level(),
        )


def _whole(tar: TarReader, member: Member) -> tuple[Read, int, str]:
    """A member as a file: how to read it, its size, its name in errors."""
    return (
        lambda at, count: tar.bytes_at(member.offset + at, min(count, member.size - at)),
        member.size,
        f"{tar.path} ({member.name} from byte {member.offset})",
    )


def _npy(tar: TarReader, member: Member, coding: FieldCoding) -> NpyHeader:
    read, size, what = _whole(tar, member)
    if coding != "stored":
        size, read = decoded_size(read, size, what), decoded_front(read, size, what)
    return read_npy_header(read, size, what)


def _are_tars(folder: str) -> bool:
    with _places.entries(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    return bool(names) and all(name.endswith(_SUFFIXES) for name in names)


def _shards(path: str) -> list[str]:
    return files_at(path, lambda name: not name.startswith("."))
