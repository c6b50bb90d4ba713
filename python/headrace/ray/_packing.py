"""Packing by Ray tasks: each writes a shard, from the storage to the storage.

What goes through Ray are numbers of samples, and where a shard has which: no samples.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from headrace import _core
from headrace._dataset import Dataset
from headrace.errors import FailedPreconditionError, HeadraceError
from headrace.formats import table
from headrace.formats._base.format import Format
from headrace.pack._partial import PartialPack
from headrace.pack._plan import U64
from headrace.pack._shard import Shard, ShardWriter
from headrace.pack._work import PackWork, WriteShards, samples_of
from headrace.ray._cluster import check_version, connected
from headrace.ray._tasks import Tasks, by_tasks

_log = logging.getLogger("headrace.pack")

_READS = 8  # of a task at a time
_INDEX = "source.hri"


def writing_tasks(doing: str, at_once: int | None) -> WriteShards:
    """Writes shards by tasks of the cluster, to which it connects.

    Raises:
        ImportError, UnavailableError: as `connected`.
    """
    ray = connected(doing)

    def write(work: PackWork) -> dict[int, Shard]:
        if work.gathers:
            _log.warning(
                "%s in random order: each task decodes what its shard needs, so nearly all of the "
                "source once a shard; to decode it once, pack it with --order source first",
                doing,
            )
        source = _Source.of(work)
        partial, missing = work.partial, work.missing

        def arguments(at: int) -> tuple[object, ...]:
            home = work.plan.shard_homes[missing[at]]
            part = _Part(partial.target, missing[at], home, blocks(at), work.gathers)
            return _core.version, source, part

        def blocks(at: int) -> list[U64]:
            return work.plan.blocks_of(missing[at])

        def check(number: int, shard: Shard) -> None:
            home = work.plan.shard_homes[number]
            file = partial.data / partial.shard_name(number, home, shard.digest)
            if not file.exists():
                raise _not_shared(
                    Path(partial.target), f"{file.name}, which a task wrote, is not here"
                )

        def finished(at: int, shard: Shard) -> None:
            check(missing[at], shard)
            work.advance(work.plan.data_bytes(missing[at]) * (2 if work.gathers else 1))

        tasks = Tasks(
            _pack_shard,
            len(missing),
            arguments,
            name=lambda at: f"packing shard {missing[at]} to {partial.target}",
            at_once=at_once,
        )
        with closing(by_tasks(ray, tasks, finished, lambda: work.advance(0))) as shards:
            written = dict(zip(missing, shards, strict=True))
        for number, shard in written.items():  # One that was written twice may be gone again.
            check(number, shard)
        return written

    return write


@dataclass(frozen=True)
class _Source:
    """How a task opens the dataset."""

    path: str
    index: str
    fingerprint: str
    row: Format | None  # one of the user's
    pyarrow: str

    @staticmethod
    def of(work: PackWork) -> _Source:
        """Copies the index beside the target, as a cache folder may be of one machine alone."""
        source = work.source
        index, copy = source.index, work.partial.folder / _INDEX
        shutil.copyfile(index.path, copy)
        # The files of some datasets lie beside their index, such as those of a pack.
        moves = _core.Index.open(str(copy)).root == index.root
        path = str(copy) if moves else os.path.abspath(index.path)
        row = None if table.is_built_in(source.format_row) else source.format_row
        return _Source(source.path, path, source.fingerprint, row, pa.__version__)

    def opened(self) -> Dataset:
        """In a task."""
        if pa.__version__ != self.pyarrow:  # It may write other bytes.
            raise FailedPreconditionError(
                f"packing {self.path}: this node has pyarrow {pa.__version__}, the driver "
                f"{self.pyarrow}: install the same version on all nodes"
            )
        return Dataset(_opened(self.index, self.fingerprint), self.path, None, self.row)


@lru_cache(maxsize=1)  # A worker of Ray packs many shards of one dataset.
def _opened(path: str, fingerprint: str) -> _core.Index:
    index = _core.Index.open(path)
    if index.fingerprint != fingerprint:
        raise FailedPreconditionError(
            f"packing: the index {path} has the fingerprint {index.fingerprint} here, "
            f"{fingerprint} at the driver: all nodes must see the same files"
        )
    return index


@dataclass(frozen=True)
class _Part:
    """What a task writes."""

    target: str
    number: int
    home: int | None
    blocks: list[U64]
    gathers: bool


def _pack_shard(version: str, source: _Source, part: _Part) -> Shard:
    """A task."""
    try:
        check_version(version)
        partial = PartialPack(part.target)
        if not partial.data.is_dir():
            raise _not_shared(Path(partial.target), f"{partial.data} is not there")
        dataset = source.opened()
        shards = [part.blocks] if part.gathers else None
        with (
            samples_of(dataset, shards, partial.folder, _counted_by_the_driver) as samples,
            ThreadPoolExecutor(_READS, "headrace-read") as readers,
        ):
            writer = ShardWriter(dataset, samples, readers, _counted_by_the_driver)
            return partial.write(writer, part.number, part.home, part.blocks)
    except HeadraceError as error:
        error.add_note(f"on the Ray node {socket.gethostname()}")
        raise


def _counted_by_the_driver(count: int) -> None:
    """The driver counts whole shards."""


def _not_shared(target: Path, why: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"packing to {target}: {why}: the target and the data must lie on storage that all Ray "
        "nodes share, under the same paths"
    )
