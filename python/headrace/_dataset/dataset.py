"""`headrace.open`: what a path holds, and its index."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, SupportsIndex

from headrace import _core, _places, formats
from headrace._arguments import shown, whole
from headrace._dataset import left_out as listed
from headrace._dataset.decoding import decoded_sample
from headrace._dataset.drawing import DatasetFacts, dataset_html, dataset_line
from headrace._dataset.samples import StoredSamples
from headrace._signature import named_arguments
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
)
from headrace.formats._base.findings import (
    Finding,
    findings_of,
    skip_of,
    warn_of,
    warn_of_skip,
)
from headrace.formats._base.format import SOURCE, Format, Given, Wanted, remedies
from headrace.formats._fields.order import field_types
from headrace.formats._files.images import advise_on_decoding
from headrace.formats._files.nested import Nesting
from headrace.formats._files.objects import is_decoded
from headrace.formats._files.paths import dataset_path
from headrace.formats._folders.numbered_files import findings_at
from headrace.formats._hive.partitions import warn_of_partitions
from headrace.formats._rowgroups.kept_reader import KeptReader

if TYPE_CHECKING:
    from headrace.formats._base.builder import Progress

_KEPT_BYTES = 64 * 2**20  # of what Dataset.read decoded


class Dataset:
    """Samples on storage, as an index describes them: fields, sizes, places. Nothing is loaded.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        index: _core.Index,
        path: str,
        named_index: str | None = None,
        row: Format | None = None,
        left_out: listed.Numbers | None = None,
        *,
        is_given: bool = False,
    ) -> None:
        """`named_index`: the index file, if the user named it. `row`: the format that opened it;
        `is_given`: by the user, not recognised. `left_out`: samples that no epoch has, ascending.
        """
        self._is_given = is_given
        self._index = index
        self._row = row
        self._named_index = named_index
        self._path = path
        self._fields = index.fields
        nesting = Nesting([field.name for field in self._fields])
        order = self.format_row.field_order(index, field_types(self._fields, nesting))
        self._nesting = nesting.in_order(order)
        self._classes = _classes_of(index, path)
        self._left_out = left_out
        self._now: tuple[Finding, ...] | None = (
            None  # of the files as they are now; None: not yet read
        )
        self._report = findings_of(index, path)
        if left_out is not None:
            examples = tuple(f"sample {number}" for number in left_out[:3].tolist())
            self._report += (Finding("skipped", len(left_out), examples),)
        self._samples = StoredSamples(index, path, self.format_row, self._nesting)
        self._kept = KeptReader()
        self._homes: _core.Homes | None = None  # found at the first use

    @property
    def path(self) -> str:
        """The path that was opened."""
        return self._path

    @property
    def index(self) -> _core.Index:
        """Where every sample lies; private to headrace."""
        return self._index

    @property
    def format(self) -> str:
        """How the data lies on storage: "folder", "pack", ..."""
        return self._index.attributes.get("format", formats.table.OTHER.name)

    @property
    def format_row(self) -> Format:
        """What headrace knows of that format; private to headrace."""
        own = self._row
        if own is not None and own.name == self.format:
            return own
        return formats.table.format_of(self._index)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of a sample's parts, in the order of batches and samples: ("image", "label").

        This is the order of the data's schema; without a schema (tars, HDF5, ...), data come before
        labels. `Output(fields=...)` sets another order.
        """
        return self._nesting.names

    @property
    def nesting(self) -> Nesting:
        """Which fields of the index are one of these together; private to headrace."""
        return self._nesting

    def kind(self, field: str) -> str:
        """What a field holds: "image", "bytes", "text", "array"; "list", of arrays; or "nested": a
        list of lists, of texts or of bytes."""
        for position, own_field in enumerate(self._fields):
            if own_field.name == field:
                return own_field.kind if self._nesting.field_at(position) is None else "nested"
        raise InvalidArgumentError(
            f"field {field!r}: the dataset has no such field; it has {', '.join(self.fields)}"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each class, by label; empty if the dataset names none."""
        return self._classes

    @property
    def report(self) -> tuple[Finding, ...]:
        """What indexing found: files that cannot be decoded, hidden files, files left out."""
        if self._now is None:
            row = self.format_row
            source = "" if row.file_a_sample else self._index.attributes.get(SOURCE, "")
            self._now = findings_at(source) + row.also_found(self._index)
        return self._report + self._now

    @property
    def skip(self) -> tuple[str, ...]:
        """What was left out when the folder was indexed; see `headrace.open`."""
        return skip_of(self._index)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: the same for the same files, with the same sample numbers."""
        return self._index.fingerprint

    @property
    def content(self) -> str:
        """32 hexadecimal digits: as `fingerprint`, without times of change; a copy has the same."""
        return self._index.content()

    @property
    def homes(self) -> int:
        """The number of nodes on whose own disks the samples lie (`headrace docs pack-format`).

        1: all lie in one place.
        """
        return self.home_table.count

    @property
    def home_table(self) -> _core.Homes:
        """Which home has which file; private to headrace."""
        if self._homes is None:
            self._homes = _core.Homes.of(self._index)
        return self._homes

    def home_of(self, sample: SupportsIndex) -> int:
        """The number of the home where a sample lies: node 0, 1, ..."""
        return self.home_table.of_sample(self._number("home of", sample))

    def __len__(self) -> int:
        return self._index.sample_count

    def _samples_of_epoch(self) -> int:
        return len(self) - (0 if self._left_out is None else len(self._left_out))

    def _number(self, doing: str, sample: SupportsIndex) -> int:
        number = whole(sample)
        if number is None:
            raise InvalidArgumentError(f"sample: got {sample!r}, must be an integer")
        if not 0 <= number < len(self):
            has = f"samples 0 to {len(self) - 1}" if len(self) else "no samples"
            raise OutOfRangeError(f"{doing} sample {number} of {self._path}: it has {has}")
        return number

    def read(self, sample: SupportsIndex) -> dict[str, Any]:
        """One sample as it is stored: bytes for images, `str` for text, NumPy values for arrays.

        Reads and checks the file at once: for inspection, not for training.
        """
        number = self._number("reading", sample)
        if listed.has(self._left_out, number):
            raise FailedPreconditionError(
                f"reading sample {number} of {self._path}: it is left out (skip=), as in "
                "headrace.Loader; give torch's DataLoader a torch.utils.data.Subset of the others, "
                "or open the dataset without skip= to read it"
            )
        if is_decoded(self._index) or not _places.is_local(self._index.root):
            kept = self._kept.reader(lambda: self.stored_reader(1, _KEPT_BYTES))
            return self._samples.read(kept, number)
        with closing(self.stored_reader(threads=1)) as reader:
            return self._samples.read(reader, number)

    def decoded(self, sample: SupportsIndex) -> dict[str, Any]:
        """As ``dataset[i]``, with images as pixels: what a Python transform of a loader gets."""
        stored = self[sample]
        number = range(len(self))[sample]
        try:
            return decoded_sample(
                stored, self.kind, lambda name: self._samples.reading(name, number)
            )
        except DataLossError as error:
            advise_on_decoding(error, self.format_row.command_words(self._path))
            raise

    def stored_reader(self, threads: int = 0, decoded_bytes: int = 0) -> _core.StoredReader:
        """Reads stored bytes through a store, as a loader does; private to headrace.

        `threads`: number of reads that run at once; 0: the number of a loader. `decoded_bytes`:
        memory for files and row groups that are decoded as a whole; 0: as much as is useful.
        """
        advice = remedies(self.format_row, self._index)
        return _core.StoredReader(self._index, advice, threads, decoded_bytes)

    def __getitem__(self, sample: SupportsIndex) -> dict[str, Any]:
        """``dataset[i]`` is `read(i)`; ``dataset[-1]`` is the last sample.

        Raises OutOfRangeError, an IndexError, past the end.
        """
        number = whole(sample)
        if number is None or number >= 0:
            return self.read(sample)
        if number < -len(self) and len(self):
            raise OutOfRangeError(
                f"reading sample {number} of {self._path}: the first of {len(self):,} samples is "
                f"{-len(self)}"
            )
        return self.read(number + len(self) if len(self) else number)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with closing(self.stored_reader(threads=1)) as reader:
            for number in range(len(self)):
                if not listed.has(self._left_out, number):
                    yield self._samples.read(reader, number)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the path. Unpickling opens it again and requires the same samples."""
        row = self._row
        # An index file has it inside, as has a pack.
        skip = self.skip if row is not None and row.follows_skip else ()
        is_known = row is not None and formats.table.is_built_in(row) and not self._is_given
        own = None if is_known else row
        return _reopen, (self._path, self._named_index, skip, self.fingerprint, own, self._left_out)

    def __repr__(self) -> str:
        return dataset_line(self._facts())

    def _repr_html_(self) -> str:
        """For notebooks."""
        return dataset_html(self._facts())

    def _facts(self) -> DatasetFacts:
        return DatasetFacts.of(
            self._index, self.nesting, self._path, self.format, self._classes, self._report
        )


def samples_of(dataset: Dataset) -> StoredSamples:
    """Its samples as they are stored; to be read by a `stored_reader`."""
    return dataset._samples


def _classes_of(index: _core.Index, path: str) -> tuple[str, ...]:
    """The names of the classes that the index has."""
    try:
        classes = json.loads(index.attributes.get("classes", "[]"))
        why = f"it is {shown(classes)}"
    except ValueError as error:
        classes, why = None, str(error)
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise DataLossError(
            f"opening {path}: its list of classes is damaged: {why}; make the index again"
        )
    return tuple(classes)


def left_out_of(dataset: Dataset) -> listed.Numbers | None:
    """The numbers of samples that no epoch has, ascending; None: there are none."""
    return dataset._left_out


def epoch_samples(dataset: Dataset) -> int:
    """The number of samples of an epoch."""
    return dataset._samples_of_epoch()


def check_has_samples(doing: str, dataset: Dataset) -> None:
    """Raises InvalidArgumentError if there is nothing to read."""
    if not len(dataset):
        raise InvalidArgumentError(
            f"{doing} {dataset.path}: it holds no samples; name data that have some, or write it "
            "again if a filter or an interrupted job emptied it"
        )


def let_go(dataset: Dataset) -> None:
    """Frees what `Dataset.read` keeps of files that are decoded as a whole."""
    dataset._kept.let_go()


FormatArgument = Format | str | None
"""What `format=` may be: a format, or the name of one. None: the one that recognises the path."""

Skip = str | Iterable[str] | None
"""What `skip=` may be. None: nothing is left out, but an index file that exists at `index=` keeps
the `skip` that it was made with."""


@named_arguments
def open_dataset(
    path: str | os.PathLike[str] | Any,
    *,
    index: str | os.PathLike[str] | None = None,
    format: FormatArgument = None,
    split: str | None = None,
    skip: Skip = None,
    progress: Progress | None = None,
) -> Dataset:
    """Opens a dataset as it lies on storage.

    `path` is a folder with one folder of images for each class, a pack, an index file, or a dataset
    of another known format (`headrace docs formats/own`), also as a pattern of its files
    ("a-{000..099}.tar", "a-*.tar", "data/**/*.tar") or as a list of them; "~" is the home folder.
    Or it is an object that a format knows, such as a `datasets.Dataset` (`headrace docs
    formats/huggingface`). The first call indexes it, which lists its files once; the index is kept
    in the user's cache folder and used again as long as no folder of the dataset has changed.
    `index` names an index file to use instead; it is made if it does not exist. While indexing,
    `progress` is called with the number of files or samples found.

    `format` is the format at `path` with its parameters, such as
    `headrace.formats.Tokens(window=1024)`; None: it is recognised.

    `split` names the split to open if there are several: files such as train-0000.tar and
    test-0000.tar, folders such as train/ and test/, a table with a column `split`, a dataset of
    Hugging Face (`headrace docs data`). Without it, a folder with several is refused.

    `skip` leaves files and folders of a folder out, as if they were not there: "*.webp", "src" (a
    name, wherever it is), "/src" or "ant/broken.jpg" (a path below the folder), or a kind of file:
    ":undecodable", ":empty", ":broken_link", ":special", ":unreadable", ":hidden". One or a list of
    them. Sample numbers and labels count the other files, so they change with it. Without `skip`, a
    file that cannot be decoded is a sample that fails; a warning says so when the folder is
    indexed, and `Dataset.report` later. "@FILE" leaves out what ``headrace verify --decode
    --failures FILE`` listed in FILE: files of a folder, by name; in other formats samples, which
    then are in no epoch, while the others keep their numbers.

    Raises:
        NotFoundError: there is nothing at `path`.
        InvalidArgumentError: `path` is not a dataset; another argument is invalid.
        FailedPreconditionError: a folder that cannot be read.
        DataLossError: an index file that is damaged.
    """
    if progress is not None and not callable(progress):
        raise InvalidArgumentError(
            f"progress: got {shown(progress)}, must be a function of the number of files found"
        )
    with _places.remembering():
        dataset, is_new = _find(path, index, skip, progress, row_of(format), split)
    if is_new:
        failing = [finding for finding in dataset.report if not finding.can_be_decoded]
        warn_of(failing, dataset.index, dataset.path, "indexing")
    if skip is not None:
        warn_of_skip(dataset.index)
    return dataset


inspect.unwrap(open_dataset).__qualname__ = "open"  # As a TypeError of a missing path names it.


def find_dataset(
    path: str | os.PathLike[str],
    *,
    skip: Skip = None,
    progress: Progress | None = None,
    row: Format | None = None,
    split: str | None = None,
) -> Dataset:
    """As `open_dataset`, for commands: these tell in their own way what was found."""
    with _places.remembering():
        return _find(path, None, skip, progress, row, split)[0]


def _reopen(
    path: str,
    index: str | None,
    skip: tuple[str, ...],
    fingerprint: str,
    row: Format | None = None,
    left_out: listed.Numbers | None = None,
) -> Dataset:
    """A dataset that was pickled."""
    with _places.remembering():
        dataset = _find(path, index, skip if index is not None else skip or None, None, row)[0]
    if dataset.fingerprint != fingerprint:
        raise FailedPreconditionError(
            f"unpickling the dataset {path}: its files are not those of when it was pickled "
            f"(fingerprint {dataset.fingerprint}, was {fingerprint}); open it anew"
        )
    if left_out is None:
        return dataset
    row, is_given = dataset._row, dataset._is_given
    return Dataset(dataset.index, path, index, row, left_out, is_given=is_given)


def _find(
    path: Any,
    index: str | os.PathLike[str] | None,
    skip: Skip,
    progress: Progress | None,
    row: Format | None = None,
    split: str | None = None,
) -> tuple[Dataset, bool]:
    """The dataset, and whether its index was made now."""
    patterns, lists = listed.divided(() if skip is None else skip)
    named = listed.with_names(patterns, lists)
    if not isinstance(path, (str, bytes, os.PathLike)):
        match = formats.table.of_object(path, row, split)
        if match is not None:
            wanted = Wanted(index, None if skip is None else patterns, progress)
            dataset, is_new = _open_object(*match, wanted)
            return _without(dataset, lists), is_new
    where = dataset_path("opening dataset", path)
    is_given = row is not None
    where, row = formats.table.chosen(where, row, split, named)
    taken = named if row.follows_skip else patterns
    opened = row.open(where, Wanted(index, None if skip is None else taken, progress))
    dataset = Dataset(opened.index, where, opened.named, row, is_given=is_given)
    if opened.is_new and not isinstance(row, formats.Parquet):
        warn_of_partitions(where, dataset.fields)
    dataset = _without(dataset, lists)
    if not _places.is_local(where):
        _ = dataset.report  # While lists are remembered: a loader looks at it, too.
    return dataset, opened.is_new


def _without(dataset: Dataset, lists: list[listed.Listed]) -> Dataset:
    """The dataset without samples whose numbers are listed."""
    row = dataset._row
    by_name = row is not None and row.follows_skip
    left_out = listed.numbers_of(lists, dataset.index, dataset.path, by_name=by_name)
    if left_out is None:
        return dataset
    named, is_given = dataset._named_index, dataset._is_given
    return Dataset(dataset.index, dataset.path, named, row, left_out, is_given=is_given)


def open_object(source: object) -> Dataset | None:
    """The dataset of an object of another package; None: no format knows it."""
    match = formats.table.of_object(source)
    return None if match is None else _open_object(*match, Wanted())[0]


def _open_object(row: Format, source: Given, wanted: Wanted) -> tuple[Dataset, bool]:
    where, opened = row.open_object(source, wanted)
    # From now on it is its index: that is what other processes open.
    return Dataset(opened.index, where, None, formats.table.OTHER), opened.is_new


def row_of(format: FormatArgument) -> Format | None:
    """The format that is given. Raises: InvalidArgumentError."""
    value: object = format
    if value is None or isinstance(value, Format):
        return value
    if isinstance(value, str):
        return formats.table.named(value)
    raise InvalidArgumentError(
        f"format: got {shown(format)}, must be a format, such as headrace.formats.Tokens(...), or "
        "the name of one"
    )


def image_folder(dataset: Dataset) -> str | None:
    """The folder where each file that is added becomes a sample; None: there is none."""
    return dataset.format_row.source_folder(dataset.index)
