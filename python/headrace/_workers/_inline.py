"""workers=0: Python transforms in the training loop's own process, one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace import _core
from headrace._observe.waits import LoopWaits
from headrace._workers._failures import make_transform_error, ragged_options
from headrace._workers._options import WorkerOptions
from headrace._workers._output import BatchConverter, Padded
from headrace._workers.results.rows import Column, Columns, ResultError, storage_dtype
from headrace._workers.results.tree import unflatten
from headrace._workers.samples.batch import BatchSamples
from headrace._workers.worker.main import Functions, cause_of, failure_text


class InlineBatch:
    """A batch whose samples are transformed."""

    def __init__(self, batch: _core.Batch, value: Any) -> None:
        self.epoch = batch.epoch
        self.step = batch.step
        self.ends_epoch = batch.ends_epoch
        self.beyond_budget = batch.beyond_budget
        self.value = value


class InlineCore:
    """Wraps a core loader and transforms its batches; `Loader` uses it as the core loader."""

    def __init__(
        self, core: _core.Loader, options: WorkerOptions, seed: int, output: BatchConverter
    ) -> None:
        self._core = core
        self._options = options
        self._functions = Functions(options.transform, options.collate_fn, None, options.decoded)
        self._output = output
        self._samples = BatchSamples(core.schema, options.decoded, seed)
        self._waits = LoopWaits()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def start(self, epoch: int, step: int) -> None:
        self._waits.begin()
        self._core.start(epoch, step)

    def start_list(self, ids: Any, batch_ends: Any, epoch: int, first_step: int) -> None:
        self._waits.begin()
        self._core.start_list(ids, batch_ends, epoch, first_step)

    def next(self) -> Any:
        """The next batch, transformed now."""
        return self._waits.take(self._next)

    def stats(self) -> dict[str, Any]:
        return {**self._core.stats(), "loop_share": self._waits.share() or 0.0}

    def _next(self) -> Any:
        batch = self._core.next()
        return None if batch is None else InlineBatch(batch, self._transform(batch))

    def _transform(self, batch: _core.Batch) -> Any:
        ids = batch.samples()
        samples = self._samples.samples(batch)
        results: list[Any] = []
        try:
            self._functions.apply(samples, results)
            if self._options.collate_fn is None:
                made = self._assemble(Columns.of_rows(results))
            else:
                made = self._whole(Columns.of_batch(self._options.collate_fn(results)))
        except (Exception, SystemExit) as error:  # As with workers: KeyboardInterrupt passes.
            # A sample's own error comes before its result; later errors are those of the batch.
            slot = len(results) if len(results) < len(ids) else 0
            if isinstance(error, ResultError):
                slot = error.row
            cause = cause_of(error)
            raise make_transform_error(
                failure_text(error),
                self._core,
                batch.epoch,
                batch.step,
                slot,
                int(ids[slot]),
                cause,
                whole=self._options.collate_fn is not None,
            ) from cause
        return self._output.with_ids(made, ids)

    def _assemble(self, columns: Columns) -> Any:
        def leaves() -> Iterator[Any]:
            for column in columns.columns:
                yield list(column.rows) if column.is_object else self._leaf(column, columns.rows)

        return unflatten(columns.skeleton, leaves())

    def _leaf(self, column: Column, rows: int) -> Any:
        name, dtype, ragged = column.dtype, storage_dtype(column.dtype), self._options.ragged
        if column.rank == 0 or ragged == "error":
            if column.shape is None:
                first = column.shapes[0]
                row = next(i for i, shape in enumerate(column.shapes) if shape != first)
                raise ResultError(
                    row,
                    f"its result is {name} {column.shapes[row]}, that of the first sample {name} "
                    f"{first}: {ragged_options()}",
                )
            out = np.empty((rows, *column.shape), dtype)
            column.write(out)
            return self._output.array(name, out)
        if ragged == "list":
            return [self._output.array(name, np.array(row, dtype)) for row in column.rows]
        shapes = np.array(column.shapes, np.int64)
        out = np.empty((rows, *shapes.max(axis=0)), dtype)
        column.write_padded(out)
        return Padded(self._output.array(name, out), self._output.array("int64", shapes))

    def _whole(self, columns: Columns) -> Any:
        leaves = (
            column.rows[0]
            if column.is_object
            else self._output.array(column.dtype, np.array(column.rows[0]))
            for column in columns.columns
        )
        return unflatten(columns.skeleton, iter(leaves))
