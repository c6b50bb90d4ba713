"""Folder datasets of torchvision: the engine reads their files ahead, the dataset does the rest."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace._dataset import Dataset, find_dataset
from headrace._observe.stats import Stats
from headrace.errors import HeadraceError
from headrace.formats.folder import Folder
from headrace.torch._dataloader.contents import Content, ImageLoader, Supply
from headrace.torch._dataloader.engine.layout import Layout, with_leaves
from headrace.torch._dataloader.engine.reader import ListReader, most_waited
from headrace.torch._dataloader.epochs.progress import DrawnAhead, Progress

FOLDERS_MAX = 16
"""Folders of a ConcatDataset that are read ahead: each has a Loader."""
_FAILURES_MAX = 16
"""Batches of an epoch that could not be read ahead, after which the dataset reads the rest."""
_END_SECONDS = 1.0
"""How long the end of an iteration waits for the read that goes on."""
_MODULE = "torchvision.datasets.folder"


def _is_folder(leaf: Any) -> bool:
    """Whether it is a DatasetFolder whose files Pillow decodes. Imports nothing."""
    folder: Any = sys.modules.get(_MODULE)
    if folder is None or not isinstance(leaf, folder.DatasetFolder):
        return False
    if leaf.loader is folder.pil_loader:
        return True
    if leaf.loader is not folder.default_loader:
        return False
    backend: Any = getattr(sys.modules.get("torchvision"), "get_image_backend", None)
    return backend is None or backend() == "PIL"


class _Files:
    """The files of one folder dataset, as the engine knows them."""

    def __init__(self, leaf: Any, base: Dataset) -> None:
        self._leaf = leaf
        self._checked = list(leaf.samples)  # The entries: the user may change some.
        index = base.index
        objects = index.extents(0)[0].tolist()
        names = {index.object(each)[0]: number for number, each in enumerate(objects)}
        top = f"{index.root}/"
        paths = (str(path) for path, *_ in self._checked)
        found = (names.get(path.removeprefix(top), -1) for path in paths)
        self._numbers = np.fromiter(found, np.int64, len(self._checked))

    @property
    def count(self) -> int:
        """Samples whose file the engine can read."""
        return int((self._numbers >= 0).sum())

    def number(self, key: int) -> int:
        """The number of a sample's file in the index; -1: unknown."""
        samples, checked = self._leaf.samples, self._checked
        at = key + len(samples) if key < 0 else key
        if not 0 <= at < min(len(samples), len(checked)) or samples[at] is not checked[at]:
            return -1
        return int(self._numbers[at])

    def path(self, key: int) -> str:
        """As the dataset gives it to its loader."""
        path: str = self._leaf.samples[key][0]
        return path


class _Wanted(NamedTuple):
    """A file of a batch that is to be read ahead."""

    slot: int
    leaf: int
    number: int
    """In the leaf's index."""
    path: str


class FolderReader:
    """Reads the files of folder datasets ahead, in the order in which an epoch needs them.

    Thread safety: one thread. Ownership: a Loader for each folder. Shutdown: `close`.
    """

    def __init__(self, layout: Layout, bases: Sequence[Dataset]) -> None:
        self._layout = layout
        self._files = [_Files(leaf, base) for leaf, base in zip(layout.leaves, bases, strict=True)]
        self.readers = [ListReader(base, ["image"]) for base in bases]
        self.is_closed = False
        self.is_busy = False
        """Whether an epoch is being read."""

    @classmethod
    def of(cls, dataset: Any) -> FolderReader | None:
        """None if it is not made of folder datasets only, or none of their files can be read."""
        layout = Layout(dataset)
        if len(layout.leaves) > FOLDERS_MAX or not all(map(_is_folder, layout.leaves)):
            return None
        try:
            bases = [find_dataset(os.fspath(leaf.root), row=Folder()) for leaf in layout.leaves]
            reader = cls(layout, bases)
        except (HeadraceError, OSError):
            return None
        if all(files.count for files in reader._files):
            return reader
        reader.close()
        return None

    @staticmethod
    def prepared(dataset: Any) -> Any:
        """The dataset, with loaders that take what was read ahead."""

        def changed(leaf: Any) -> Any:
            made = copy.copy(leaf)
            made.loader = ImageLoader(leaf.loader)
            return made

        return with_leaves(dataset, changed)

    def supply(self, progress: Progress) -> Supply:
        """Draws all keys of the epoch, and reads their files from now on."""
        drawn = DrawnAhead(progress)
        wanted = {of.number: self._wanted(of.keys) for of in drawn.batches}
        return _FolderSupply(drawn, self, wanted, progress.epoch)

    def _wanted(self, keys: Sequence[Any]) -> list[_Wanted]:
        try:
            places = self._layout.places(keys)
        except (LookupError, ValueError, TypeError):  # The dataset says what is wrong.
            return []
        files = [(slot, leaf, self._files[leaf], key) for slot, (leaf, key) in enumerate(places)]
        found = [(slot, leaf, of, key, of.number(key)) for slot, leaf, of, key in files]
        return [
            _Wanted(slot, leaf, number, of.path(key))
            for slot, leaf, of, key, number in found
            if number >= 0
        ]

    def stats(self) -> Stats:
        """Of the Loader; of several, of the one that was waited for most."""
        return most_waited([reader.stats() for reader in self.readers])

    def close(self) -> None:
        self.is_closed = True
        for reader in self.readers:
            reader.close()


class _FolderSupply(Supply):
    """The batches of one epoch, and what their files hold. Where a file cannot be read ahead the
    dataset reads it, and so raises its own error.

    Thread safety: `contents`, `forget` and `close` from any thread.
    """

    def __init__(
        self,
        drawn: DrawnAhead,
        reader: FolderReader,
        wanted: dict[int, list[_Wanted]],
        epoch: int,
    ) -> None:
        super().__init__(drawn)
        self._reader = reader
        self._wanted = wanted
        self._epoch = epoch
        self._unread = deque(sorted(wanted))  # batches
        self._ready: dict[int, dict[int, Content]] = {}  # by batch and slot
        self._failures = 0
        self._taken: list[Iterator[dict[str, Any]]] | None = None  # by leaf
        self._is_closed = False
        # The collector may call `close` in a thread that holds it.
        self._lock = threading.RLock()
        reader.is_busy = True
        with self._lock, contextlib.suppress(HeadraceError, OSError):
            self._begin()

    def contents(self, batch: int, first: int, count: int) -> list[Content | None] | None:
        with self._lock:
            while self._unread and self._unread[0] <= batch and not self._is_closed:
                self._read(self._unread.popleft())
            found = self._ready.get(batch)
            if found is None:
                return None
            return [found.pop(slot, None) for slot in range(first, first + count)]

    def forget(self, batch: int) -> None:
        with self._lock:
            self._ready.pop(batch, None)

    def _read(self, batch: int) -> None:
        """Takes a batch from the Loaders."""
        wanted = self._wanted.pop(batch)
        try:
            if self._taken is None:
                self._begin(batch, wanted)
            taken = self._taken
            assert taken is not None
            found: dict[int, Content] = {}
            for leaf in sorted({each.leaf for each in wanted}):
                files = next(taken[leaf])["image"]
                here = [each for each in wanted if each.leaf == leaf]
                for each, data in zip(here, files, strict=True):
                    # A copy: what is kept of a Loader's batch keeps all its memory.
                    found[each.slot] = Content(each.path, data.numpy().tobytes())
            self._ready[batch] = found
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
        left += [self._wanted[each] for each in self._unread]
        self._taken = []
        for leaf, reader in enumerate(self._reader.readers):
            lists = [[each.number for each in of if each.leaf == leaf] for of in left]
            lists = [each for each in lists if each]
            self._taken.append(reader.begin(lists, self._epoch) if lists else iter(()))

    def close(self) -> None:
        self._is_closed = True
        if not self._lock.acquire(timeout=_END_SECONDS):
            self._reader.close()  # This ends the wait of the thread that reads.
            return
        try:
            self._taken = None
            self._ready.clear()
            self._wanted.clear()
            self._reader.is_busy = False
        finally:
            self._lock.release()
