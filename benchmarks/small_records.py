"""Small records that the page cache holds, beside NumPy's take from a memory map.

    python benchmarks/small_records.py [--quick] [--data FOLDER]

Records of 4 KB. A loader reads their pack in `exact` and in `epoch`, with checksums; NumPy takes
batches of a random permutation out of a memory map of the same bytes, on one thread and without a
checksum: that blocks the loop which trains. Each run is in a process of its own; rounds are
interleaved, each with all runs in an order of its own, and each run beside the NumPy of its round.

Discard rule, fixed beforehand: a round while which the host took more than 2 % of the processors,
or before which a page had left the page cache, is repeated, twice as often at most as asked for.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

import _data
import _harness
import numpy as np

import headrace as hr

_RECORD_BYTES = 4096
_BATCHES = (256, 4096)
_ORDERS = ("exact", "epoch")
_STEAL_MAX = 0.02


def _load(pack: Path, order: str, batch_size: int, seconds: float) -> dict[str, Any]:
    """From the second epoch on: then nothing is made that is made once."""
    records = 0
    output = hr.Output("numpy", fields=["record"])
    with hr.Loader(pack, batch_size, order=order, output=output) as loader:
        for (rows,) in loader:
            assert rows.shape[1] == _RECORD_BYTES
        begin = time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds:
            for (rows,) in loader:
                records += len(rows)
                if time.perf_counter() - begin >= seconds:
                    break
        stats = loader.stats()
    return {"records_per_s": records / elapsed, "blocks": stats["io"]["blocks"]}


def _take(path: Path, batch_size: int, seconds: float) -> dict[str, Any]:
    """The same by NumPy: an epoch to map the pages, then for so long."""
    table = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD_BYTES)
    ids = np.random.default_rng(1).permutation(len(table))
    steps = len(ids) // batch_size
    for step in range(steps):
        np.take(table, ids[step * batch_size : (step + 1) * batch_size], axis=0)
    records = 0
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        step = records // batch_size % steps
        np.take(table, ids[step * batch_size : (step + 1) * batch_size], axis=0)
        records += batch_size
    return {"records_per_s": records / elapsed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--count", type=int, default=262_144, help="records")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s: to see it work")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else arguments.rounds
    seconds = 1.0 if arguments.quick else arguments.seconds

    records, pack = _data.record_data(arguments.data, arguments.count, _RECORD_BYTES)
    files = [records, *sorted(pack.iterdir())]
    kept: list[dict[str, dict[str, float]]] = []
    discarded = 0
    while len(kept) < rounds and discarded < 2 * rounds:
        _harness.make_warm(files)
        lacking = sum(path.stat().st_size for path in files) - _harness.resident_bytes(files)
        steal = _harness.steal_share()
        rates: dict[str, dict[str, float]] = {}
        for batch_size in _BATCHES:
            row: dict[str, float] = {}
            for what in random.sample(["take", *_ORDERS], len(_ORDERS) + 1):
                if what == "take":
                    run = _harness.in_child(_take, records, batch_size, seconds)
                else:
                    run = _harness.in_child(_load, pack, what, batch_size, seconds)
                row[what] = run["records_per_s"]
            rates[str(batch_size)] = row
        keep = steal() <= _STEAL_MAX and lacking <= 0
        told = "; ".join(
            f"batches of {size}: "
            + ", ".join(f"{what} {rate / 1e6:.2f}" for what, rate in sorted(row.items()))
            for size, row in rates.items()
        )
        print(f"{'kept     ' if keep else 'discarded'} {told} million/s", flush=True)
        if keep:
            kept.append(rates)
        else:
            discarded += 1

    if not kept:
        raise SystemExit("every round was discarded: the machine is too busy to measure on")
    ratios: dict[str, tuple[float, float, float]] = {}
    for size in map(str, _BATCHES):
        for order in _ORDERS:
            ratio = _harness.median_and_interval(
                [each[size][order] / each[size]["take"] for each in kept]
            )
            ratios[f"{order}/{size}"] = ratio
            verdict = "holds" if ratio[0] >= 1.0 else "FALLS SHORT"
            print(
                f"{order} at batches of {size}: {ratio[0]:.2f} of NumPy's take "
                f"[{ratio[1]:.2f}, {ratio[2]:.2f}]; goal 1.00: {verdict}"
            )
    _harness.record("small_records", {"ratios": ratios, "discarded": discarded, "rounds": kept})


if __name__ == "__main__":
    main()
