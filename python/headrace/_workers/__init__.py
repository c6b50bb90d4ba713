"""Python transforms, in worker processes: `headrace docs workers`.

`_pool` is the loader's side, `worker` what runs in a worker process; `_inline` is both, in one
process, for `workers=0`. They share `samples`, the input of a transform, and `results`: the
structure of what it returns, and the rows of a batch. The host of the workers is C++: src/workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import _core
from headrace._workers._inline import InlineBatch, InlineCore
from headrace._workers._options import Transform, WorkerOptions, split_transform
from headrace._workers._output import BatchConverter, Convert, Padded, batch_type, dict_type
from headrace._workers._pool import PooledCore, WorkerProcesses, batches_in_hand_max
from headrace._workers.samples.sample import Sample

__all__ = [
    "Core",
    "Padded",
    "Sample",
    "Transform",
    "Transformer",
    "batch_type",
    "dict_type",
    "options_for_workers",
    "split_transform",
]

Core = _core.Loader | InlineCore | PooledCore
"""The source from which `Loader` takes batches."""


def options_for_workers(python: WorkerOptions | None) -> dict[str, Any]:
    """What the core's options say of batches that worker processes take."""
    if python is None or not python.workers:
        return {}
    behind = batches_in_hand_max(python)
    return {"shared_batches": True, "worker_results": True, "batches_behind": behind}


class Transformer:
    """Puts a user's functions between a core loader and `Loader`."""

    def __init__(
        self,
        python: WorkerOptions,
        seed: int,
        convert: Convert,
        with_ids: bool,
        batch: Callable[..., Any],
    ) -> None:
        """`batch` makes one of its fields, and of the numbers of its samples."""
        self._python = python
        self._seed = seed
        self._output = BatchConverter(convert, with_ids, batch if python.are_fields else None)
        self._workers = WorkerProcesses(python, seed, self._output) if python.workers else None

    @property
    def are_fields(self) -> bool:
        """Whether batches hold the fields of the dataset, and no results of a function."""
        return self._python.are_fields

    def around(self, core: _core.Loader) -> Core:
        """The core loader with the functions applied to its batches."""
        if self._workers is not None:
            return PooledCore(core, self._workers)
        return InlineCore(core, self._python, self._seed, self._output)

    def present(self, batch: Any) -> Any:
        """Converts a batch for the user."""
        if isinstance(batch, InlineBatch):
            return batch.value
        assert self._workers is not None
        return self._workers.present(batch)

    def dismiss(self) -> None:
        """Asks the workers to end. Does not wait."""
        if self._workers is not None:
            self._workers.dismiss()

    def close(self) -> None:
        """Ends the workers."""
        if self._workers is not None:
            self._workers.close()
