"""An open `datasets.Dataset`: which rows it has, and where in which files they lie.

datasets maps its files into memory. Whatever was done with the dataset since (slices, columns
renamed or dropped, datasets joined), the memory of a column that was not computed anew still is
that of a file, and /proc/self/maps says of which one, at which offset.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headrace import _core
from headrace.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from headrace.formats._arrow.mapped_files import MappedFile, Places
from headrace.formats._arrow.record_batch import Chunk
from headrace.formats._arrow.row_data import RowNumbers
from headrace.formats._base.builder import Builder
from headrace.formats._base.findings import FindingCounts

_PACKAGE = "datasets"
_KNOWN = ("Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict")
_FORMATS = (None, "torch", "numpy")  # of values, which batches have anyway
_MAPS = "/proc/self/maps"
_MAPPING = re.compile(
    rb"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *([^\n]*)"
)
_SAVE = "save it with ds.save_to_disk(folder), and open that folder"


def kind_of(source: object) -> str | None:
    """The class of `datasets` that an object is of; None for others. Imports nothing."""
    for base in type(source).__mro__:
        if base.__module__.partition(".")[0] == _PACKAGE and base.__name__ in _KNOWN:
            return base.__name__
    return None


def check(source: Any, split: str | None) -> Any:
    """The dataset, or the split of it that is wanted, if its rows can be read in place."""
    kind = kind_of(source)
    if kind == "DatasetDict":
        if split not in source:
            raise InvalidArgumentError(
                f"opening a datasets.DatasetDict: it has the splits {', '.join(source)}; give one: "
                f"hr.open(ds[{next(iter(source), 'train')!r}])"
            )
        return check(source[split], None)
    if kind != "Dataset":
        raise InvalidArgumentError(
            f"opening a datasets.{kind}: it has rows in one order only, and no files to read at "
            "random; load it without streaming=True"
        )
    if split is not None:
        raise InvalidArgumentError(
            f"opening a datasets.Dataset: split={split!r} was given, but it is one; leave split out"
        )
    used = source.format["type"]
    if used not in _FORMATS:
        what = "set_transform()" if used == "custom" else f"with_format({used!r})"
        raise InvalidArgumentError(
            f"opening a datasets.Dataset: it has {what}, which headrace would not apply; open "
            "ds.with_format(None), and give the function as transform= to hr.Loader"
        )
    if not source.cache_files:
        raise InvalidArgumentError(
            f"opening a datasets.Dataset of {len(source):,} rows: its rows are in memory, in no "
            f"file; {_SAVE}"
        )
    return source


def columns_of(dataset: Any) -> tuple[str, ...] | None:
    """The columns that `with_format(columns=...)` chose; None: all."""
    chosen = dataset.format["columns"]
    if dataset.format["output_all_columns"] or set(chosen) == set(dataset.column_names):
        return None
    return tuple(chosen)


def files_of(dataset: Any) -> list[str]:
    """The files that hold its rows, each once."""
    names = [os.path.abspath(file["filename"]) for file in dataset.cache_files]
    mapping = dataset._indices
    if mapping is not None:  # Its own files come behind; they hold no rows.
        own = {os.path.abspath(e) for e in _paths(mapping)}
        names = [name for name in names if name not in own]
    return list(dict.fromkeys(names))


def key_of(dataset: Any) -> str:
    """A text that differs for datasets with other rows."""
    parts = [dataset._fingerprint, str(len(dataset)), *dataset.column_names, *files_of(dataset)]
    parts += [f"{_core.hash64(rows.tobytes()):016x}" for rows in mapping_of(dataset) or ()]
    return f"{_core.hash64(chr(0).join(map(str, parts)).encode('utf-8', 'surrogateescape')):016x}"


def all_rows(dataset: Any) -> Any:
    """A copy that has every row of the dataset's table, in the table's order. Those of all
    selections and shuffles of a table have one key, and so one index."""
    whole = copy.copy(dataset)
    whole._indices = None
    blocks = [block for row in getattr(dataset.data, "blocks", [[dataset.data]]) for block in row]
    if all(hasattr(block, "replays") for block in blocks):  # In files, with what was done since.
        made = [(block.path, block.replays) for block in blocks]
        said = repr((made, dataset.data.schema.to_string(), dataset.features, dataset.format))
        whole._fingerprint = f"{_core.hash64(said.encode('utf-8', 'surrogateescape')):016x}"
    return whole


def mapping_of(dataset: Any) -> Iterator[RowNumbers] | None:
    """The numbers of its rows in its table, piece by piece; None: all, in order."""
    if dataset._indices is None:
        return None
    return _mapping(dataset)


def _mapping(dataset: Any) -> Iterator[RowNumbers]:
    rows = dataset.data.num_rows
    for piece in dataset._indices.table.column(0).chunks:
        numbers = piece.to_numpy().astype(np.int64)
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < rows:
            raise OutOfRangeError(
                f"opening a datasets.Dataset: its list of rows names row {int(numbers.max())}, its "
                f"table has {rows}; select() the rows again"
            )
        yield numbers


class ObjectTable:
    """The table of a dataset, as it is in memory."""

    def __init__(self, dataset: Any) -> None:
        self._table = dataset.data.table
        self._what = f"datasets.Dataset {dataset._fingerprint}"
        self._files = files_of(dataset)

    @property
    def schema(self) -> Any:
        """Of the table."""
        return self._table.schema

    def chunks(
        self, places: Places, builder: Builder | None = None, undecoded: FindingCounts | None = None
    ) -> Iterator[Chunk]:
        """Its record batches; `places`: of the files in memory."""
        first = 0
        for batch in self._table.to_reader():
            what = f"{self._what}: rows from {first:,}"
            sounds = undecoded or FindingCounts()
            yield Chunk(batch, places, what, first, builder, undecoded=sounds)
            first += batch.num_rows

    def chunks_for(
        self, builder: Builder, undecoded: FindingCounts
    ) -> Callable[[], Iterator[Chunk]]:
        """Adds the files; returns what goes through the record batches, any number of times."""
        files = [MappedFile(path) for path in self._files]
        for file in files:
            file.number = builder.add_file(file.path)
        places = Places()
        _find_mappings(files, places)

        def chunks() -> Iterator[Chunk]:
            yield from self.chunks(places, builder, undecoded)
            for file in files:
                file.forget()

        return chunks


def _find_mappings(files: list[MappedFile], places: Places) -> None:
    """Adds where this process has the files in memory.

    By path, else by device and inode: a layered file system gives the inode of another layer. A
    file that was replaced keeps its mapping, but not its path: " (deleted)" follows it.
    """
    known: dict[object, MappedFile] = {}
    for file in files:
        status = os.stat(file.path)
        known[os.major(status.st_dev), os.minor(status.st_dev), status.st_ino] = file
        known[os.fsencode(os.path.realpath(file.path)).replace(b"\n", b"\\012")] = file
    own = {file.base for file in files}
    try:
        with open(_MAPS, "rb") as lines:
            for line in lines:
                match = _MAPPING.match(line)
                if match is None:
                    continue
                start, end, offset, major, minor = (int(text, 16) for text in match.groups()[:5])
                mapped = known.get(match[7]) or known.get((major, minor, int(match[6])))
                if mapped is not None and start not in own:
                    places.add(start, end - start, offset, mapped)
    except OSError as error:
        raise FailedPreconditionError(
            f"opening a datasets.Dataset: reading {_MAPS}: {error.strerror}; {_SAVE}"
        ) from error


def _paths(table: Any) -> list[str]:
    """The files of a table of datasets."""
    path = getattr(table, "path", None)
    if isinstance(path, str):
        return [path]
    blocks = getattr(table, "blocks", None) or ()
    return [path for row in blocks for block in row for path in _paths(block)]
