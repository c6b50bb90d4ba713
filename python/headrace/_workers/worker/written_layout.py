"""The fast path for results of the same layout as before, which is the usual case."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace._workers.results.rows import BFLOAT16, SCALARS, Columns, storage_dtype
from headrace._workers.results.tree import flat_parts
from headrace._workers.worker.protocol import rows_at


class WrittenLayout:
    """Writes results of one layout, and detects results of another.

    It checks all results at once, with functions in C; the slow path (`Columns`) checks each result
    and finds its fault.
    """

    def __init__(self, layout: bytes, columns: Columns) -> None:
        self.layout = layout
        self._columns_of = flat_parts(columns.skeleton)
        self._leaves = [
            (storage_dtype(column.dtype or "uint8"), column.shape or (), is_tensor)
            for column, is_tensor in zip(columns.columns, columns.are_tensors, strict=True)
        ]
        # NumPy treats bfloat16 as integers of the same size.
        self._usable = self._columns_of is not None and not any(
            column.is_object or column.dtype == BFLOAT16 for column in columns.columns
        )

    def write(self, results: Sequence[Any], places: Sequence[NDArray[np.uint8]]) -> bool:
        """Returns False if the slow path is needed; places may then be partly written."""
        if not self._usable or self._columns_of is None:
            return False
        parts = self._columns_of(results)
        if parts is None:
            return False
        rows = len(results)
        try:
            return all(
                _write(values, rows_at(place, dtype, (rows, *shape)), is_tensor)
                for values, place, (dtype, shape, is_tensor) in zip(
                    parts, places, self._leaves, strict=True
                )
            )
        except (TypeError, ValueError, OverflowError, RuntimeError):
            return False  # The slow path finds the reason.


def _write(values: Sequence[Any], out: NDArray[Any], is_tensor: bool | None) -> bool:
    """`is_tensor`: as in `Columns.are_tensors`."""
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return False
    kind = kinds.pop()
    torch = sys.modules.get("torch")
    are_tensors = torch is not None and kind is torch.Tensor
    if is_tensor is not None and are_tensors != is_tensor:
        return False
    if are_tensors:
        values = [value.numpy() for value in values]  # Raises for results that need the slow path.
    elif kind is not np.ndarray:
        expected = SCALARS.get(kind) or (kind if issubclass(kind, np.generic) else None)
        if out.ndim != 1 or expected is None or np.dtype(expected) != out.dtype:
            return False
        out[...] = values
        return True
    if out.ndim < 2 or out.shape[1] == 0 or set(map(len, values)) != {out.shape[1]}:
        return False
    # Refuses another dtype, and dimensions that differ beyond the first.
    np.concatenate(values, out=out.reshape(-1, *out.shape[2:]), casting="no")
    return True
