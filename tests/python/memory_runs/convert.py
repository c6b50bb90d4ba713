"""Indexes a dataset, or packs it; prints the peak of this process's memory above that before.

python convert.py index|pack SOURCE TARGET
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet

import headrace as hr
from headrace.formats.pack import PackParameters, write_pack


def memory(name: str) -> int:
    """A line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(each.split()[1]) for each in lines if each.startswith(f"{name}:"))


def main(what: str, source: str, target: str) -> None:
    assert np is not None
    assert pyarrow.parquet is not None  # What is imported counts as there before.
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins here.
    before = memory("VmRSS")
    dataset = hr.open(source, index=f"{target}.hri")
    if what == "pack":
        write_pack(dataset, target, PackParameters())
    print(memory("VmHWM") - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
