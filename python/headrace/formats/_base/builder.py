"""`headrace.formats.Builder`: describes a dataset, and writes its index."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from headrace import _core, _places
from headrace._arguments import choice, given_path, integer, written_path
from headrace._text import unread_reason
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace.formats._base.field import (
    Column,
    Field,
    Inner,
    Kind,
    Numbers,
    lengths_of,
    nested_kind,
    new_field,
    part_name,
    stretched,
    unsigned,
)
from headrace.formats._files.paths import are_below
from headrace.formats._files.roots import DECODED, ROW_GROUPS
from headrace.formats._indexing.elsewhere import Elsewhere, PartsElsewhere, PartWork
from headrace.formats._indexing.in_order import JOBS, JOBS_MAX
from headrace.formats._indexing.parts_here import PartsHere, RecordingPart
from headrace.formats._indexing.recorded import (
    DEPENDS_ON,
    U64,
    Sink,
    State,
    Triple,
    file_state,
    replay,
)
from headrace.formats._indexing.unfinished import Unfinished

Progress = Callable[[int], object]
"""Called with the number of samples or files found."""

Coding = Literal["stored", "zstd", "gzip"]
"""How a file is compressed as a whole."""

FieldCoding = Literal["stored", "zstd", "zlib", "deflate", "snappy", "gzip"]
"""How each sample of a field is compressed by itself."""

Decodes = bool | Literal["groups"]
"""Whether files are compressed as a whole, or samples lie in parts that a format decodes."""

_TELL_EVERY = 1000  # files added one by one


class Builder:
    """Describes the samples of a dataset: where their bytes lie. Writes that as an index.

    A sample has fields. The values of a field are ranges of bytes in files (`add_extents`), or
    small ones that the index itself holds (`add_values`, `add_ragged`). All take any number of
    samples at a time, and may be called field by field or sample by sample; in the end all fields
    must have the same number. `add_parts` describes several files at a time.

    Memory does not grow with the number of samples or files: columns go to an unnamed temporary
    file beside the index. The index appears when the `with` block ends, whole and synced, or not
    at all: an exception in the block, Ctrl-C and a killed process leave nothing, unless
    `continues` was given.

    >>> with Builder("data.hri", root="/data") as builder:
    ...     file = builder.add_file("/data/a.bin")
    ...     builder.add_field("text", "bytes")
    ...     builder.add_extents("text", file, offsets=[0, 10], sizes=[10, 25])

    Thread safety: one thread at a time.

    Raises:
        InvalidArgumentError: an invalid entry, such as an extent outside its file.
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
        jobs: int | None = None,
        continues: str | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`path`: of the index. `root`: the folder that all files lie in, or "/".

        `decodes`: files may be compressed as a whole, see `add_file`; or, "groups", samples lie in
        parts of files that a format decodes, see `add_group`.

        `jobs`: the number of files that `add_parts` reads at a time; default: 8. `continues`: a
        text that identifies what is indexed and the version of the code. With it, a run that is
        stopped leaves the parts it has read in PATH.unfinished, and a run with the same text
        continues from them. `elsewhere`: describes the files of `add_parts` in other processes;
        private to headrace.
        """
        self._root = _places.absolute(given_path("builder root", root))
        self._path = _places.absolute(written_path("index file", path))
        if not isinstance(decodes, bool):
            choice("builder decodes", decodes, ("groups",))
        self._decodes = decodes is True
        self._row_groups = decodes == "groups"
        scheme = ROW_GROUPS if self._row_groups else DECODED if decodes else ""
        self._jobs = JOBS if jobs is None else integer("builder jobs", jobs, 1, JOBS_MAX)
        self._continues = continues
        self._elsewhere = elsewhere
        self._unfinished: Unfinished | None = None
        self._core = _core.IndexBuilder(self._path, scheme + self._root)
        self._sink: Sink = self._core
        self._fields: dict[str, Field] = {}
        self._progress = progress
        self._samples = 0
        self._depends_on: list[State] = []
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
        dimension of an array may be None: then samples differ in it. If the first two are None,
        or of text and bytes the only one, a sample is a list of such values: see `inner` of
        `add_extents`. `inline`: the index holds the values; not of images. `batch_dtype`: a wider
        type that batches hold, such as int64 for uint16 tokens; for arrays that are not inline.

        `coding`: each sample is compressed by itself, and `add_extents` names the compressed bytes;
        "zlib" is deflate with a header of zlib, "snappy" a block without a frame. `shuffled`: the
        bytes of an array's elements were put in order by HDF5's shuffle filter before.
        `header_bytes`: number of decoded bytes before the value. `decoded_sizes`: of a
        field that is not compressed, but whose decoder needs to know the bytes of each row.
        """
        is_nested = nested_kind(name, kind, dtype, shape)
        if is_nested and (coding != "stored" or batch_dtype is not None or decoded_sizes):
            raise InvalidArgumentError(
                f"field {name!r}: a list of lists can be neither compressed nor widened"
            )
        made = new_field(name, kind, dtype, shape, (coding, shuffled, header_bytes))
        sized = decoded_sizes or made.has_decoded_sizes
        made = replace(made, is_inline=inline, has_decoded_sizes=sized)
        if is_nested:
            self._fields[made.lengths_field] = lengths_of(made).added(self._core)
        self._fields[name] = made.added(self._core, batch_dtype)

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
        decoded whole, so describe it as a block with `add_blocks`. `part`: only these bytes of
        it, (offset, size), which are compressed by themselves; each part has its own number.

        `depends`: `headrace.open` builds the index again when the file's size or time differ.
        Otherwise the change is found when a sample is read, as an error that names the file: for
        datasets of very many files.
        """
        where = _places.absolute(given_path("adding file", path))
        try:
            status = _places.stat(where)
        except OSError as error:
            raise NotFoundError(f"adding file {where}: {unread_reason(error)}") from error
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
        of = "" if part is None else f":{part_name(where, part, status.st_size)}"
        name = f"{coding}:{status.st_size}{of}/{self._below_root(where)}"
        integer(f"adding file {where}: decoded_bytes", decoded_bytes, 0, 2**63 - 1)
        return self._add([name], [decoded_bytes], [status.st_mtime_ns])

    def add_group(
        self, path: str | os.PathLike[str], part: str, decoded_bytes: int, *, format: str
    ) -> int:
        """Adds a part of a file below the root, decoded, and returns its number for `add_extents`.

        The `GroupFormat` of that name decodes it, and gets this text as `part`; "/" is not allowed
        in it. Describe each as a block with `add_blocks`, as it is decoded whole.
        """
        where = _places.absolute(given_path("adding a row group of", path))
        if not self._row_groups or not part or "/" in part:
            raise InvalidArgumentError(
                f"adding row group {part!r} of {where}: the builder must be made with "
                "decodes='groups', and the part have no '/'"
            )
        _, size, mtime_ns = file_state(where)
        name = f"{format}:{size}:{part}/{self._below_root(where)}"
        return self._add([name], [decoded_bytes], [mtime_ns])

    def add_files(self, paths: Sequence[str], sizes: Column, mtimes_ns: Column) -> int:
        """Adds files whose sizes and times are known, and returns the number of the first: the
        others follow it. A time of 0 is not checked."""
        below = self._root.rstrip("/") + "/"
        if are_below(below, paths):
            names = ("\0" + "\0".join(paths)).replace("\0" + below, "\0")[1:].split("\0")
        else:
            names = [self._below_root(path) for path in paths]  # Says which one does not.
        if self._row_groups:
            raise InvalidArgumentError(f"adding files of {self._root}: got files; call add_group()")
        if self._decodes:
            names = [f"stored:{size}/{name}" for size, name in zip(sizes, names, strict=True)]
        return self._add(names, sizes, mtimes_ns)

    def _below_root(self, path: str) -> str:
        below = self._root.rstrip("/") + "/"
        if not path.startswith(below):
            raise InvalidArgumentError(
                f"adding file {path}: it does not lie in the root, {self._root}; move it there"
            )
        return path[len(below) :]

    def _add(self, names: list[str], sizes: Column, mtimes_ns: Column) -> int:
        first = self.file_count
        self._sink.add_objects(names, np.asarray(sizes, np.uint64), np.asarray(mtimes_ns, np.int64))
        if self.file_count // _TELL_EVERY != first // _TELL_EVERY:
            self.tell(self.file_count)
        return first

    def depends_on(self, path: str | os.PathLike[str]) -> None:
        """The index is built again when this file, or the list of this folder, changes."""
        where = _places.absolute(given_path("depending on", path))
        self._depends_on.append(file_state(where))

    def add_extents(
        self,
        field: str,
        files: Numbers,
        offsets: Numbers,
        sizes: Numbers,
        *,
        decoded: Numbers | None = None,
        inner: Inner | None = None,
    ) -> None:
        """Adds samples of a field that is not inline: bytes [offset, offset + size) of a file.

        `decoded`: the bytes of value that each decodes to, without a header; needed of compressed
        fields, unless all samples are arrays of one shape. `inner`: of lists of lists, the length
        of each inner list, in entries (of texts and bytes, in bytes), and how many each sample has.
        """
        target = self._field(field)
        target.check_decoded(decoded is not None)
        self._add_inner(target, inner)
        columns = [unsigned(numbers) for numbers in (files, offsets, sizes)]
        if decoded is not None:
            columns.append(unsigned(decoded))
        count = next((column.size for column in columns if column.ndim), 1)
        objects, starts, lengths, *more = (stretched(column, count) for column in columns)
        self._sink.add_extents(target.position, (objects, starts, lengths))
        for decoded_bytes in more:
            self._sink.add_decoded_sizes(target.position, decoded_bytes)

    def add_blocks(
        self, sample_counts: Sequence[int], files: Numbers, offsets: Numbers, sizes: Numbers
    ) -> None:
        """Divides the samples into blocks: runs of samples that are read as one range of a file.

        A block has the bytes of all fields of its samples. All samples are in blocks, or none.
        """
        counts = unsigned(np.asarray(sample_counts, np.int64))
        columns = [unsigned(numbers) for numbers in (files, offsets, sizes)]
        objects, starts, lengths = (stretched(column, counts.size) for column in columns)
        self._sink.add_blocks(np.ascontiguousarray(counts), (objects, starts, lengths))

    def add_values(self, field: str, values: npt.ArrayLike) -> None:
        """Adds samples of an inline field: an array with one more dimension, the first.

        If samples differ in length: a sequence of `str`, bytes or arrays; or, if samples are
        lists, of lists of these.
        """
        target = self._inline(field)
        if target.nested:
            data, lengths, inner = target.flat(values)
            self.add_ragged(field, data, lengths, inner=inner)
        elif target.is_variable:
            self.add_ragged(field, *target.joined(values))
        else:
            self._sink.add_inline_values(target.position, target.array(values, "samples"))

    def add_ragged(
        self,
        field: str,
        values: npt.ArrayLike | bytes,
        lengths: Column,
        *,
        inner: Inner | None = None,
    ) -> None:
        """Adds samples of an inline field whose samples differ in length, many at once.

        `values`: all of them, end to end: bytes of text and bytes; of arrays an array of
        [sum of lengths, *shape]. `lengths`: of each, in bytes, or in entries of `values`. `inner`:
        as of `add_extents`.
        """
        target = self._inline(field)
        self._add_inner(target, inner)
        self._sink.add_ragged(target.position, *target.ragged(values, lengths))

    def _add_inner(self, field: Field, inner: Inner | None) -> None:
        if (inner is None) == bool(field.nested):
            field.refuse_inner(inner)
        if inner is not None:
            values, sizes = field.inner_lengths(*inner)
            self._sink.add_ragged(self._fields[field.lengths_field].position, values, sizes)

    def _inline(self, field: str) -> Field:
        target = self._field(field)
        target.check_inline()
        return target

    def add_parts(
        self,
        paths: Sequence[str],
        describe: Callable[[str, Builder], object],
        noted: Callable[[str], object] = lambda note: None,
    ) -> int:
        """Describes files one by one: `describe(path, part)` for each, for several at a time.

        `part` is a builder for the files and the samples of this path alone; it takes no fields
        and no attributes, so add these before. It is called on threads, and must not depend on
        other paths. The index has the parts in the order of `paths`, whatever `jobs` is; an
        exception is that of the first path in this order. Blocks are used if all samples of all
        parts are in blocks. A part whose file did not change since a run was stopped is not
        described again: see `continues`. `noted` gets the texts that `describe` returned, in this
        order.

        Returns the sum of the numbers that the parts last passed to `tell`.
        """
        _places.look_ahead(paths)
        if len(paths) == 1:
            self._samples = 0
            if isinstance(note := describe(paths[0], self), str):
                noted(note)
            return self._samples
        folder, blocks = os.path.dirname(self._path), list[tuple[U64, Triple]]()
        # Where blocks are decoded all samples are in one, so that the index can take each at once.
        at_once = self._decodes or self._row_groups
        add_blocks: Callable[[U64, Triple], None] = (
            self._core.add_blocks if at_once else lambda counts, at: blocks.append((counts, at))
        )
        work = PartWork(_Part, self._root, self._decodes, self._row_groups, self._fields, describe)
        kept = self._begin_keeping()
        parts: PartsHere[_Part] | PartsElsewhere
        if self._elsewhere is None:
            begin = partial(_Part, work, folder)
            parts = PartsHere(begin, describe, kept, self._jobs, self.tell)
        else:
            parts = PartsElsewhere(self._elsewhere, work, folder, kept, self.tell)
        with closing(parts.read(paths)) as recordings:
            for part in recordings:
                replay(part.calls, self._core, add_blocks, noted)
                self._depends_on += part.depends_on
        samples = max(map(self._core.sample_count, range(len(self._fields))), default=0)
        in_blocks = sum(int(counts.sum()) for counts, _ in blocks)
        if in_blocks == samples:
            for counts, extents in blocks:
                self._core.add_blocks(counts, extents)
        return parts.progress

    def set_classes(self, names: Iterable[str]) -> None:
        """Names the classes, by label."""
        self.set_attribute("classes", json.dumps(list(names)))

    def set_attribute(self, key: str, value: str) -> None:
        """Stores a text in the index, under an unused key."""
        self._core.set_attribute(key, value)

    @property
    def file_count(self) -> int:
        """The number of files added."""
        return self._sink.object_count

    def tell(self, samples: int) -> None:
        """Reports progress: the number of samples or files found. May raise, to stop."""
        self._samples = samples
        if self._progress is not None:
            self._progress(samples)

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
        """Writes the index; the end of a `with` block does, too. Call it once, last."""
        if self._ended:
            raise FailedPreconditionError(
                f"writing index {self._path}: it was published or discarded; make another builder"
            )
        self._ended = True
        if self._depends_on:
            self._core.set_attribute(DEPENDS_ON, json.dumps(self._depends_on))
        try:
            self._core.publish()
        except BaseException:
            self._end_keeping()
            raise
        if self._unfinished is not None:
            self._unfinished.remove()

    def discard(self) -> None:
        """Drops everything and leaves no file, except parts that `continues` keeps."""
        self._ended = True
        self._end_keeping()
        self._core.discard()

    def _begin_keeping(self) -> Unfinished | None:
        """Where parts are kept for the next run, if this one is stopped: those of one call."""
        if self._continues is None or self._unfinished is not None:
            return None
        fields = [repr(field) for field in self._fields.values()]
        beside = [state for state in self._depends_on if state[1] >= 0]  # files, no folders
        about = {"what": self._continues, "root": self._root, "fields": fields}
        self._unfinished = Unfinished(self._path, about | {"beside": beside})
        return self._unfinished

    def _end_keeping(self) -> None:
        if self._unfinished is not None:
            self._unfinished.close()

    def _field(self, field: str) -> Field:
        if field not in self._fields:
            known = ", ".join(self._fields) or "none"
            raise InvalidArgumentError(f"field {field!r}: add it first; there are: {known}")
        return self._fields[field]


class _Part(RecordingPart, Builder):
    """Takes the files and the samples of one path of `Builder.add_parts`."""

    def __init__(self, work: PartWork, folder: str, stopped: threading.Event) -> None:
        RecordingPart.__init__(self, folder, stopped)
        self._root, self._decodes, self._row_groups = work.root, work.decodes, work.row_groups
        self._fields = dict(work.fields)
        self._sink = self._recorder
