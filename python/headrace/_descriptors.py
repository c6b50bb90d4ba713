"""Handles a lack of file descriptors."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from headrace.errors import ResourceExhaustedError

_PAUSE_S = 1.0
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@contextlib.contextmanager
def taking_descriptors(doing: str) -> Iterator[None]:
    """Turns the error of a lack of descriptors into a ResourceExhaustedError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise ResourceExhaustedError(
            f"{doing}: {error.strerror}; raise the limit (ulimit -n)"
        ) from error


class Acceptor:
    """A listening socket of a selector.

    While no descriptor is left, clients wait. The listener stays ready then, so it is removed from
    the selector for a pause, instead of being tried again in a busy loop.

    Thread safety: none; used by the waiting thread.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        doing: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._selector, self._listener, self._doing, self._clock = selector, listener, doing, clock
        self._again: float | None = None  # when the pause is over; None: there is none
        self._warned = False
        selector.register(listener, selectors.EVENT_READ)

    def select(self, timeout: float | None = None) -> list[Any]:
        """The ready sockets; none after the timeout, or when the pause is over."""
        if self._again is not None:
            left = self._again - self._clock()
            if left > 0:
                timeout = left if timeout is None else min(left, timeout)
            else:
                self._again = None
                self._selector.register(self._listener, selectors.EVENT_READ)
        return [key.fileobj for key, _ in self._selector.select(timeout)]

    def accept(self) -> socket.socket | None:
        """None: the client has gone already, or waits for a descriptor."""
        try:
            return self._listener.accept()[0]
        except OSError as error:
            if error.errno in _NO_ROOM:
                self.pause(_PAUSE_S)
                self._warn(error)
            return None

    def pause(self, seconds: float) -> None:
        """Accepts no client for this time: clients wait."""
        if self._again is None:
            self._selector.unregister(self._listener)
            self._again = self._clock() + seconds

    def _warn(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        # The thread is to go on where warnings are errors, or where showing one needs a descriptor.
        with contextlib.suppress(Exception):
            warnings.warn(
                f"headrace: {self._doing}: {error.strerror}: who connects waits until others are "
                "closed; close some, or raise their number (ulimit -n)",
                RuntimeWarning,
                stacklevel=2,
            )
