"""What is true of a dataset with an oddity."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]

ODDITIES = (
    *("nulls", "splits", "links", "names", "zero samples", "one sample", "files beside"),
    *("nested folders", "headers", "NaN and infinities", "aliases"),
)


@dataclass(frozen=True)
class Case:
    """A dataset, and what is true of it."""

    name: str
    path: Any
    """What is opened: a path, text or a list."""
    rows: Rows | None
    """None: it is refused."""
    names: Sequence[object] = ()
    """What the refusal, or the warning, names."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of `hr.open`."""
    warns: bool = False


NUMBERS = np.arange(1, 6)
"""The samples of most cases."""

ODD_NAMES = (
    *("日本 ü", "a b#c%20d", "it's {1} [x]", "back\\slash", "line\nfeed", "é"),
    os.fsdecode(b"\xff\xfe"),
)
"""The last is no text in UTF-8."""

FLOATS = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.5])
FLOATS = np.concatenate([FLOATS, np.array([0x7FF8_0000_0000_0123], "<u8").view("<f8")])
"""The last is a NaN with bits of its own."""

Cell = Callable[[str, Path], Iterator[Case]]

CELLS: dict[tuple[str, str], list[Cell]] = {}
"""By format and oddity what writes the datasets, one after the other, into a folder of its own."""


def cell(*formats: str, oddity: str) -> Callable[[Cell], Cell]:
    def register(write: Cell) -> Cell:
        for format in formats:
            CELLS.setdefault((format, oddity), []).append(write)
        return write

    return register
