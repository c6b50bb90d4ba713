"""How much of the device's random-read rate a loader delivers: exact order, raw bytes, cold.

    python benchmarks/exact_read.py [--records] [--quick] [--data FOLDER]

Reads a pack of samples of about 100 KB, or of records of 4 KB, in a random order. Before and after
each run the roofline program reads the same files at random: 96 KiB or 4 KiB at a time, past the
page cache, into buffers such as the engine's, at the queue depth that gave it most. The ratio is
bytes of samples delivered to bytes that it read, in the same time: what alignment makes the loader
read besides counts against it.

Discard rule, fixed beforehand: a pair whose rooflines differ by more than 15 %, or while which the
host took more than 2 % of the processors, says nothing; it is repeated, twice as often at most as
pairs are asked for.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import _data
import _harness
from roofline.bound import Roofline

import headrace as hr

_DEPTHS = (8, 16, 32, 64)
_GOAL = 0.90
_RECORDS = 262_144
_RECORD_BYTES = 4096
_RECORDS_GOAL = 0.95
_BOUND_SPREAD_MAX = 1.15
_STEAL_MAX = 0.02


def _read(pack: Path, field: str, batch_size: int, seconds: float) -> dict[str, Any]:
    """Reads batches for about so long."""
    samples, size, waits = 0, 0, []
    with hr.Loader(pack, batch_size, output=hr.Output("numpy", fields=[field])) as loader:
        begin = before = time.perf_counter()
        first = None
        while before - begin < seconds:
            for (rows,) in loader:
                now = time.perf_counter()
                first = first or now - begin
                waits.append(now - before)
                samples += len(rows)
                size += sum(row.nbytes for row in rows)
                before = now
                if now - begin >= seconds:
                    break
        elapsed = time.perf_counter() - begin
        stats = loader._core.stats()
    waits.sort()
    return {
        "MB_per_s": size / elapsed / 1e6,
        "batches": len(waits),
        "samples_per_s": samples / elapsed,
        "first_batch_s": first,
        "wait_p50_ms": waits[len(waits) // 2] * 1e3,
        "wait_p99_ms": waits[len(waits) * 99 // 100] * 1e3,
        "store": stats["store"]["name"],
        "page_cache_bytes": stats["store"]["bytes_page_cache"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--size", type=int, default=2500, help="MB of samples")
    parser.add_argument("--records", action="store_true", help="1 GB of records of 4 KB instead")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run of the loader")
    parser.add_argument("--quick", action="store_true", help="3 pairs of 2 s: to see that it works")
    arguments = parser.parse_args()
    pairs = 3 if arguments.quick else arguments.pairs
    seconds = 2.0 if arguments.quick else arguments.seconds

    if arguments.records:
        _, pack = _data.record_data(arguments.data, _RECORDS, _RECORD_BYTES)
        files, field, block, goal = sorted(pack.iterdir()), "record", _RECORD_BYTES, _RECORDS_GOAL
    else:
        data = _data.raw_data(arguments.data, arguments.size * 10**6)
        pack, files, field, goal = data.pack, data.files(data.pack), "image", _GOAL
        block = _data.MEAN_BYTES // 4096 * 4096
    shards = [path for path in files if path.suffix == ".arrow"]
    roofline = Roofline(shards, block)
    depth, sweep = roofline.best_depth(_DEPTHS, 2.0)

    kept: list[dict[str, Any]] = []
    discarded = 0
    before = roofline.run(depth, 2.0)
    while len(kept) < pairs and discarded < 2 * pairs:
        _harness.make_cold(files)
        steal = _harness.steal_share()
        run = _harness.in_child(_read, pack, field, arguments.batch_size, seconds)
        run["steal"] = steal()
        run["resident_after"] = _harness.resident_bytes(shards)
        after = roofline.run(depth, 2.0)
        run["roofline_MB_per_s"] = (before, after)
        run["ratio"] = run["MB_per_s"] / ((before + after) / 2)
        spread = max(before, after) / min(before, after)
        keep = spread <= _BOUND_SPREAD_MAX and run["steal"] <= _STEAL_MAX
        print(
            f"{'kept     ' if keep else 'discarded'} loader {run['MB_per_s']:7.1f} MB/s, "
            f"roofline {before:7.1f} and {after:7.1f}: ratio {run['ratio']:.3f}, "
            f"CPU {run['cpu_s'] / (run['MB_per_s'] * seconds / 1e3):.2f} s/GB, "
            f"first batch {run['first_batch_s'] * 1e3:.0f} ms, "
            f"steal {run['steal']:.1%}, resident {run['resident_after'] / 1e6:.1f} MB",
            flush=True,
        )
        if keep:
            kept.append(run)
        else:
            discarded += 1
        before = after

    if not kept:
        raise SystemExit("every pair was discarded: the machine is too busy to measure on")
    ratio, low, high = _harness.median_and_interval([run["ratio"] for run in kept])
    verdict = "holds" if ratio >= goal else "FALLS SHORT"
    print(
        f"\nexact order, blocks of {block} bytes, cold: {ratio:.3f} of the roofline "
        f"[{low:.3f}, {high:.3f}] ({len(kept)} pairs, {discarded} discarded; roofline at depth "
        f"{depth}); goal {goal:.2f}: {verdict}"
    )
    _harness.record(
        "exact_read",
        {
            "ratio": ratio,
            "interval": (low, high),
            "goal": goal,
            "block_bytes": block,
            "discarded": discarded,
            "roofline_depth": depth,
            "roofline_sweep": sweep,
            "pairs": kept,
        },
    )


if __name__ == "__main__":
    main()
