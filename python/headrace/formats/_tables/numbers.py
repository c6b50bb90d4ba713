"""Numbers of a table that are larger than their field's type can hold, and become infinite."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

import numpy as np

from headrace.formats._tables.cells import Oddities
from headrace.formats._tables.row_piece import RowPiece

INFINITE, TOO_LARGE = "infinite", "too_large"
"""Kinds of findings: numbers that float64, and float32, cannot hold."""

_LIMITS = {"float32": (2 - 2**-24) * 2.0**127, "float64": float("inf")}
"""By type the first number that rounds to infinity."""
_DIGITS_MAX = {"float32": 38, "float64": 300}
"""By type what any of its numbers with a fraction can have without an exponent."""
_ENDS = frozenset("0123456789.")


def peak_of(numbers: Sequence[Any]) -> float:
    """The largest magnitude of numbers; 0 if there are none but NaN."""
    if not numbers:
        return 0.0
    return float(np.fmax.reduce(np.abs(np.array(numbers, np.float64)), initial=0.0))


def stays_finite(value: Any, dtype: str) -> bool:
    """Whether a value of `fill=`, a number or a list of them, stays finite in a field's type."""
    if not isinstance(value, (float, list)) or dtype not in _LIMITS:
        return True
    numbers = np.array(value, np.float64)
    return not too_large(numbers, dtype).any()


def too_large(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Which finite numbers become infinite in an array of this type."""
    large: np.ndarray[Any, Any] = np.isfinite(values) & (np.abs(values) >= _LIMITS[dtype])
    return large


def note_infinite(
    piece: RowPiece, name: str, values: list[Any], floats: str, peak: float, odd: Oddities
) -> None:
    """Notes the rows whose numbers became infinite in a field of this type.

    `peak`: the largest magnitude in the lists.
    """
    if piece.typed and piece.offsets is None:
        return  # Parquet has the numbers themselves, and the field is of their type.
    large = _large_values(values, floats, peak) if piece.typed else _large_cells(values, floats)
    for row, is_infinite in large:
        if piece.typed and is_infinite and not piece.as_written(row, name)[1]:
            continue  # The line has the word itself.
        place = piece.where(row).removeprefix("indexing ")
        odd.add(INFINITE if is_infinite else TOO_LARGE, f"column {name!r} at {place}", name)


def _large_values(values: list[Any], floats: str, peak: float) -> list[tuple[int, bool]]:
    """The rows that have one, and whether float64 cannot hold it either."""
    limit = _LIMITS[floats]
    large = [
        (row, isinf(value))
        for row, value in enumerate(values)
        if type(value) is float and abs(value) >= limit
    ]
    if peak >= limit:
        for row, value in enumerate(values):
            if type(value) is list:
                sizes = np.abs(np.array(_leaves(value), np.float64))
                finite = sizes[np.isfinite(sizes)]
                large += [(row, True)] * bool(np.isinf(sizes).any())
                large += [(row, False)] * bool((finite >= limit).any())
    return large


def _leaves(entries: list[Any]) -> list[Any]:
    while entries and type(entries[0]) is list:
        entries = [leaf for inner in entries for leaf in inner]
    return entries


def _large_cells(cells: list[str], floats: str) -> list[tuple[int, bool]]:
    text = "".join(cells)
    if "e" not in text and "E" not in text and max(map(len, cells)) < _DIGITS_MAX[floats]:
        return []  # Looking at each takes longer.
    numbers = ((row, float(x)) for row, x in enumerate(cells) if x[-1:] in _ENDS)
    return [(row, isinf(x)) for row, x in numbers if abs(x) >= _LIMITS[floats]]
