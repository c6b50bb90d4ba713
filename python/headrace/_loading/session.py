"""An open core loader, with everything that is opened and closed together with it."""

from __future__ import annotations

from collections.abc import Callable

from headrace import _core
from headrace._dataset import Dataset
from headrace._loading.node import NodePlace, closed_core, open_core
from headrace._workers import Core, Transformer
from headrace.tiers import Part


class Session:
    """The core loader of one `Loader`: its engine, or its connection to a node process.

    Owns the core, the loader's part of a budget, and the worker processes of its transform.
    Thread safety: none, beside that of `core` itself.
    """

    def __init__(
        self,
        dataset: Dataset,
        options: _core.LoaderOptions,
        place: NodePlace | None,
        part: Part | None,
        transformer: Transformer | None,
    ) -> None:
        """Opens the core with `options`, which stay the caller's to change.

        Raises: what opening a core loader raises; FailedPreconditionError for a part in use.
        """
        self._dataset = dataset
        self._options = options
        self._place = place
        self._part = part
        self._transformer = transformer
        self.core: Core = self._open()

    def _open(self) -> Core:
        if self._part is not None:
            self._part.take(self)
        core = None
        try:
            core = open_core(self._dataset, self._options, self._place, self)
            return core if self._transformer is None else self._transformer.around(core)
        except BaseException:
            if core is not None:
                core.close()
                closed_core(self._place, self)
            if self._part is not None:
                self._part.give_back(self)
            raise

    def _close_core(self) -> None:
        self.core.close()
        closed_core(self._place, self)
        if self._part is not None:
            self._part.give_back(self)

    def reopen(self, undo: Callable[[], None]) -> None:
        """Opens a new core, for options that have changed since.

        If it cannot be opened, calls `undo`, which restores the options, opens a core for those
        again, and raises the error.
        """
        self._close_core()
        try:
            self.core = self._open()
        except BaseException:
            undo()
            self.core = self._open()
            raise

    def close(self) -> None:
        """Stops reading and gives back threads, memory and the part of the budget."""
        self._close_core()

    def close_workers(self) -> None:
        """Ends the worker processes. Call it after `close`."""
        if self._transformer is not None:
            self._transformer.close()
