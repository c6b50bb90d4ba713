"""Where the samples of eight nodes come from, placement by placement: in the plan, no node runs.

    python benchmarks/nodes/placements.py [--quick] [--bench SHARES_BENCH]

Sweeps what the tiers of all nodes hold together, from half of the data to three copies of it, and
the batch of a node from 8 to 256. Writes the tables of docs/placements.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _harness
from _reports import node_shares

ROOT = Path(__file__).parents[2]
AGGREGATES = (0.5, 1.0, 1.05, 1.5, 2.0, 2.4, 3.0)
BATCHES = (8, 32, 128, 256)


def measured(bench: Path, *arguments: str) -> list[dict[str, Any]]:
    """What the executable prints, line by line."""
    done = subprocess.run([bench, *arguments], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = ROOT / "build" / "release" / "benchmarks" / "nodes" / "shares_bench"
    parser.add_argument("--bench", type=Path, default=default)
    parser.add_argument("--quick", action="store_true", help="a small one, which is not recorded")
    options = parser.parse_args()
    if options.quick:
        small = ("--samples", "800", "--epochs", "3", "--batch", "8", "--aggregate", "1.05,2.4")
        print(node_shares.text({"lines": measured(options.bench, *small)}))
        return
    sweep = ("--batch", ",".join(map(str, BATCHES)), "--aggregate", ",".join(map(str, AGGREGATES)))
    result = _harness.record("node_shares", {"lines": measured(options.bench, *sweep)})
    for what, holds in node_shares.verdicts(result):
        print("holds " if holds else "FAILS ", what)
    node_shares.write(result)


if __name__ == "__main__":
    main()
