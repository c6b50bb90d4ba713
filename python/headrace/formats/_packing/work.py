"""The shards that a run of `write_pack` has to write, and threads that write them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass

from headrace._dataset import Dataset
from headrace.errors import CancelledError
from headrace.formats._packing.partial import PartialPack
from headrace.formats._packing.plan import PackPlan
from headrace.formats._packing.shard import Shard, ShardWriter

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
    """Takes the bytes that were written; from any thread. It may raise, to stop."""


WriteShards = Callable[[PackWork], dict[int, Shard]]
"""Writes, verifies and records the missing shards. Nothing works on them when it ends."""


def writing_threads(workers: int) -> WriteShards:
    """Reading, hashing and writing release the GIL."""
    return lambda work: _by_threads(work, workers)


def _by_threads(work: PackWork, workers: int) -> dict[int, Shard]:
    stop = threading.Event()

    def advance(count: int) -> None:
        if stop.is_set():
            raise CancelledError(f"packing to {work.partial.target}: stopped")
        work.advance(count)

    with (
        closing(work.source.stored_reader()) as reader,
        ThreadPoolExecutor(workers * _READS_A_WORKER, "headrace-read") as readers,
    ):
        writer = ShardWriter(work.source, reader, readers, advance)

        def write(number: int) -> Shard:
            return work.partial.write(writer, number, work.plan.blocks_of(number))

        with ThreadPoolExecutor(workers, "headrace-pack") as pool:
            futures = {number: pool.submit(write, number) for number in work.missing}
            try:
                wait(futures.values(), return_when=FIRST_EXCEPTION)
            finally:  # also on Ctrl-C
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
    # The first cause, not the stops that followed.
    errors = [f.exception() for f in futures.values() if not f.cancelled()]
    causes = [e for e in errors if e is not None and not isinstance(e, CancelledError)]
    for error in causes or [e for e in errors if e is not None]:
        raise error
    return {number: future.result() for number, future in futures.items()}
