"""The bound of other benchmarks: what storage and memory give to the engine's own buffers.

Runs `roofline_bench`; its first comment explains what it measures and how. One reading takes a
second or less, so a benchmark takes one before and after each of its own runs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[2] / "build/release/benchmarks/roofline/roofline_bench"


def measure(files: Sequence[Path], *options: str) -> dict[str, Any]:
    """What the program reports. Raises RuntimeError if a cell could not be measured."""
    if not PROGRAM.exists():
        raise SystemExit(
            f"{PROGRAM} is not there: "
            "cmake --preset release && cmake --build --preset release --target roofline_bench"
        )
    command = [PROGRAM, *files, *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"roofline_bench failed: {done.stderr}{done.stdout}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reading(files: Sequence[Path], seconds: float, *options: str) -> list[dict[str, Any]]:
    """The rows of one reading of each cell, for a benchmark that has rounds of its own."""
    rows: list[dict[str, Any]] = measure(
        files, "--seconds", str(seconds), "--rounds", "1", *options
    )["rows"]
    return rows


@dataclass(frozen=True)
class Roofline:
    """Reads of the given files past the page cache, by a bare io_uring with the engine's buffers.

    Each removes the files from the page cache. Sizes are multiples of 4096 bytes.
    """

    files: Sequence[Path]
    block_bytes: int

    def run(self, depth: int, seconds: float) -> float:
        """MB/s of random reads at this queue depth."""
        return self._rates("random", [depth], seconds)[depth]

    def run_sequential(self, depth: int, seconds: float) -> float:
        """MB/s of reading the files one after the other, over and over."""
        return self._rates("sequential", [depth], seconds)[depth]

    def best_depth(self, depths: Sequence[int], seconds: float) -> tuple[int, dict[int, float]]:
        """The depth of the highest rate of random reads, and the rate of each."""
        rates = self._rates("random", depths, seconds)
        return max(rates, key=lambda depth: rates[depth]), rates

    def _rates(self, pattern: str, depths: Sequence[int], seconds: float) -> dict[int, float]:
        rows = reading(
            self.files, seconds, "--cold", "--method", "ring", "--pattern", pattern,
            "--block", str(self.block_bytes), "--depth", ",".join(map(str, depths)),
        )  # fmt: skip
        return {row["depth"]: float(row["cells"]["ring"]["MB_per_s"]) for row in rows}
