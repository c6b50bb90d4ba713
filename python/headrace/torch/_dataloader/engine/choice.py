"""Which datasets and samplers of a DataLoader the engine reads for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import default_collate

from headrace._loading.passes.origins import has_state, layers
from headrace._observe.stats import Stats
from headrace.torch._dataloader.engine.arrays import ArrayReader, facts_of
from headrace.torch._dataloader.engine.folders import FolderReader

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
        type(each) in _LISTS or f"{type(each).__module__}.".startswith(_FIXED)
        for each in layers(sampler)
    )


class Engine:
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
        found = self._arrays
        if found is not None and not found.reads(dataset):
            found.close()
            found = self._arrays = None
        if found is None and (asked := facts_of(dataset)) != self._refused:
            found = self._arrays = ArrayReader.of(dataset)
            self._refused = asked if found is None else None
        return found if found is None or not found.is_busy else None

    def folders(self, dataset: Any) -> FolderReader | None:
        """Reads files ahead; None: as of `arrays`."""
        if has_state(dataset):
            return None
        found = self._folders
        if found is not None and (found.is_closed or not found.reads(dataset)):
            found.close()  # It may be: after a read that hung.
            found = self._folders = None
        if found is None and self._has_folders:
            found = self._folders = FolderReader.of(dataset)
            self._has_folders = found is not None
        return found if found is None or not found.is_busy else None

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
