"""Which datasets and samplers of a DataLoader the engine reads for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import default_collate

from headrace._loading.passes.origins import has_state, layers
from headrace._observe.stats import Stats
from headrace.torch._dataloader.native.arrays import ArrayReader, facts_of
from headrace.torch._dataloader.native.folders import FolderReader

_FIXED = ("torch.utils.data.", "headrace.", "accelerate.", "lightning.", "pytorch_lightning.")
"""Modules of samplers whose keys are decided when a pass begins."""
_LISTS = (list, tuple, range)


def is_fixed(sampler: Any) -> bool:
    """Whether the keys of a pass may be drawn when it begins. A class of the user's may follow
    what the training does meanwhile, or have no end."""
    try:
        len(sampler)
    except (TypeError, NotImplementedError):
        return False
    return all(
        type(layer) in _LISTS or f"{type(layer).__module__}.".startswith(_FIXED)
        for layer in layers(sampler)
    )


class NativeReaders:
    """The engine's readers for one DataLoader, made when they are first asked for.

    Thread safety: one thread. Ownership: the readers. Shutdown: `close`.
    """

    def __init__(self) -> None:
        self._arrays: ArrayReader | None = None
        self._folders: FolderReader | None = None
        self._refused: object = None  # what cannot be read as arrays
        self._has_folders = True

    def arrays(self, dataset: Any, collate_fn: Callable[[Any], Any]) -> ArrayReader | None:
        """Makes the batches; None: the engine does not, or an earlier iteration has the reader."""
        if has_state(dataset) or collate_fn is not default_collate:
            return None
        reader = self._arrays
        if reader is not None and not reader.reads(dataset):
            reader.close()
            reader = self._arrays = None
        if reader is None and (asked := facts_of(dataset)) != self._refused:
            reader = self._arrays = ArrayReader.of(dataset)
            self._refused = asked if reader is None else None
        return reader if reader is None or not reader.is_busy else None

    def folders(self, dataset: Any) -> FolderReader | None:
        """Reads files ahead; None: as of `arrays`."""
        if has_state(dataset):
            return None
        reader = self._folders
        if reader is not None and (reader.is_closed or not reader.reads(dataset)):
            reader.close()  # It may be: after a read that hung.
            reader = self._folders = None
        if reader is None and self._has_folders:
            reader = self._folders = FolderReader.of(dataset)
            self._has_folders = reader is not None
        return reader if reader is None or not reader.is_busy else None

    @property
    def makes_batches(self) -> bool:
        return self._arrays is not None

    def stats(self) -> Stats | None:
        """Of the reader's Loader; None if there is none."""
        for reader in (self._arrays, self._folders):
            if reader is not None:
                return reader.stats()
        return None

    def close(self) -> None:
        """The next iteration may make new readers."""
        for reader in (self._arrays, self._folders):
            if reader is not None:
                reader.close()
        self._arrays = self._folders = None
