"""An open core loader, and the resources that are opened and closed with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from headrace import _core
from headrace._dataset import Dataset
from headrace._loading.options import Resolved
from headrace._nodes.plan import connect_nodes
from headrace._nodes.process import closed_core, open_core
from headrace._workers import Core, Transformer

_log = logging.getLogger("headrace.loader")


class Session:
    """Owns the core loader of one `Loader`: its engine, or its connection to a node process.

    Also owns the loader's part of a budget and the worker processes of its transform.
    Thread safety: none, except that of `core` itself.
    """

    def __init__(
        self, dataset: Dataset, resolved: Resolved, transformer: Transformer | None
    ) -> None:
        """Opens the core.

        Raises: what opening a core loader raises; FailedPreconditionError for a part in use.
        """
        self._dataset = dataset
        self.options = resolved.options
        """Of the core that is open."""
        self.place = resolved.place
        self._part = resolved.part
        self._transformer = transformer
        self._nodes = resolved.nodes
        self._pid = os.getpid()
        self._addresses: list[str] = []  # of all nodes, if this rank connected them
        self.core: Core = self._open()

    def _open(self) -> Core:
        if self._part is not None:
            self._part.take(self)
        core = None
        try:
            core = open_core(self._dataset, self.options, self.place, self)
            self._addresses = connect_nodes(core, self._nodes, self.place)
            _log.info(
                "opened %s: order %s %s, rank %d of %d, %d steps an epoch",
                self._dataset.path,
                self.options.order.name,
                core.order_parameters,
                self.options.rank,
                self.options.world_size,
                core.steps_per_epoch,
            )
            return core if self._transformer is None else self._transformer.around(core)
        except BaseException:
            if core is not None:
                core.close()
                closed_core(self.place, self)
            if self._part is not None:
                self._part.give_back(self)
            raise

    def _close_core(self) -> None:
        try:
            self.core.close()
        finally:  # Ctrl-C shortens the wait.
            try:
                closed_core(self.place, self)
            finally:
                if self._part is not None:
                    self._part.give_back(self)

    def job(self) -> dict[str, Any] | None:
        """This node's number in its job, and where the nodes reach each other; None: unknown."""
        if self._nodes is None or not self._addresses:
            return None
        return {"node": self._nodes.node, "addresses": self._addresses}

    def reopen(self, options: _core.LoaderOptions, give_up: Callable[[], None]) -> None:
        """Opens a new core, with other options.

        If it cannot be opened, or Ctrl-C comes meanwhile, opens a core with the former ones, and
        raises the error. If that fails, too, there is no open core: calls `give_up`, which closes
        the loader.
        """
        before = self.options
        try:
            self._close_core()
            self.options = options
            self.core = self._open()
        except BaseException:
            self.options = before
            with ExitStack() as otherwise:
                otherwise.callback(give_up)
                self._close_core()  # Again, because Ctrl-C may have come before; it may be closed.
                self.core = self._open()
                otherwise.pop_all()
            raise

    def close(self) -> None:
        """Stops reading and frees threads, memory and the part of the budget.

        Asks workers to end first: they end while the core waits for reads.
        """
        try:
            if self._transformer is not None:
                self._transformer.dismiss()
        finally:
            self._close_core()
            if self._pid == os.getpid():  # Not in a forked child, which drops a copy.
                _log.info("closed %s", self._dataset.path)

    def close_workers(self) -> None:
        """Ends the worker processes. Call it after `close`."""
        if self._transformer is not None:
            self._transformer.close()
