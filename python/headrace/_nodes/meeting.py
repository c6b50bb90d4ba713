"""How the nodes of a job tell each other their addresses, through a store that all can reach.

The store may be older than this launch: torchrun keeps it when it starts the ranks again, on the
same or on other nodes, and nothing that it tells the ranks is the same on all nodes and different
for each start. So nothing that is found there is believed until its author has confirmed it:

1. Each node writes its entry, which has a number drawn for this meeting.
2. Node 0 reads the entries of all nodes, and writes them as a list with a new name. If an entry
   changes later, it does so again.
3. A node that finds its own entry in the list confirms the list, by its name.
4. When all nodes have confirmed it, node 0 says that it holds. Then all leave.

An entry of an ended process is in a list at most until its successor writes its own: an ended
process confirms nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.errors import UnavailableError

_LOOK_EVERY_S = 0.02


class Store(Protocol):
    """What torch's stores have, as far as it is used here."""

    def set(self, key: str, value: str) -> object:
        """Sets a value, for all processes of the job."""

    def get(self, key: str) -> bytes:
        """A value that is there."""

    def check(self, keys: list[str]) -> bool:
        """Whether all these values are there."""


@dataclass(frozen=True)
class Met:
    """What all nodes of a meeting know at its end."""

    addresses: list[str]
    machines: list[str]  # of each node: which it is on
    token: str


class Meeting:
    """One node's part in it.

    Thread safety: none.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        node: int,
        nodes: int,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._node = node
        self._nodes = nodes
        self._clock = clock
        self._pause = pause
        self._missing = ""

    def hold(self, address: str, machine: str, timeout_s: float) -> Met:
        """Tells the others this node's address, and returns all.

        Raises:
            UnavailableError: a node is missing after `timeout_s`, or the store is; names it.
        """
        own = json.dumps([os.urandom(8).hex(), address, machine])
        until = self._clock() + timeout_s
        look = self._lead if self._node == 0 else self._follow
        self._missing = "the store"
        try:
            self._set(f"node/{self._node}", own)
            while (met := look(own)) is None:
                if self._clock() >= until:
                    raise UnavailableError(self._late(timeout_s))
                self._pause(_LOOK_EVERY_S)
        except UnavailableError:
            raise
        except Exception as error:  # torch has no type for a store's.
            raise UnavailableError(f"{self._late(timeout_s)}: {error}") from error
        return met

    def _late(self, timeout_s: float) -> str:
        return (
            f"node {self._node} of {self._nodes} waited up to {timeout_s:g} s for {self._missing}: "
            "all ranks must make their loaders, in the same order, with the same options"
        )

    _written: tuple[str, str, list[str]] | None = None  # of node 0: name, token, entries

    def _lead(self, own: str) -> Met | None:
        """What node 0 does at each look; what was agreed, once it is."""
        entries = [own]
        for node in range(1, self._nodes):
            entry = self._value(f"node/{node}")
            if entry is None:
                self._missing = f"node {node}"
                return None
            entries.append(entry)
        if self._written is None or self._written[2] != entries:
            name, token = os.urandom(8).hex(), os.urandom(32).hex()
            self._written = (name, token, entries)
            self._set("list", json.dumps([name, token, entries]))
        name, token, entries = self._written
        for node in range(1, self._nodes):
            if not self._store.check([f"{self._prefix}/confirmed/{name}/{node}"]):
                self._missing = f"node {node} to confirm the addresses"
                return None
        self._set(f"holds/{name}", "yes")
        return _met(token, entries)

    def _follow(self, own: str) -> Met | None:
        """What another node does at each look."""
        self._missing = "node 0 to list the addresses"
        text = self._value("list")
        if text is None:
            return None
        name, token, entries = json.loads(text)
        if len(entries) != self._nodes or entries[self._node] != own:
            return None  # Of an earlier launch, or made before this node's entry.
        self._set(f"confirmed/{name}/{self._node}", "yes")
        if self._value(f"holds/{name}") is None:
            self._missing = "the other nodes to confirm the addresses"
            return None
        return _met(token, entries)

    def _set(self, key: str, value: str) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def _value(self, key: str) -> str | None:
        """A value, without waiting for it."""
        key = f"{self._prefix}/{key}"
        return self._store.get(key).decode() if self._store.check([key]) else None


def _met(token: str, entries: list[str]) -> Met:
    nodes: list[Any] = [json.loads(entry) for entry in entries]
    return Met([node[1] for node in nodes], [node[2] for node in nodes], token)
