"""WebDataset: tar files in which members with one key are a sample."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from headrace import _core
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._builder import Builder, FieldCoding
from headrace.formats._fields.order import FieldType, data_first
from headrace.formats._files.gzipped import decoded_front, decoded_size
from headrace.formats._files.npy import NpyHeader, Read, read_npy_header
from headrace.formats._files.patterns import expand, files_at
from headrace.formats._files.sounds import Undecoded, sound_bytes
from headrace.formats._files.tar import Member, TarReader, open_tar
from headrace.formats._format import Format, Sample

_KEY = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)  # webdataset's own
_META = re.compile(r"__[^/]*__($|/)")
_IMAGES = ("jpg", "jpeg", "png", "webp")
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
        if os.path.isdir(path):
            return _are_tars(path)
        first = expand(path)[0]
        return first.endswith(_SUFFIXES) and os.path.isfile(first)

    def fill(self, path: str, builder: Builder) -> None:
        if os.path.isdir(path):
            builder.depends_on(path)
        shards = _shards(path)
        fields = self._first_fields(shards)
        if fields is None:
            raise InvalidArgumentError(f"indexing {path}: it holds no samples")
        for each in fields:
            each.declare(builder)

        def describe(shard: str, part: Builder) -> str | None:
            with open_tar(shard) as tar:
                columns = _Columns(part, part.add_file(shard), fields)
                for key, found in _samples(tar):
                    columns.add(tar, key, self._taken(found))
                columns.flush()
            return columns.no_sounds.json() if columns.no_sounds.found else None

        no_sounds = Undecoded()  # For `Dataset.report`: each is a sample that fails.
        builder.add_parts(shards, describe, no_sounds.add_json)
        no_sounds.report(builder)

    def _first_fields(self, shards: Sequence[str]) -> list[_Field] | None:
        """The fields, from the first sample; None: there is none."""
        for shard in shards:
            with open_tar(shard) as tar:
                for key, found in _samples(tar):
                    return self._fields(tar, key, found)
        return None

    def _taken(self, found: dict[str, Member]) -> dict[str, Member]:
        if self.members is None:
            return found
        return {name: member for name, member in found.items() if name in self.members}

    def _fields(self, tar: TarReader, key: str, found: dict[str, Member]) -> list[_Field]:
        """The fields, from the first sample."""
        taken = self._taken(found)
        wanted = tuple(self.members or taken)
        missing = [each for each in wanted if each not in taken and each not in _IMAGES]
        if missing or not taken:
            raise InvalidArgumentError(
                f"indexing {tar.path}: the first sample, {key!r}, has members "
                f"{', '.join(found)}, but members={self.members!r} was given"
            )
        images = [each for each in taken if each in _IMAGES and each not in self.raw]
        fields = []
        for each in taken:
            name = _name(each, images, self.raw)
            kind = each.removesuffix(_GZIP).rpartition(".")[2]
            coding: FieldCoding = "gzip" if each.endswith(_GZIP) else "stored"
            if each in self.raw:
                fields.append(_Field(each, each, "bytes"))
            elif each == _LABEL:
                fields.append(_Field(name, each, "label"))
            elif kind in _IMAGES:
                fields.append(_Field(name, each, "image", coding))
            elif kind == "npy":
                fields.append(_Field(name, each, "array", coding, _npy(tar, taken[each], coding)))
            elif kind in _SOUNDS and coding == "stored":
                fields.append(_Field(name, each, "sound"))
            else:
                fields.append(_Field(name, each, "bytes", coding))
        return fields

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        # Writers sort members, or write them as they come.
        return data_first(fields)

    def own_samples(self, path: str) -> Iterator[Sample]:
        """By Python's tarfile, as webdataset reads them; with the names that fields have here."""
        fields: dict[str, str] = {}
        for shard in _shards(path):
            with tarfile.open(shard) as tar:
                samples: dict[str, dict[str, bytes]] = {}
                for member in tar:
                    match = _KEY.fullmatch(member.name)
                    if match is None or not member.isreg() or _META.match(member.name):
                        continue
                    file = tar.extractfile(member)
                    assert file is not None
                    samples.setdefault(match[1], {})[match[2].lower()] = file.read()
            for found in samples.values():
                taken = {each: found[each] for each in self.members or found if each in found}
                images = [each for each in taken if each in _IMAGES and each not in self.raw]
                fields = fields or {each: _name(each, images, self.raw) for each in taken}
                yield {
                    fields.get(each, "image"): self._decoded(each, data)
                    for each, data in taken.items()
                }

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


class _Columns:
    """Adds the samples of a tar to the builder, many at a time."""

    def __init__(self, builder: Builder, number: int, fields: list[_Field]) -> None:
        """`number`: of the tar."""
        self._builder = builder
        self._number = number
        self._fields = fields
        self._samples = 0  # passed on
        self._waiting = 0
        self._offsets: dict[str, list[int]] = {each.name: [] for each in fields}
        self._sizes: dict[str, list[int]] = {each.name: [] for each in fields}
        self._decoded: dict[str, list[int]] = {each.name: [] for each in fields}
        self._extensions = {each.extension for each in fields}
        self.no_sounds = Undecoded()

    def add(self, tar: TarReader, key: str, taken: dict[str, Member]) -> None:
        unknown = taken.keys() - self._extensions
        for field in self._fields:
            member = taken.get(field.extension)
            if member is None and field.name == "image":  # A .png among .jpg, and the like.
                other = next((each for each in _IMAGES if each in unknown), None)
                if other is not None:
                    unknown.discard(other)
                    member = taken[other]
            if member is None:
                raise _unlike(tar, key, taken, f"has no .{field.extension}", self._fields)
            self._add_member(tar, field, member)
        if unknown:
            more = ", ".join(f".{each}" for each in sorted(unknown))
            raise _unlike(tar, key, taken, f"has {more}, too", self._fields)
        self._waiting += 1
        if self._waiting >= _SAMPLES_AT_ONCE:
            self.flush()

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
                self.no_sounds.add(f".{field.extension}", member.name)
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


def _unlike(
    tar: TarReader, key: str, taken: dict[str, Member], what: str, fields: list[_Field]
) -> InvalidArgumentError:
    at = next(iter(taken.values())).offset if taken else 0
    named = ", ".join(f".{each.extension}" for each in fields)
    return InvalidArgumentError(
        f"indexing {tar.path}: byte {at}: sample {key!r} {what}; the first sample has {named}. "
        "Name members that all samples have: hr.formats.WebDataset(members=(...))"
    )


def _samples(tar: TarReader) -> Iterator[tuple[str, dict[str, Member]]]:
    """Consecutive members with one key, by extension, as webdataset groups them."""
    current = ""
    found: dict[str, Member] = {}
    for member in tar:
        name = member.name
        begin = name.rfind("/") + 1
        dot = name.find(".", begin)
        if dot > begin:  # As in nearly all; what the pattern finds, sooner.
            key, extension = name[:dot], name[dot + 1 :].lower()
        else:
            match = _KEY.fullmatch(name)
            if match is None:
                continue
            key, extension = match[1], match[2].lower()
        if name.startswith("__") and _META.match(name):
            continue
        if key != current:
            if found:
                yield current, found
            current, found = key, {}
        if extension in found:
            raise DataLossError(
                f"indexing {tar.path}: byte {member.offset}: sample {key!r} has two members "
                f".{extension}; keys of neighbours must differ"
            )
        found[extension] = member
    if found:
        yield current, found


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
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if not each.name.startswith(".")]
    return bool(names) and all(each.endswith(_SUFFIXES) for each in names)


def _shards(path: str) -> list[str]:
    return files_at(path, lambda name: not name.startswith("."))
