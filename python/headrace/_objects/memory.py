"""What one call of `hr.open` has learnt of a store, so that it asks for nothing twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headrace._objects.listing import Head, Listing, Object

_ENTRIES_MAX = 500_000  # in lists that are kept; the last one is kept whatever its size
_BYTES_MAX = 32 * 2**20  # of objects


class Memory:
    """Answers of stores. Thread safety: all calls may be made from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._lists: OrderedDict[str, Listing] = OrderedDict()
        self._used: set[str] = set()  # of the lists
        self._entries = 0
        self._data: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._bytes = 0

    def has_head(self, path: str) -> bool:
        """Whether a HEAD of the object was answered."""
        with self._lock:
            return path in self._heads

    def head(self, path: str) -> Head:
        """The answer to the HEAD of the object; None, too, if there was no HEAD."""
        with self._lock:
            return self._heads.get(path)

    def keep_heads(self, heads: Iterable[tuple[str, Head]]) -> None:
        """Keeps answers, but for errors that may pass."""
        with self._lock:
            for path, head in heads:
                if not isinstance(head, OSError) or isinstance(head, PermissionError):
                    self._heads[path] = head

    def listing(self, path: str) -> Listing | None:
        """What was listed below the path; None: it was not listed."""
        with self._lock:
            return self._lists.get(path)

    def use_listing(self, path: str) -> Listing | None:
        """As listing(), of a list that is now read: it may go when there are too many entries."""
        with self._lock:
            found = self._lists.get(path)
            if found is not None:
                self._used.add(path)
            return found

    def keep_listing(self, path: str, listing: Listing) -> None:
        """Keeps a list. When there are too many entries, lists go that were read, the oldest first;
        then those that were kept last: the others are read before them."""
        with self._lock:
            self._drop(path)
            while self._entries + len(listing) > _ENTRIES_MAX and self._lists:
                read = next((folder for folder in self._lists if folder in self._used), None)
                self._drop(read or next(reversed(self._lists)))
            self._entries += len(listing)
            self._lists[path] = listing

    def _drop(self, path: str) -> None:
        self._entries -= len(self._lists.pop(path, ()))
        self._used.discard(path)

    def data(self, path: str, offset: int, size: int) -> bytes | None:
        """Bytes of an object, if they are kept."""
        with self._lock:
            at, data = self._data.get(path, (0, b""))
        begin = offset - at
        return data[begin : begin + size] if 0 <= begin <= len(data) - size else None

    def keep_data(self, path: str, offset: int, data: bytes) -> None:
        """Keeps a range of an object, in place of an earlier one; the oldest go for it."""
        with self._lock:
            self._bytes -= len(self._data.pop(path, (0, b""))[1])
            self._data[path] = offset, data
            self._bytes += len(data)
            while self._bytes > _BYTES_MAX:
                self._bytes -= len(self._data.popitem(last=False)[1][1])


_MEMORY: ContextVar[Memory | None] = ContextVar("headrace_objects", default=None)


def current() -> Memory:
    """The memory of this call of `hr.open`; outside of one, an empty one for one question."""
    return _MEMORY.get() or Memory()


def expect(path: str, size: int, version: int) -> None:
    """Within `remembering()`: the object is taken to be of this size and version, without a
    question; to read another one is an error. 0: any version."""
    current().keep_heads([(path, Object(size, version))])


@contextmanager
def remembering() -> Iterator[None]:
    """Within the block, and in threads that run in its context, answers are kept."""
    if _MEMORY.get() is not None:
        yield
        return
    token = _MEMORY.set(Memory())
    try:
        yield
    finally:
        _MEMORY.reset(token)
