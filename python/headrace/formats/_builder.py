"""`headrace.formats.Builder`: describes a dataset, and writes its index."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import choice, given_path, integer, shown
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace.formats._field import Field

Progress = Callable[[int], object]
"""Called with the number of samples or files found."""

Numbers = int | Sequence[int] | npt.NDArray[np.integer[Any]]
"""One number for each entry, or one for all."""

Kind = Literal["bytes", "image", "array", "text"]

Coding = Literal["stored", "zstd", "gzip"]
"""How a file is compressed as a whole."""

FieldCoding = Literal["stored", "zstd", "zlib", "deflate", "snappy", "gzip"]
"""How each sample of a field is compressed by itself."""

Decodes = bool | Literal["groups"]
"""Whether files are compressed as a whole, or samples lie in parts that a format decodes."""

DECODED = "decoded://"
"""How the root of an index begins whose files may be compressed."""

ROW_GROUPS = "rowgroups://"
"""How the root of an index begins whose objects are row groups that a reader decodes."""

DEPENDS_ON = "depends_on"
"""The attribute of an index with the files it was made from: [path, size, mtime in ns]."""

_TELL_EVERY = 1000  # files added one by one


class Builder:
    """Describes the samples of a dataset: where their bytes lie. Writes that as an index.

    A sample has fields. The values of a field are ranges of bytes in files (`add_extents`), or
    small ones that the index itself holds (`add_values`, `add_ragged`). All take any number of
    samples at a time, and may be called field by field or sample by sample; in the end all fields
    must have equally many.

    Memory does not grow with the number of samples or files: columns go to an unnamed temporary
    file beside the index. The index appears when the `with` block ends, whole and synced, or not
    at all: an exception in the block, Ctrl-C and a killed process leave nothing.

    >>> with Builder("data.hri", root="/data") as builder:
    ...     file = builder.add_file("/data/a.bin")
    ...     builder.add_field("text", "bytes")
    ...     builder.add_extents("text", file, offsets=[0, 10], sizes=[10, 25])

    Thread safety: one thread at a time.

    Raises:
        InvalidArgumentError: an entry that cannot be, such as an extent outside its file.
        ResourceExhaustedError: the disk is full.
        UnavailableError: the disk cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        root: str | os.PathLike[str],
        *,
        decodes: Decodes = False,
        progress: Progress | None = None,
    ) -> None:
        """`path`: of the index. `root`: the folder that all files lie in, or "/".

        `decodes`: files may be compressed as a whole, see `add_file`; or, "groups", samples lie in
        parts of files that a format decodes, see `add_group`.
        """
        self._root = os.path.abspath(given_path("builder root", root))
        self._path = os.path.abspath(given_path("index file", path))
        if not isinstance(decodes, bool):
            choice("builder decodes", decodes, ("groups",))
        self._decodes = decodes is True
        self._row_groups = decodes == "groups"
        scheme = ROW_GROUPS if self._row_groups else DECODED if decodes else ""
        self._core = _core.IndexBuilder(self._path, scheme + self._root)
        self._fields: dict[str, Field] = {}
        self._progress = progress
        self._depends_on: list[tuple[str, int, int]] = []
        self._ended = False

    @property
    def root(self) -> str:
        """The folder that all files lie in."""
        return self._root

    @property
    def has_groups(self) -> bool:
        """Whether it takes row groups, by `add_group`, in place of files."""
        return self._row_groups

    def add_field(
        self,
        name: str,
        kind: Kind,
        dtype: npt.DTypeLike | None = None,
        shape: Sequence[int | None] = (),
        *,
        inline: bool = False,
        batch_dtype: npt.DTypeLike | None = None,
        coding: FieldCoding = "stored",
        shuffled: bool = False,
        header_bytes: int = 0,
        decoded_sizes: bool = False,
    ) -> None:
        """Adds a field.

        `kind`: "bytes" (any length), "image" (an encoded image), "text" (UTF-8) or "array"
        (`dtype` and `shape`, the same for all samples; little-endian, C order). The first
        dimension of an array may be None: then samples differ in it. `inline`: the index holds the
        values; not of images. `batch_dtype`: a wider type that batches hold, such as int64 for
        uint16 tokens; for arrays that are not inline.

        `coding`: each sample is compressed by itself, and `add_extents` names the compressed bytes;
        "zlib" is deflate with a header of zlib, "snappy" a block without a frame. `shuffled`: the
        bytes of an array's elements were put in order by HDF5's shuffle filter before.
        `header_bytes`: so many decoded bytes in front are not the value's. `decoded_sizes`: of a
        field that is not compressed, but whose decoder needs to know the bytes of each row.
        """
        choice("field kind", kind, ("bytes", "image", "array", "text"))
        if (kind == "array") != (dtype is not None):
            raise InvalidArgumentError(
                f"field {name!r}: got kind={kind!r} and dtype={shown(dtype)}; an array has a "
                "dtype, other fields have none"
            )
        if shape and kind != "array":
            raise InvalidArgumentError(
                f"field {name!r}: got kind={kind!r} and shape={list(shape)}; only an array has one"
            )
        element = "uint8" if dtype is None else _dtype_name(name, dtype)
        wide = None if batch_dtype is None else _dtype_name(name, batch_dtype)
        is_list = bool(shape) and shape[0] is None
        inner = _dimensions(name, shape[1:] if is_list else shape)
        core_type = ("list" if is_list else kind, element, inner)
        is_variable = is_list or kind != "array"
        choice("field coding", coding, ("stored", "zstd", "zlib", "deflate", "snappy", "gzip"))
        integer(f"field {name!r}: header_bytes", header_bytes, 0, 2**32 - 1)
        sized = decoded_sizes or (coding != "stored" and is_variable)
        position = self._core.add_field(
            name,
            core_type,
            is_inline=inline,
            batch_dtype=wide,
            decoding=(coding, shuffled, header_bytes, sized),
        )
        self._fields[name] = Field(
            name, position, kind, np.dtype(element), tuple(inner), inline, is_variable, sized
        )

    def add_file(
        self,
        path: str | os.PathLike[str],
        *,
        depends: bool = True,
        coding: Coding = "stored",
        decoded_bytes: int | None = None,
        part: tuple[int, int] | None = None,
    ) -> int:
        """Adds a file below the root, and returns its number for `add_extents`.

        `coding`: how it is compressed, if the builder was made with decodes=True; `decoded_bytes`:
        what it decodes to. Extents then are ranges of the decoded bytes. Such a file is read and
        decoded whole, so describe it as a block with `add_blocks`. `part`: only so many bytes of
        it, (offset, size), which are compressed by themselves; each part has its own number.

        `depends`: `headrace.open` builds the index again when the file's size or time differ.
        Otherwise only reading a sample of it finds out, which is an error that names the file:
        for datasets of very many files.
        """
        where = os.path.abspath(given_path("adding file", path))
        try:
            status = os.stat(where)
        except OSError as error:
            raise NotFoundError(f"adding file {where}: {error.strerror}") from error
        state = (where, status.st_size, status.st_mtime_ns)
        if depends and [state] != self._depends_on[-1:]:  # Once for all parts of a file.
            self._depends_on.append(state)
        if part is not None and coding == "stored":
            raise InvalidArgumentError(
                f"adding file {where}: part={part!r} needs a coding: of other files extents name "
                "the parts"
            )
        if coding == "stored":
            return self.add_files([where], [status.st_size], [status.st_mtime_ns])
        choice("file coding", coding, ("stored", "zstd", "gzip"))
        if not self._decodes or decoded_bytes is None:
            raise InvalidArgumentError(
                f"adding file {where}: coding={coding!r} needs decoded_bytes, and a builder that "
                "was made with decodes=True"
            )
        of = "" if part is None else f":{_part(where, part, status.st_size)}"
        name = f"{coding}:{status.st_size}{of}/{self._below_root(where)}"
        integer(f"adding file {where}: decoded_bytes", decoded_bytes, 0, 2**63 - 1)
        return self._add([name], [decoded_bytes], [status.st_mtime_ns])

    def add_group(
        self, path: str | os.PathLike[str], part: str, decoded_bytes: int, *, format: str
    ) -> int:
        """Adds a part of a file below the root, decoded, and returns its number for `add_extents`.

        The `GroupFormat` of that name decodes it, and gets this text as `part`; it has no "/".
        Describe each as a block with `add_blocks`, as it is decoded whole.
        """
        where = os.path.abspath(given_path("adding a row group of", path))
        if not self._row_groups or not part or "/" in part:
            raise InvalidArgumentError(
                f"adding row group {part!r} of {where}: the builder must be made with "
                "decodes='groups', and the part have no '/'"
            )
        _, size, mtime_ns = file_state(where)
        name = f"{format}:{size}:{part}/{self._below_root(where)}"
        return self._add([name], [decoded_bytes], [mtime_ns])

    def add_files(
        self, paths: Sequence[str], sizes: Sequence[int], mtimes_ns: Sequence[int]
    ) -> int:
        """Adds files whose sizes and times are known, and returns the number of the first.

        The others have the numbers behind it. A time of 0 is not checked.
        """
        names = [self._below_root(path) for path in paths]
        if self._row_groups:
            raise InvalidArgumentError(f"adding files of {self._root}: add_group() is needed")
        if self._decodes:
            names = [f"stored:{size}/{name}" for size, name in zip(sizes, names, strict=True)]
        return self._add(names, sizes, mtimes_ns)

    def _below_root(self, path: str) -> str:
        below = self._root.rstrip("/") + "/"
        if not path.startswith(below):
            raise InvalidArgumentError(
                f"adding file {path}: it does not lie in the root, {self._root}"
            )
        return path[len(below) :]

    def _add(self, names: list[str], sizes: Sequence[int], mtimes_ns: Sequence[int]) -> int:
        first = self.file_count
        self._core.add_objects(names, np.asarray(sizes, np.uint64), np.asarray(mtimes_ns, np.int64))
        if self.file_count // _TELL_EVERY != first // _TELL_EVERY:
            self.tell(self.file_count)
        return first

    def depends_on(self, path: str | os.PathLike[str]) -> None:
        """The index is built again when this file, or the list of this folder, changes."""
        where = os.path.abspath(given_path("depending on", path))
        self._depends_on.append(file_state(where))

    def add_extents(
        self,
        field: str,
        files: Numbers,
        offsets: Numbers,
        sizes: Numbers,
        *,
        decoded: Numbers | None = None,
    ) -> None:
        """Adds samples of a field that is not inline: bytes [offset, offset + size) of a file.

        `decoded`: the bytes of value that each decodes to, without a header; needed of compressed
        fields, unless all samples are arrays of one shape.
        """
        found = self._field(field)
        if found.has_decoded_sizes != (decoded is not None):
            raise InvalidArgumentError(
                f"field {field!r}: decoded= is needed: the bytes that each sample decodes to"
                if decoded is None
                else f"field {field!r}: decoded= was given, but its samples are not compressed, or "
                "arrays of one shape"
            )
        columns = [_unsigned(each) for each in (files, offsets, sizes)]
        if decoded is not None:
            columns.append(_unsigned(decoded))
        count = next((each.size for each in columns if each.ndim), 1)
        objects, starts, lengths, *more = (_stretched(each, count) for each in columns)
        self._core.add_extents(found.position, (objects, starts, lengths))
        for each in more:
            self._core.add_decoded_sizes(found.position, each)

    def add_blocks(
        self, sample_counts: Sequence[int], files: Numbers, offsets: Numbers, sizes: Numbers
    ) -> None:
        """Divides the samples into blocks: runs of samples that are read as one range of a file.

        A block has the bytes of all fields of its samples. All samples are in blocks, or none.
        """
        counts = _unsigned(np.asarray(sample_counts, np.int64))
        columns = [_unsigned(each) for each in (files, offsets, sizes)]
        objects, starts, lengths = (_stretched(each, counts.size) for each in columns)
        self._core.add_blocks(np.ascontiguousarray(counts), (objects, starts, lengths))

    def add_values(self, field: str, values: npt.ArrayLike) -> None:
        """Adds samples of an inline field: an array with one more dimension, the first.

        Of a field whose samples differ in length: a sequence of `str` or bytes, or of arrays.
        """
        found = self._inline(field)
        if found.is_variable:
            self.add_ragged(field, *found.each(values))
        else:
            self._core.add_inline_values(found.position, found.array(values, "samples"))

    def add_ragged(
        self,
        field: str,
        values: npt.ArrayLike | bytes,
        lengths: Sequence[int] | npt.NDArray[np.integer[Any]],
    ) -> None:
        """Adds samples of an inline field whose samples differ in length, many at once.

        `values`: all of them, end to end: bytes of text and bytes; of arrays an array of
        [sum of lengths, *shape]. `lengths`: of each, in bytes, or in entries of `values`.
        """
        found = self._inline(field)
        self._core.add_ragged(found.position, *found.ragged(values, lengths))

    def _inline(self, field: str) -> Field:
        found = self._field(field)
        found.check_inline()
        return found

    def set_classes(self, names: Iterable[str]) -> None:
        """Names the classes, by label."""
        self.set_attribute("classes", json.dumps(list(names)))

    def set_attribute(self, key: str, value: str) -> None:
        """Stores a text in the index, under a key that is free."""
        self._core.set_attribute(key, value)

    @property
    def file_count(self) -> int:
        """The number of files added."""
        return self._core.object_count

    def tell(self, found: int) -> None:
        """Reports progress: the number of samples or files found. May raise, to stop."""
        if self._progress is not None:
            self._progress(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.publish()
        else:
            self.discard()

    def publish(self) -> None:
        """Writes the index, which the end of a `with` block does. Once, last."""
        if self._ended:
            raise FailedPreconditionError(
                f"writing index {self._path}: the builder was published or discarded before"
            )
        self._ended = True
        if self._depends_on:
            self._core.set_attribute(DEPENDS_ON, json.dumps(self._depends_on))
        self._core.publish()

    def discard(self) -> None:
        """Drops everything; no file is left."""
        self._ended = True
        self._core.discard()

    def _field(self, field: str) -> Field:
        if field not in self._fields:
            known = ", ".join(self._fields) or "none"
            raise InvalidArgumentError(f"field {field!r}: add it first; there are: {known}")
        return self._fields[field]


def file_state(path: str) -> tuple[str, int, int]:
    """Path, size and time of a file. For a folder -1 and the time of its last addition."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise NotFoundError(f"reading the state of {path}: {error.strerror}") from error
    return path, -1 if os.path.isdir(path) else status.st_size, status.st_mtime_ns


def is_current(index: _core.Index) -> bool:
    """Whether the files that the index depends on are as they were."""
    try:
        return all(
            file_state(path) == (path, size, mtime_ns)
            for path, size, mtime_ns in json.loads(index.attributes.get(DEPENDS_ON, "[]"))
        )
    except (ValueError, TypeError, NotFoundError):
        return False


def _part(path: str, part: tuple[int, int], size: int) -> str:
    offset, count = part
    integer(f"adding file {path}: offset of part", offset, 0, size)
    integer(f"adding file {path}: size of part", count, 0, size - offset)
    return f"{offset}+{count}"


def _dimensions(field: str, shape: Sequence[int | None]) -> list[int]:
    inner = []
    for each in shape:
        if each is None:
            raise InvalidArgumentError(
                f"field {field!r}: got shape {list(shape)}: only the first dimension may be None"
            )
        inner.append(int(each))
    return inner


def _dtype_name(field: str, dtype: npt.DTypeLike) -> str:
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise InvalidArgumentError(f"field {field!r}: got dtype {shown(dtype)}") from None
    if not found.isnative:
        raise InvalidArgumentError(
            f"field {field!r}: got dtype {found.str}, must be little-endian: write the data in "
            "that order"
        )
    return found.name


def _unsigned(values: Numbers) -> npt.NDArray[np.uint64]:
    array = np.asarray(values)
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0):
        raise InvalidArgumentError(f"extents: got {shown(values)}, must be numbers of 0 and more")
    if array.ndim > 1:
        raise InvalidArgumentError(f"extents: got {array.ndim} dimensions, must be one number each")
    return array.astype(np.uint64, copy=False)


def _stretched(column: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.uint64]:
    if column.ndim and column.size != count:
        raise InvalidArgumentError(
            f"extents: files, offsets and sizes differ in number: {column.size}, {count}"
        )
    return np.ascontiguousarray(np.broadcast_to(column, (count,)))
