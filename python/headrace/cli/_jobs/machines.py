"""The loaders that a command of observation looks at."""

from __future__ import annotations

from pathlib import Path

from headrace._observe.monitor import Address, find_loaders
from headrace.cli._jobs.nodes import OtherNodes, nodes_of_job
from headrace.cli._parts import top as _top
from headrace.errors import NotFoundError


class Machines:
    """The loaders of this machine, and those of others that are asked for."""

    def __init__(self, pids: list[int] | None, names: list[str], job: bool, via: str) -> None:
        self._pids = pids
        self._names = names
        self._job = job
        self._via = via
        OtherNodes(names, via)  # Refuses what it cannot follow.

    def ask(self, again: bool = False) -> tuple[list[Address], _top.Snapshots, dict[str, str]]:
        """Addresses here; what loaders elsewhere answer; machines that do not, and why."""
        if again:
            local = [at for at in find_loaders() if not self._pids or at.pid in self._pids]
        else:
            local = addresses_of(self._pids)
        names = list(self._names)
        if self._job:
            names += nodes_of_job(_top.ask_all(local).values())
        others = OtherNodes(names, self._via)
        elsewhere, unheard = others.ask() if others else ({}, {})
        return local, elsewhere, unheard


def addresses_of(pids: list[int] | None) -> list[Address]:
    """Of the loaders of this machine, or of these processes of it. Raises: NotFoundError."""
    addresses = find_loaders()
    if not pids:
        return addresses
    known = {address.pid for address in addresses}
    for pid in pids:
        if pid in known:
            continue
        if not Path(f"/proc/{pid}").exists():
            raise NotFoundError(
                f"process {pid} has ended, and its loaders with it;"
                " `headrace top` lists those there are"
            )
        raise NotFoundError(
            f"process {pid}: no loader of yours is monitored there now; if it was not closed, make "
            "it with EngineOptions(monitor=True), or set HEADRACE_MONITOR=1"
        )
    return [address for address in addresses if address.pid in pids]
