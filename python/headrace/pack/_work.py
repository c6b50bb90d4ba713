"""The shards that a run of `write_pack` has to write, and threads that write them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace._dataset import Dataset
from headrace.errors import CancelledError
from headrace.pack._gather import Gathered, Samples, Stored
from headrace.pack._partial import PartialPack
from headrace.pack._plan import U64, PackPlan
from headrace.pack._shard import Shard, ShardWriter

_READS_A_WORKER = 8


@dataclass(frozen=True)
class PackWork:
    """What is left to write."""

    source: Dataset
    partial: PartialPack
    plan: PackPlan
    missing: list[int]
    """Shards."""
    advance: Callable[[int], None]
    """Takes the bytes that were gathered, or written; from any thread. It may raise, to stop."""
    gathers: bool
    """Whether samples are gathered first, as their objects are decoded as a whole."""

    def rounds(self) -> Iterator[list[int]]:
        """The missing shards that are written from one pass over the source.

        Where samples are gathered first, their file takes room that the pack does not need. With
        less room than for all, there are several passes.
        """
        free = free_bytes(self.partial.room)
        if not self.gathers or free is None:
            yield from [self.missing] if self.missing else []
            return
        shards = sum(self.plan.data_bytes(number) for number in self.missing)
        room = max(0, free - self.partial.needed_room(shards))
        taken = 0
        numbers: list[int] = []
        for number in self.missing:
            size = self.plan.data_bytes(number)
            if numbers and taken + size > room:
                yield numbers
                numbers, taken = [], 0
            numbers.append(number)
            taken += size
        if numbers:
            yield numbers


WriteShards = Callable[[PackWork], dict[int, Shard]]
"""Writes, verifies and records the missing shards. Nothing works on them when it ends."""


def writing_threads(workers: int) -> WriteShards:
    """Reading, hashing and writing release the GIL."""
    return lambda work: _by_threads(work, workers)


@contextmanager
def samples_of(
    source: Dataset, shards: list[list[U64]] | None, folder: Path, advance: Callable[[int], None]
) -> Iterator[Samples]:
    """What shards are written from: what is gathered in `folder` of these, by their blocks.

    None: the files themselves.
    """
    if shards is None:
        with closing(source.stored_reader()) as reader:
            yield Stored(source.index, reader)
            reader.check_open()  # Else the pack may be of two states of a file.
        return
    samples = [np.concatenate(blocks) for blocks in shards]
    with Gathered(source.index, samples, folder) as gathered:
        with closing(source.stored_reader()) as reader:
            gathered.fill(reader, advance)
            reader.check_open()
        yield gathered


def free_bytes(folder: Path) -> int | None:
    """Bytes that this user may still write there; None if unknown."""
    system = os.statvfs(folder)
    if not system.f_blocks:
        return None
    return system.f_frsize * (system.f_bavail if os.geteuid() else system.f_bfree)


def _by_threads(work: PackWork, workers: int) -> dict[int, Shard]:
    stop = threading.Event()

    def advance(count: int) -> None:
        if stop.is_set():
            raise CancelledError(f"packing to {work.partial.target}: stopped")
        work.advance(count)

    written: dict[int, Shard] = {}
    with ThreadPoolExecutor(workers * _READS_A_WORKER, "headrace-read") as readers:
        for numbers in work.rounds():
            shards = [work.plan.blocks_of(number) for number in numbers] if work.gathers else None
            with samples_of(work.source, shards, work.partial.folder, advance) as samples:
                writer = ShardWriter(work.source, samples, readers, advance)
                written |= _write(work, writer, numbers, workers, stop)
    return written


def _write(
    work: PackWork, writer: ShardWriter, numbers: list[int], workers: int, stop: threading.Event
) -> dict[int, Shard]:
    def write(number: int) -> Shard:
        plan = work.plan
        return work.partial.write(writer, number, plan.shard_homes[number], plan.blocks_of(number))

    with ThreadPoolExecutor(workers, "headrace-pack") as pool:
        futures = {number: pool.submit(write, number) for number in numbers}
        try:
            _, unfinished = wait(futures.values(), return_when=FIRST_EXCEPTION)
            if unfinished:
                stop.set()
        except BaseException:  # also on Ctrl-C
            stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    # The first cause, not the stops that followed.
    errors = [f.exception() for f in futures.values() if not f.cancelled()]
    causes = [e for e in errors if e is not None and not isinstance(e, CancelledError)]
    for error in causes or [e for e in errors if e is not None]:
        raise error
    return {number: future.result() for number, future in futures.items()}
