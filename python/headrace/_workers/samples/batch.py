"""The samples of a batch of the core, in the process that takes it from the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace import _core
from headrace._dataset.decoding import decoded_columns
from headrace._workers.samples.sample import Origin, Sample, make_samples, sample_type
from headrace.errors import DataLossError
from headrace.formats._files.nested import Nesting, RowError


class BatchSamples:
    """Makes samples from batches of a core loader.

    Thread safety: any thread.
    """

    def __init__(self, schema: Sequence[Sequence[Any]], decoded: Iterable[str], seed: int) -> None:
        """`schema`: of the core loader. `decoded`: the fields whose images are decoded."""
        self._stored = len(schema)
        self._nesting = Nesting([field[0] for field in schema])
        self._kind = sample_type(self._nesting.names)
        wanted = set(decoded)
        self._decoded = [at for at, name in enumerate(self.names) if name in wanted]
        self._seed = seed

    @property
    def names(self) -> Sequence[str]:
        """Of the fields that samples have."""
        return self._nesting.names

    def columns(self, batch: _core.Batch) -> list[Sequence[Any]]:
        """The rows of each field, as samples have them: views of the batch's memory.

        Raises DataLossError: names the sample whose nested field cannot be put together.
        """
        stored = [_rows(batch.field(at)) for at in range(self._stored)]
        try:
            return self._nesting.joined(stored)
        except RowError as error:
            raise DataLossError(f"sample {batch.samples()[error.row]}: {error}") from None

    def samples(self, batch: _core.Batch) -> Iterator[Sample]:
        """What a transform gets; an image is decoded when its sample is taken.

        Raises: as `columns`.
        """
        columns = decoded_columns(self.columns(batch), self._decoded)
        origin = Origin(self._seed, batch.epoch)
        return make_samples(self._kind, columns, batch.samples().tolist(), origin)


def _rows(view: Any) -> Sequence[Any]:
    """The rows of a field, whose samples differ in length if it is a list."""
    if isinstance(view, list):
        return [row if isinstance(row, str) else np.asarray(row) for row in view]
    rows: Sequence[Any] = np.asarray(view)  # type: ignore[assignment]
    return rows
