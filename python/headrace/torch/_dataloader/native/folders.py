"""Folder datasets of torchvision: the engine reads their files ahead, the dataset does the rest."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace._dataset import Dataset, find_dataset
from headrace._observe.stats import Stats
from headrace.errors import HeadraceError
from headrace.formats.folder import Folder
from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.epochs.progress import DrawnAhead, Progress
from headrace.torch._dataloader.native.composition import PARTS_MAX, WRONG_KEY, Composition
from headrace.torch._dataloader.native.listed_reader import ListedReader, most_waited
from headrace.torch._dataloader.reading.file_contents import (
    FileContent,
    give_back_loader,
    own_loader,
    take_contents,
)
from headrace.torch._dataloader.reading.supply import Supply

_FAILURES_MAX = 16
"""Batches of an epoch that could not be read ahead, after which the dataset reads the rest."""
_END_SECONDS = 1.0
"""How long the end of an iteration waits for the read that goes on."""
_numbers = itertools.count()
"""Of readers, as takers of contents."""
_MODULE = "torchvision.datasets.folder"
_UNUSUAL = (AttributeError, *WRONG_KEY)
"""Errors for attributes that a class of the user's has made other than torchvision's."""


def _is_folder(leaf: Any) -> bool:
    """Whether it is a DatasetFolder that has its files listed by torchvision, takes them one by
    one, and has Pillow decode them. Imports nothing."""
    folder: Any = sys.modules.get(_MODULE)
    if folder is None or not isinstance(leaf, folder.DatasetFolder):
        return False
    kind, loader = type(leaf), own_loader(leaf)
    if hasattr(kind, "__getitems__"):
        return False
    if kind.make_dataset is not folder.DatasetFolder.make_dataset:
        return False  # Its root may hold far more than its samples.
    if getattr(folder.pil_loader, "__module__", None) != _MODULE:
        return False  # The program has its own in that place.
    if loader is folder.pil_loader:
        return True
    if loader is not folder.default_loader:
        return False
    backend: Any = getattr(sys.modules.get("torchvision"), "get_image_backend", None)
    return backend is None or backend() == "PIL"


class _Files:
    """The files of one folder dataset, as the engine knows them."""

    def __init__(self, leaf: Any, base: Dataset) -> None:
        """Raises one of `_UNUSUAL`, or OSError."""
        self._leaf = leaf
        self._paths = [entry[0] for entry in leaf.samples]  # The user may change some.
        index, root = base.index, os.fspath(leaf.root)
        if not os.path.samefile(root, index.root):  # Such as of "link/..".
            raise ValueError(f"{root} is not {index.root}")
        objects = index.extents(0)[0].tolist()
        names = {index.object(object_id)[0]: number for number, object_id in enumerate(objects)}
        tops = (os.path.join(root, ""), f"{index.root}/")

        def number(path: str) -> int:
            top = next((prefix for prefix in tops if path.startswith(prefix)), path)
            return names.get(path[len(top) :], -1)

        numbers = (number(str(path)) for path in self._paths)
        self._numbers = np.fromiter(numbers, np.int64, len(self._paths))

    @property
    def count(self) -> int:
        """Samples whose file the engine can read."""
        return int((self._numbers >= 0).sum())

    def file(self, key: int) -> tuple[int, str]:
        """The number of a sample's file in the index, -1: unknown; its path, as the dataset gives
        it to its loader. Raises one of `_UNUSUAL`."""
        samples, paths = self._leaf.samples, self._paths
        at = key + len(samples) if key < 0 else key
        if not 0 <= at < min(len(samples), len(paths)) or samples[at][0] != paths[at]:
            return -1, ""
        return int(self._numbers[at]), paths[at]


class _Wanted(NamedTuple):
    """A file of a batch that is to be read ahead."""

    slot: int
    leaf: int
    number: int
    """In the leaf's index."""
    path: str


class FolderReader:
    """Reads the files of folder datasets ahead, in the order in which an epoch needs them.

    Thread safety: one thread. Ownership: a Loader for each folder. Shutdown: `close`, or when it is
    dropped.
    """

    def __init__(self, composition: Composition, bases: Sequence[Dataset]) -> None:
        self._composition = composition
        self._number = next(_numbers)
        self._give_back = weakref.finalize(self, _give_back, composition.leaves, self._number)
        self._files = [
            _Files(leaf, base) for leaf, base in zip(composition.leaves, bases, strict=True)
        ]
        with warnings.catch_warnings():
            # Such as of a file that is empty: the dataset says what it makes of it.
            warnings.simplefilter("ignore", RuntimeWarning)
            self.readers = [ListedReader(base, ["image"]) for base in bases]
        self.is_closed = False
        self.is_busy = False
        """Whether an epoch is being read."""

    @classmethod
    def of(cls, dataset: Any) -> FolderReader | None:
        """None if it is not made of folder datasets only, or none of their files can be read."""
        composition = Composition(dataset)
        if len(composition.leaves) > PARTS_MAX or not all(map(_is_folder, composition.leaves)):
            return None
        try:
            bases = [
                find_dataset(os.fspath(leaf.root), row=Folder()) for leaf in composition.leaves
            ]
            reader = cls(composition, bases)
        except (HeadraceError, OSError, *_UNUSUAL):
            return None
        if all(files.count for files in reader._files):
            return reader
        reader.close()
        return None

    def reads(self, dataset: Any) -> bool:
        """Whether it still reads for `dataset`, which may have changed since."""
        leaves = Composition(dataset).leaves
        return (
            len(leaves) == len(self._composition.leaves)
            and all(
                one is other for one, other in zip(leaves, self._composition.leaves, strict=True)
            )
            and all(map(_is_folder, leaves))
        )

    def prepare(self) -> None:
        """Has the datasets take what was read ahead, until `close`."""
        for leaf in self._composition.leaves:
            take_contents(leaf, self._number)

    def supply(self, progress: Progress) -> Supply:
        """Draws all keys of the epoch when the first batch is drawn, and reads their files."""
        return _FolderSupply(self, progress)

    def wanted(self, keys: Sequence[Any]) -> list[_Wanted]:
        """The files of a batch that can be read ahead."""
        try:
            places = self._composition.places(keys)
            files = [(leaf, *self._files[leaf].file(key)) for leaf, key in places]
        except _UNUSUAL:  # The dataset says what is wrong.
            return []
        return [_Wanted(slot, *file) for slot, file in enumerate(files) if file[1] >= 0]

    def stats(self) -> Stats:
        """Of the Loader; of several, of the one that was waited for most."""
        return most_waited([reader.stats() for reader in self.readers])

    def close(self) -> None:
        self.is_closed = True
        self._give_back()
        for reader in self.readers:
            reader.close()


def _give_back(leaves: Sequence[Any], number: int) -> None:
    """Puts the datasets' own loaders back, unless another reader still needs them away."""
    for leaf in leaves:
        give_back_loader(leaf, number)


class _FolderSupply(Supply):
    """The batches of one epoch, and what their files hold. Where a file cannot be read ahead the
    dataset reads it, and so raises its own error.

    Thread safety: `contents`, `forget` and `close` from any thread.
    """

    waits = True

    def __init__(self, reader: FolderReader, progress: Progress) -> None:
        super().__init__(progress.draw)
        self._reader = reader
        self._progress = progress
        self._drawn: DrawnAhead | None = None
        self._wanted: dict[int, list[_Wanted]] = {}
        self._unread: deque[int] = deque()  # batches
        self._ready: dict[int, dict[int, FileContent]] = {}  # by batch and slot
        self._failures = 0
        self._taken: list[Iterator[dict[str, Any]]] | None = None  # by leaf
        self._is_closed = False
        self._has_reader = reader.is_busy = True
        # The collector may call `close` in a thread that holds it.
        self._lock = threading.RLock()

    def draw(self) -> Drawn | None:
        if self._drawn is None:
            drawn = self._drawn = DrawnAhead(self._progress)
            self._wanted = {
                batch.number: self._reader.wanted(batch.keys) for batch in drawn.batches
            }
            with self._lock, contextlib.suppress(HeadraceError, OSError):
                self._unread.extend(sorted(self._wanted))
                if not self._is_closed:
                    self._begin()
        return self._drawn()

    def contents(self, batch: int, first: int, count: int) -> list[FileContent | None] | None:
        with self._lock:
            while self._unread and self._unread[0] <= batch and not self._is_closed:
                self._read(self._unread.popleft())
            if not self._unread:
                self._release()
            contents = self._ready.get(batch)
            if contents is None:
                return None
            return [contents.pop(slot, None) for slot in range(first, first + count)]

    def forget(self, batch: int) -> None:
        self._ready.pop(batch, None)  # Without the lock: a reader may have it, and wait.

    def _read(self, batch: int) -> None:
        """Takes a batch from the Loaders."""
        wanted = self._wanted.pop(batch)
        try:
            if self._taken is None:
                self._begin(batch, wanted)
            taken = self._taken
            assert taken is not None
            contents: dict[int, FileContent] = {}
            for leaf in sorted({file.leaf for file in wanted}):
                images = next(taken[leaf])["image"]
                here = [file for file in wanted if file.leaf == leaf]
                for file, data in zip(here, images, strict=True):
                    # A copy: what is kept of a Loader's batch keeps all its memory.
                    contents[file.slot] = FileContent(file.path, data.numpy().tobytes())
            self._ready[batch] = contents
        except BaseException as error:
            self._taken = None
            if not isinstance(error, Exception):
                raise
            self._failures += 1
            if self._failures > _FAILURES_MAX:
                self._unread.clear()

    def _begin(self, batch: int | None = None, wanted: Sequence[_Wanted] = ()) -> None:
        """Has the Loaders read the batches that are left, after `batch` and its files."""
        left = [] if batch is None else [wanted]
        left += [self._wanted[number] for number in self._unread]
        taken: list[Iterator[dict[str, Any]]] = []
        for leaf, reader in enumerate(self._reader.readers):
            lists = [[file.number for file in files if file.leaf == leaf] for files in left]
            lists = [numbers for numbers in lists if numbers]
            taken.append(reader.begin(lists, self._progress.epoch) if lists else iter(()))
        self._taken = taken

    def close(self) -> None:
        self._is_closed = True
        if not self._lock.acquire(timeout=_END_SECONDS):
            self._reader.close()  # This ends the wait of the thread that reads.
            return
        try:
            self._ready.clear()
            self._wanted.clear()
            self._release()
        finally:
            self._lock.release()

    def _release(self) -> None:
        """The next epoch may have the Loaders: this one needs them no more."""
        self._taken = None
        if self._has_reader:
            self._has_reader = self._reader.is_busy = False
