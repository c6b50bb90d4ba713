"""`headrace.open`: what a path holds, and its index."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import json
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

from headrace import _core
from headrace._arguments import given_path, shown, whole
from headrace._signature import named_arguments
from headrace._source import SampleReader, remedy
from headrace._units import counted, format_bytes
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from headrace.formats._findings import (
    Finding,
    findings_of,
    skip_of,
    skip_patterns,
    warn_of,
    warn_of_skip,
)
from headrace.formats._outside import check_outside

PACK_INDEX_NAME = "pack.hri"
INDEX_SUFFIX = ".hri"
_RECOGNISED = (
    "headrace opens: a folder with one folder of images for each class (as torchvision's "
    f"ImageFolder), a pack written by `headrace pack` (it holds {PACK_INDEX_NAME}), "
    f"an index file ({INDEX_SUFFIX})"
)

_log = logging.getLogger("headrace.dataset")

Progress = Callable[[int], object]


class Dataset:
    """Samples on storage, as an index describes them: fields, sizes, places. Nothing is loaded.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, index: _core.Index, path: str, named_index: str | None = None) -> None:
        """`named_index`: the index file, if the user named it."""
        self._index = index
        self._named_index = named_index
        self._path = path
        self._fields = index.fields
        try:
            classes = json.loads(index.attributes.get("classes", "[]"))
        except ValueError as error:
            raise DataLossError(
                f"opening {path}: its list of classes is damaged: {error}"
            ) from error
        self._classes: tuple[str, ...] = tuple(classes)
        self._report = findings_of(index, path)

    @property
    def path(self) -> str:
        """What was opened."""
        return self._path

    @property
    def index(self) -> _core.Index:
        """Where every sample lies; private to headrace."""
        return self._index

    @property
    def format(self) -> str:
        """How the data lies on storage: "folder", "pack", ..."""
        return self._index.attributes.get("format", "unknown")

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of a sample's parts: ("image", "label")."""
        return tuple(field.name for field in self._fields)

    def kind(self, field: str) -> str:
        """What a field holds: "image", "bytes", "array"."""
        for each in self._fields:
            if each.name == field:
                return each.kind
        raise InvalidArgumentError(
            f"field {field!r}: the dataset has no such field; it has {', '.join(self.fields)}"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each class, by label; empty if the dataset names none."""
        return self._classes

    @property
    def report(self) -> tuple[Finding, ...]:
        """What indexing came upon: files that cannot be decoded, hidden ones, those left out."""
        return self._report

    @property
    def skip(self) -> tuple[str, ...]:
        """What was left out when the folder was indexed; see `headrace.open`."""
        return skip_of(self._index)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: equal for equal files, and then samples have equal numbers."""
        return self._index.fingerprint

    def __len__(self) -> int:
        return self._index.sample_count

    def read(self, sample: SupportsIndex) -> dict[str, Any]:
        """One sample as it is stored: bytes for images, NumPy values for the rest.

        Reads the file here and now and checks it: for a look, not for training.
        """
        number = whole(sample)
        if number is None:
            raise InvalidArgumentError(f"sample: got {sample!r}, must be an integer")
        if not 0 <= number < len(self):
            raise OutOfRangeError(
                f"reading sample {number} of {self._path}: it has samples 0 to {len(self) - 1}"
            )
        with SampleReader(self._index) as reader:
            return {
                field.name: self._read_field(reader, position, field, number)
                for position, field in enumerate(self._fields)
            }

    def __getitem__(self, sample: SupportsIndex) -> dict[str, Any]:
        """``dataset[i]`` is `read(i)`; ``dataset[-1]`` is the last sample.

        Raises OutOfRangeError, an IndexError, past the end.
        """
        number = whole(sample)
        if number is None or number >= 0:
            return self.read(sample)
        if number < -len(self):
            raise OutOfRangeError(
                f"reading sample {number} of {self._path}: the first of {len(self):,} samples is "
                f"{-len(self)}"
            )
        return self.read(number + len(self))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(len(self)):
            yield self.read(number)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as its path, which is opened again; the samples must be the same there."""
        is_folder = os.path.isdir(self._path) and self.format == "folder"
        skip = self.skip if is_folder else ()  # An index file, or a pack, has it inside.
        return _reopen, (self._path, self._named_index, skip, self.fingerprint)

    def _read_field(
        self, reader: SampleReader, position: int, field: _core.Field, sample: int
    ) -> Any:
        if field.is_inline:
            return self._index.inline_values(position, sample, 1)[0]
        objects, offsets, sizes = self._index.extents(position, sample, 1)
        object_id, offset, size = int(objects[0]), int(offsets[0]), int(sizes[0])
        data = reader.read(object_id, offset, size)
        checksums = self._index.checksums(position, sample, 1)
        if checksums is not None and _core.hash64(data) != int(checksums[0]):
            raise DataLossError(
                f"reading sample {sample} ({field.name}) from {reader.path(object_id)} bytes "
                f"[{offset}, {offset + size}): its bytes are not those that were indexed; "
                f"{remedy(self._index)}"
            )
        if field.kind == "array":
            import numpy as np

            return np.frombuffer(data, dtype=field.dtype).reshape(field.shape)
        return bytes(data)

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}: {describe_field(field)}" for field in self._fields)
        classes = f", {counted(len(self._classes), 'class', 'classes')}" if self._classes else ""
        blocks = self._index.block_count
        has_blocks = f", {counted(blocks, 'block')}" if blocks else ""
        return (
            f"<headrace.Dataset {self._path!r} ({self.format}): {counted(len(self), 'sample')}"
            f"{classes}{has_blocks}; {fields}; look at one with .read(i)>"
        )


def describe_field(field: _core.Field) -> str:
    """ "image", "int64", "float32[3, 224, 224]"."""
    if field.kind != "array":
        return field.kind
    shape = f"[{', '.join(map(str, field.shape))}]" if field.shape else ""
    return f"{field.dtype}{shape}"


Skip = str | Iterable[str] | None
"""What `skip=` may be. None: nothing is left out, but with `index=` a file that is there keeps the
`skip` that it was made with."""


@named_arguments
def open_dataset(
    path: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str] | None = None,
    skip: Skip = None,
    progress: Progress | None = None,
) -> Dataset:
    """Opens a dataset as it lies on storage.

    `path` is a folder with one folder of images for each class, a pack, or an index file. A folder
    is indexed the first time, which lists its files once; the index is kept in the user's cache
    folder and used again as long as no folder of the dataset has changed. `index` names an index
    file to use instead: it is made if it is not there. `progress` is called with the number of
    files found while a folder is listed.

    `skip` leaves files and folders of a folder out, as if they were not there: "*.webp", "src" (a
    name, wherever it is), "/src" or "ant/broken.jpg" (a path below the folder), or a kind of file:
    ":undecodable", ":empty", ":broken_link", ":special", ":unreadable", ":hidden". One or a list of
    them. Sample numbers and labels count what is left, so they change with it. Without `skip`, a
    file that cannot be decoded is a sample that fails; a warning says so when the folder is
    indexed, and `Dataset.report` later.

    Raises:
        NotFoundError: there is nothing at `path`.
        InvalidArgumentError: what is there is no dataset; an argument that cannot be.
        FailedPreconditionError: a folder that cannot be read.
        DataLossError: an index file that is damaged.
    """
    if progress is not None and not callable(progress):
        raise InvalidArgumentError(
            f"progress: got {shown(progress)}, must be a function of the number of files found"
        )
    dataset, is_new = _find(path, index, skip, progress)
    if is_new:
        failing = [finding for finding in dataset.report if not finding.can_be_decoded]
        warn_of(failing, dataset.index, dataset.path, "indexing")
    if skip is not None:
        warn_of_skip(dataset.index)
    return dataset


inspect.unwrap(open_dataset).__qualname__ = "open"  # As a TypeError of a missing path names it.


def find_dataset(
    path: str | os.PathLike[str], *, skip: Skip = None, progress: Progress | None = None
) -> Dataset:
    """As `open_dataset`, for commands: these tell in their own way what was found."""
    return _find(path, None, skip, progress)[0]


def _reopen(path: str, index: str | None, skip: tuple[str, ...], fingerprint: str) -> Dataset:
    """A dataset that was pickled."""
    dataset = _find(path, index, skip if index is not None else skip or None, None)[0]
    if dataset.fingerprint != fingerprint:
        raise FailedPreconditionError(
            f"unpickling the dataset {path}: its files are not those of when it was pickled "
            f"(fingerprint {dataset.fingerprint}, was {fingerprint}); open it anew"
        )
    return dataset


def _find(
    path: str | os.PathLike[str],
    index: str | os.PathLike[str] | None,
    skip: Skip,
    progress: Progress | None,
) -> tuple[Dataset, bool]:
    """The dataset, and whether its index was made now."""
    where = os.path.abspath(given_path("opening dataset", path))
    patterns = None if skip is None else skip_patterns(skip)
    if not os.path.exists(where):
        raise NotFoundError(f"opening dataset {where}: {_absent(where, 'file or folder')}")
    if os.path.isfile(where):
        if not where.endswith(INDEX_SUFFIX):
            raise InvalidArgumentError(
                f"opening dataset {where}: this is a file of {format_bytes(os.path.getsize(where))}"
                f", no dataset; {_RECOGNISED}"
            )
        _refuse_skip(f"opening index {where}", patterns)
        return Dataset(_core.Index.open(where), where), False
    pack_index = os.path.join(where, PACK_INDEX_NAME)
    if os.path.exists(pack_index):
        _refuse_skip(f"opening pack {where}", patterns)
        if index is not None:
            raise InvalidArgumentError(
                f"opening pack {where}: index={os.fspath(index)!r} was given, but a pack has its "
                f"own ({PACK_INDEX_NAME}); leave index out"
            )
        return Dataset(_core.Index.open(pack_index), where), False
    _check_is_folder_dataset(where)
    if index is not None:
        return _open_named(where, _index_target(index, where), patterns, progress)
    return _open_cached(where, patterns or (), progress)


def _refuse_skip(doing: str, patterns: tuple[str, ...] | None) -> None:
    if patterns:
        raise InvalidArgumentError(
            f"{doing}: skip={list(patterns)!r} was given, but its samples are fixed; leave skip "
            "out, or open the folder of images with it"
        )


def index_folder(
    root: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    skip: str | Iterable[str] = (),
) -> tuple[Dataset, str]:
    """Indexes a folder anew, whatever is cached: the dataset and where its index was written."""
    where = os.path.abspath(given_path("indexing", root))
    if not os.path.isdir(where):
        raise NotFoundError(f"indexing {where}: {_absent(where, 'folder')}")
    if os.path.exists(os.path.join(where, PACK_INDEX_NAME)):
        raise InvalidArgumentError(f"indexing {where}: this is a pack, which has its index already")
    _check_is_folder_dataset(where)
    patterns = skip_patterns(skip)
    target = _index_target(output, where) if output is not None else cache_path(where, patterns)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    _core.build_folder_index(where, target, progress, list(patterns))
    return Dataset(_core.Index.open(target), where), target


def cache_path(root: str, skip: tuple[str, ...] = ()) -> str:
    """Where the index of the folder `root` (absolute), without what `skip` says, is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    key = _core.hash64(b"\0".join(map(os.fsencode, (root, *skip))))
    name = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(root))[:64]
    return os.path.join(cache, "headrace", f"{name}-{key:016x}{INDEX_SUFFIX}")


def image_folder(dataset: Dataset) -> str | None:
    """The folder whose folders are the classes; None if the dataset is of another format."""
    return dataset.index.root if dataset.format == "folder" else None


def _index_target(path: str | os.PathLike[str], root: str) -> str:
    """`path`, absolute, if it may be written: nothing but an index is ever replaced."""
    target = os.path.abspath(given_path("index file", path))
    if not target.endswith(INDEX_SUFFIX):
        raise InvalidArgumentError(
            f"index file {target}: its name must end with {INDEX_SUFFIX}, to be known as one"
        )
    check_outside("index file", target, root)
    return target


def _open_named(
    root: str, path: str, skip: tuple[str, ...] | None, progress: Progress | None
) -> tuple[Dataset, bool]:
    """With an index that the caller named: it is not replaced if it is of something else."""
    if os.path.exists(path):
        found = _core.Index.open(path)
        if found.root != root:
            raise InvalidArgumentError(
                f"opening dataset {root}: the index {path} is one of {found.root}; name another "
                "file"
            )
        if skip is not None and skip != skip_of(found):
            raise InvalidArgumentError(
                f"opening dataset {root}: the index {path} was made with skip="
                f"{list(skip_of(found))!r}, not {list(skip)!r}; name another file, or leave skip "
                "out"
            )
        skip = skip_of(found)
    dataset, is_new = _open_folder(root, path, skip or (), progress)
    return Dataset(dataset.index, root, path), is_new


def _open_current(root: str, path: str, skip: tuple[str, ...]) -> _core.Index | None:
    """The index at `path` if it is one of `root` as it is now, without what `skip` says."""
    if not os.path.exists(path):
        return None
    try:
        index = _core.Index.open(path)
    except (DataLossError, FailedPreconditionError):
        return None  # Damaged or of another version: what is derived can be derived again.
    same = index.root == root and skip_of(index) == skip
    return index if same and index.folder_is_current() else None


def _open_folder(
    root: str, path: str, skip: tuple[str, ...], progress: Progress | None
) -> tuple[Dataset, bool]:
    index = _open_current(root, path, skip)
    if index is not None:
        return Dataset(index, root), False
    _core.build_folder_index(root, path, progress, list(skip))
    dataset = Dataset(_core.Index.open(path), root)
    _log.info("indexed %s: %d samples, into %s", root, len(dataset), path)
    return dataset, True


def _open_cached(
    root: str, skip: tuple[str, ...], progress: Progress | None
) -> tuple[Dataset, bool]:
    path = cache_path(root, skip)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        writable = os.access(os.path.dirname(path), os.W_OK)
        if not writable and _open_current(root, path, skip) is None:
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        warnings.warn(
            f"headrace: the index of {root} cannot be kept in {os.path.dirname(path)} "
            f"({error.strerror}): it is made anew in each process; set XDG_CACHE_HOME to a folder "
            "that can be written, or pass index=",
            RuntimeWarning,
            stacklevel=4,
        )
        path = _temporary_path()
    return _open_folder(root, path, skip, progress)


def _temporary_path() -> str:
    handle, path = tempfile.mkstemp(prefix="headrace-", suffix=INDEX_SUFFIX)
    os.close(handle)
    atexit.register(_unlink_quietly, path, os.getpid())
    return path


def _unlink_quietly(path: str, owner: int) -> None:
    if os.getpid() == owner:  # A forked child must not take its parent's file away.
        with contextlib.suppress(OSError):
            os.unlink(path)


def _absent(path: str, what: str) -> str:
    """Says where a path to no `what` stops existing."""
    missing = Path(path)
    while not missing.parent.exists():
        missing = missing.parent
    if missing.is_symlink() and not missing.exists():
        return (
            f"{missing} is a link to {os.readlink(missing)}, which is not there; point it to what "
            "is, or name another path"
        )
    if str(missing) == path:
        return f"no such {what}"
    return f"no such {what} (the path exists as far as {missing.parent})"


def _check_is_folder_dataset(root: str) -> None:
    """Says what was found where a folder can be no dataset."""
    try:
        entries: Sequence[os.DirEntry[str]] = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError as error:
        raise FailedPreconditionError(f"opening dataset {root}: {error.strerror}") from error
    if any(entry.is_dir() for entry in entries if not entry.name.startswith(".")):
        return
    if not entries:
        raise InvalidArgumentError(f"opening dataset {root}: the folder is empty; {_RECOGNISED}")
    kinds: dict[str, int] = {}
    for entry in entries:
        suffix = os.path.splitext(entry.name)[1] or "other"
        kinds[suffix] = kinds.get(suffix, 0) + 1
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())[:5])
    hint = ""
    if ".arrow" in kinds:
        hint = f"; if this is a pack, its {PACK_INDEX_NAME} is missing: copy the whole folder again"
    raise InvalidArgumentError(
        f"opening dataset {root}: not a dataset: it holds no folders, only files ({found}); "
        f"{_RECOGNISED}{hint}"
    )
