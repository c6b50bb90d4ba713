"""Limits of storage and memory: a control group a node, of version 1 or 2."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path("/sys/fs/cgroup")
PREFIX = "headrace-cluster"
_LEAVING_S = 10.0  # that processes which were killed may take to be gone


@dataclass(frozen=True)
class Limits:
    """Of each node. None: no limit."""

    read_bytes_per_s: int | None = None
    reads_per_s: int | None = None
    memory_bytes: int | None = None

    @property
    def storage(self) -> bool:
        """Whether storage is limited."""
        return self.read_bytes_per_s is not None or self.reads_per_s is not None


class Groups:
    """The control groups of all nodes, as long as the `with` lasts."""

    def __init__(self, nodes: int, limits: Limits, storage: Path, root: Path = ROOT) -> None:
        self._nodes = nodes
        self._limits = limits
        self._storage = storage
        self._root = root
        self._made: list[Path] = []
        self.joins: list[list[Path]] = [[] for _ in range(nodes)]
        """By node: the files into which its processes write their number."""
        self.said: list[str] = []

    def __enter__(self) -> Self:
        self._remove_stale()
        limits = self._limits
        if limits.storage:
            rates = []
            if limits.read_bytes_per_s is not None:
                rates.append(f"{limits.read_bytes_per_s / 1e6:,.0f} MB/s")
            if limits.reads_per_s is not None:
                rates.append(f"{limits.reads_per_s:,} reads/s")
            self._try("blkio", "storage", f"{' and '.join(rates)} a node, by control groups")
        if limits.memory_bytes is not None:
            said = f"{limits.memory_bytes / 2**20:,.0f} MiB a node, by control groups"
            self._try("memory", "memory", said)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        until = time.monotonic() + _LEAVING_S
        for group in reversed(self._made):
            while not _removed(group) and time.monotonic() < until:
                time.sleep(0.01)
        self._made.clear()

    def _try(self, controller: str, name: str, said: str) -> None:
        try:
            for node in range(self._nodes):
                self._limit(controller, node)
        except OSError as error:
            for joins in self.joins:
                joins[:] = [each for each in joins if controller not in each.parts]
            reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
            self.said.append(f"{name} is NOT limited: {reason}")
        else:
            self.said.append(f"{name} {said}")

    def _limit(self, controller: str, node: int) -> None:
        unified = (self._root / "cgroup.controllers").exists()
        folder = self._root if unified else self._root / controller
        group = folder / f"{PREFIX}-{os.getpid()}-{node}"
        if not group.exists():
            if unified:
                (folder / "cgroup.subtree_control").write_text("+io +memory")
            group.mkdir()
            self._made.append(group)
        for name, value in self._settings(controller, unified):
            (group / name).write_text(value)
        procs = group / "cgroup.procs"
        if procs not in self.joins[node]:
            self.joins[node].append(procs)

    def _settings(self, controller: str, unified: bool) -> Iterator[tuple[str, str]]:
        limits = self._limits
        if controller == "memory":
            yield ("memory.max" if unified else "memory.limit_in_bytes"), str(limits.memory_bytes)
            return
        device = disk_of(self._storage)
        given = (("bps", limits.read_bytes_per_s), ("iops", limits.reads_per_s))
        for name, limit in given:
            if limit is not None and unified:
                yield "io.max", f"{device} r{name}={limit}"
            elif limit is not None:
                yield f"blkio.throttle.read_{name}_device", f"{device} {limit}"

    def _remove_stale(self) -> None:
        """Groups of runs that were killed."""
        for group in (*self._root.glob(f"{PREFIX}-*"), *self._root.glob(f"*/{PREFIX}-*")):
            found = re.fullmatch(rf"{PREFIX}-(\d+)-\d+", group.name)
            if found is not None and not Path(f"/proc/{found[1]}").exists():
                _removed(group)


def _removed(group: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        try:
            group.rmdir()
        except OSError:
            return False
    return True


def disk_of(path: Path) -> str:
    """The number of the disk that has it, "254:0". Control groups know no partitions.

    Raises:
        OSError: it is on no disk: in memory, or on another machine.
    """
    number = os.stat(path).st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        raise OSError(f"{path.resolve()} is on no disk of this machine")
    device = device.resolve()
    if (device / "partition").exists():
        device = device.parent
    return (device / "dev").read_text().strip()
