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
from headrace._arguments import choice, given_path, shown
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

Progress = Callable[[int], object]
"""Called with the number of samples or files found."""

Numbers = int | Sequence[int] | npt.NDArray[np.integer[Any]]
"""One number for each entry, or one for all."""

Kind = Literal["bytes", "image", "array"]

DEPENDS_ON = "depends_on"
"""The attribute of an index with the files it was made from: [path, size, mtime in ns]."""

_TELL_EVERY = 1000  # files added one by one


class Builder:
    """Describes the samples of a dataset: where their bytes lie. Writes that as an index.

    A sample has fields. The values of a field are ranges of bytes in files (`add_extents`), or
    small arrays that the index itself holds (`add_values`). Both take any number of samples at a
    time, and may be called field by field or sample by sample; in the end all fields must have
    equally many.

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
        progress: Progress | None = None,
    ) -> None:
        """`path`: of the index. `root`: the folder that all files lie in, or "/"."""
        self._root = os.path.abspath(given_path("builder root", root))
        self._path = os.path.abspath(given_path("index file", path))
        self._core = _core.IndexBuilder(self._path, self._root)
        self._fields: dict[str, int] = {}
        self._inline: set[str] = set()
        self._types: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self._progress = progress
        self._depends_on: list[tuple[str, int, int]] = []
        self._ended = False

    @property
    def root(self) -> str:
        """The folder that all files lie in."""
        return self._root

    def add_field(
        self,
        name: str,
        kind: Kind,
        dtype: npt.DTypeLike | None = None,
        shape: Sequence[int] = (),
        *,
        inline: bool = False,
        batch_dtype: npt.DTypeLike | None = None,
    ) -> None:
        """Adds a field.

        `kind`: "bytes" (any length), "image" (an encoded JPEG or PNG) or "array" (`dtype` and
        `shape`, the same for all samples; little-endian, C order). `inline`: the index holds the
        values, of arrays only. `batch_dtype`: a wider type that batches hold, such as int64 for
        uint16 tokens.
        """
        choice("field kind", kind, ("bytes", "image", "array"))
        if (kind == "array") != (dtype is not None):
            raise InvalidArgumentError(
                f"field {name!r}: got kind={kind!r} and dtype={shown(dtype)}; an array has a "
                "dtype, other fields have none"
            )
        element = "uint8" if dtype is None else _dtype_name(name, dtype)
        wide = None if batch_dtype is None else _dtype_name(name, batch_dtype)
        core_type = (kind, element, [int(each) for each in shape])
        self._fields[name] = self._core.add_field(
            name, core_type, is_inline=inline, batch_dtype=wide
        )
        if inline:
            self._inline.add(name)
        self._types[name] = (np.dtype(element), tuple(int(each) for each in shape))

    def add_file(self, path: str | os.PathLike[str], *, depends: bool = True) -> int:
        """Adds a file below the root, and returns its number for `add_extents`.

        `depends`: `headrace.open` builds the index again when the file's size or time differ.
        Otherwise only reading a sample of it finds out, which is an error that names the file:
        for datasets of very many files.
        """
        where = os.path.abspath(given_path("adding file", path))
        try:
            status = os.stat(where)
        except OSError as error:
            raise NotFoundError(f"adding file {where}: {error.strerror}") from error
        if depends:
            self._depends_on.append((where, status.st_size, status.st_mtime_ns))
        return self.add_files([where], [status.st_size], [status.st_mtime_ns])

    def add_files(
        self, paths: Sequence[str], sizes: Sequence[int], mtimes_ns: Sequence[int]
    ) -> int:
        """Adds files whose sizes and times are known, and returns the number of the first.

        The others have the numbers behind it. A time of 0 is not checked.
        """
        below = self._root.rstrip("/") + "/"
        names = []
        for path in paths:
            if not path.startswith(below):
                raise InvalidArgumentError(
                    f"adding file {path}: it does not lie in the root, {self._root}"
                )
            names.append(path[len(below) :])
        first = self.file_count
        self._core.add_objects(names, np.asarray(sizes, np.uint64), np.asarray(mtimes_ns, np.int64))
        if self.file_count // _TELL_EVERY != first // _TELL_EVERY:
            self.tell(self.file_count)
        return first

    def depends_on(self, path: str | os.PathLike[str]) -> None:
        """The index is built again when this file, or the list of this folder, changes."""
        where = os.path.abspath(given_path("depending on", path))
        self._depends_on.append(file_state(where))

    def add_extents(self, field: str, files: Numbers, offsets: Numbers, sizes: Numbers) -> None:
        """Adds samples of a field that is not inline: bytes [offset, offset + size) of a file."""
        columns = [_unsigned(each) for each in (files, offsets, sizes)]
        count = next((each.size for each in columns if each.ndim), 1)
        objects, starts, lengths = (_stretched(each, count) for each in columns)
        self._core.add_extents(self._position(field), (objects, starts, lengths))

    def add_values(self, field: str, values: npt.ArrayLike) -> None:
        """Adds samples of an inline field: an array with one more dimension, the first."""
        position = self._position(field)
        dtype, shape = self._types[field]
        if field not in self._inline:
            raise InvalidArgumentError(f"field {field!r}: it is not inline: extents are needed")
        array = np.asarray(values)
        if array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise InvalidArgumentError(
                f"field {field!r}: got values of {array.dtype}, it holds {dtype}"
            )
        if array.shape[1:] != shape or array.ndim != len(shape) + 1:
            raise InvalidArgumentError(
                f"field {field!r}: got values of shape {list(array.shape)}, must be "
                f"{['samples', *shape]}"
            )
        self._core.add_inline_values(
            position, np.ascontiguousarray(array.astype(dtype, copy=False))
        )

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

    def _position(self, field: str) -> int:
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
