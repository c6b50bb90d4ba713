"""Lance: a table of a binary column, rows taken in the order of a permutation by threads."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from loaders import common

FORMAT = "lance"
_ROWS = 1000  # handed to the writer at a time


def shuffle(task: common.Task) -> str:
    return "permutation of all samples"


def choices(task: common.Task) -> list[common.Settings]:
    return [{"threads": threads} for threads in (1, 2, 4, 8)]


def prepare(source: common.Source, folder: Path) -> None:
    schema = pa.schema([("data", pa.large_binary()), ("label", pa.int64())])

    def batches() -> Iterator[Any]:
        parts: list[tuple[bytes, int]] = []
        for _, data, label in source.shuffled():
            parts.append((data, label))
            if len(parts) == _ROWS:
                yield _record_batch(parts, schema)
                parts = []
        if parts:
            yield _record_batch(parts, schema)

    lance.write_dataset(batches(), str(folder / "table.lance"), schema=schema)


def _record_batch(parts: list[tuple[bytes, int]], schema: Any) -> Any:
    data, labels = zip(*parts, strict=True)
    return pa.record_batch([pa.array(data, pa.large_binary()), pa.array(labels)], schema=schema)


class _Table:
    def __init__(self, task: common.Task) -> None:
        self._task = task
        self._table = lance.dataset(str(task.stored / "table.lance"))
        self.rows = self._table.count_rows()

    def take(self, rows: Any) -> Any:
        """A batch; sorted, as storage prefers, for the order within a batch is of no effect."""
        column = self._table.take(np.sort(rows), columns=["data"]).column("data")
        parts = [part for chunk in column.chunks for part in _buffers(chunk)]
        return common.decode(parts) if self._task.images else common.join(parts)


def _buffers(chunk: Any) -> Iterator[Any]:
    data = memoryview(chunk.buffers()[2])
    ends = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    for begin, end in itertools.pairwise(ends):
        yield data[begin:end]


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    table = _Table(task)
    rng = np.random.default_rng(0)
    while True:
        yield _epoch(task, table, rng.permutation(table.rows))


def _epoch(task: common.Task, table: _Table, order: Any) -> Iterator[common.Batch]:
    threads = task.settings["threads"]
    ahead: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for begin in range(0, len(order), task.batch):
            ahead.append(pool.submit(table.take, order[begin : begin + task.batch]))
            if len(ahead) > 2 * threads:
                yield _batch(task, ahead.popleft().result())
        while ahead:
            yield _batch(task, ahead.popleft().result())


def _batch(task: common.Task, taken: Any) -> common.Batch:
    return common.image_batch(taken) if task.images else common.flat_batch(*taken)
