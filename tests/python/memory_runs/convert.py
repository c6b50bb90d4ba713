"""Indexes a dataset, or packs it; prints how much anonymous memory this process had more meanwhile.

    python convert.py index|pack SOURCE TARGET

Pages of mapped files are left out: nobody has to keep them.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow.compute
import pyarrow.parquet

import headrace as hr
from headrace.pack import write_pack

assert pyarrow.compute is not None  # What is imported was there before.
assert pyarrow.parquet is not None


def memory() -> int:
    """Anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(each.split()[1]) for each in lines if each.startswith("RssAnon:"))


def main(what: str, source: str, target: str) -> None:
    before = peak = memory()
    ended = threading.Event()

    def look() -> None:
        nonlocal peak
        while not ended.wait(0.002):
            peak = max(peak, memory())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        dataset = hr.open(source, index=f"{target}.hri")
        if what == "pack":
            write_pack(dataset, target)
    finally:
        ended.set()
        looking.join()
    print(peak - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
