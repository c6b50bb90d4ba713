"""How much of the device's rate at its block size the `epoch` order delivers: raw bytes, cold.

    python benchmarks/epoch_read.py [--quick] [--data FOLDER]

Reads a pack of samples of about 100 KB in blocks of 1 MiB, past the page cache, without decoding.
Before and after each run the roofline program reads blocks of the same size, at random places of
the same files, into buffers such as the engine's; before that `exact` reads, which needs a read a
sample. On the device as it is and, where that is possible (root, cgroup v1), under limits of 400
and 200 MB/s with 1,500 reads/s.

The ratio is bytes of samples delivered to bytes that the roofline read in the same time. `epoch` is
measured from the end of its first epoch on: until then its pools fill, which reads more than it
delivers. `exact` is measured from its first batch on.

The dip at an epoch boundary is one minus the rate of the batches around it (a tenth of an epoch,
half before and half after) over that of all. It is measured of a consumer that takes batches at 0.9
of the rate just found, as one that computes does. One that only takes has no use for it: the last
pool of an epoch is in memory, so it gets those batches faster than storage reads, and waits for the
next epoch's as much longer.

Discard rule, fixed beforehand: as benchmarks/exact_read.py.

    python benchmarks/epoch_read.py --first-batch [--size MB] [--rounds N] [--cold]

How long a run's first batch takes with default parameters, from before the loader is made, and how
much memory; `exact` runs beside it. A folder and a pack, each run in a process of its own, orders
in turn; medians. Memory is the peak resident set after 8 batches, less that of the imports.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from statistics import median
from typing import Any

import _data
import _harness
from roofline.bound import Roofline

import headrace as hr

_BLOCK = 2**20
_DEPTH = 16
_GOAL = 0.95
_DIP_MAX = 0.05
_BOUND_SPREAD_MAX = 1.15
_STEAL_MAX = 0.02
_FIRST_LATER_MAX_S = 0.3
_FIRST_BATCHES = 8
_LIMIT_GOAL = 0.97
_SETTINGS = {
    "as it is": _harness.Throttle(),
    "400 MB/s, 1,500 reads/s": _harness.Throttle(400 * 10**6, 1500),
    "200 MB/s, 1,500 reads/s": _harness.Throttle(200 * 10**6, 1500),
}


def _read(
    throttle: _harness.Throttle,
    pack: Path,
    order: Any,
    batch_size: int,
    seconds: float,
    memory: str,
    pace: float | None = None,
) -> dict[str, Any]:
    """Reads batches for about so long, from where measuring begins."""
    throttle.join(pack)
    first = 0  # batch from which on time counts
    times: list[float] = []
    sizes: list[int] = []
    boundaries: list[int] = []
    begin = time.perf_counter()
    output = hr.Output("numpy", fields=["image"])
    with hr.Loader(pack, batch_size, output=output, order=order, memory=memory) as loader:
        while not times or times[-1] - times[first] < seconds:
            for (rows,) in loader:
                times.append(time.perf_counter())
                sizes.append(sum(row.nbytes for row in rows))
                if pace is not None:  # MB/s: what else the consumer does
                    due = times[0] + sum(sizes) / pace / 1e6
                    time.sleep(max(0.0, due - time.perf_counter()))
                may_end = first > 0 or order != "epoch"
                if may_end and times[-1] - times[first] >= seconds:
                    break
            else:
                boundaries.append(len(times))
                if first == 0 and order == "epoch":
                    first = len(times) - 1
        stats = loader.stats()
        around = len(loader) // 10
    elapsed = times[-1] - times[first]
    rate = sum(sizes[first + 1 :]) / elapsed / 1e6
    dips = []
    for boundary in boundaries:
        low, high = boundary - around // 2, boundary + around // 2
        if low >= 1 and high < len(times):
            dips.append(
                1 - sum(sizes[low + 1 : high + 1]) / (times[high] - times[low]) / 1e6 / rate
            )
    return {
        "MB_per_s": rate,
        "first_batch_s": times[0] - begin,
        "batches": len(times),
        "epochs_ended": len(boundaries),
        "dips": dips,
        "bytes": stats["bytes"],
        "io": stats["io"],
    }


def _bound(throttle: _harness.Throttle, files: list[Path], seconds: float) -> dict[str, Any]:
    throttle.join(files[0])
    return {"MB_per_s": Roofline(files, _BLOCK).run(_DEPTH, seconds)}


def _measure(
    name: str, data: _data.BenchData, arguments: argparse.Namespace
) -> dict[str, Any] | None:
    throttle = _SETTINGS[name]
    files = data.files(data.pack)
    shards = [path for path in files if path.suffix == ".arrow"]

    def read(order: str, seconds: float, pace: float | None = None) -> dict[str, Any]:
        _harness.make_cold(files)
        found: dict[str, Any] = _harness.in_child(
            _read, throttle, data.pack, order, arguments.batch_size, seconds, arguments.memory,
            pace,
        )  # fmt: skip
        return found

    kept: list[dict[str, Any]] = []
    discarded = 0
    while len(kept) < arguments.pairs and discarded < 2 * arguments.pairs:
        exact = read("exact", arguments.seconds / 2)["MB_per_s"]
        before = _harness.in_child(_bound, throttle, shards, 2.0)["MB_per_s"]
        steal = _harness.steal_share()
        run = read("epoch", arguments.seconds)
        run["exact_MB_per_s"] = exact
        run["steal"] = steal()
        after = _harness.in_child(_bound, throttle, shards, 2.0)["MB_per_s"]
        run["roofline_MB_per_s"] = (before, after)
        run["ratio"] = run["MB_per_s"] / ((before + after) / 2)
        spread = max(before, after) / min(before, after)
        keep = spread <= _BOUND_SPREAD_MAX and run["steal"] <= _STEAL_MAX
        print(
            f"{'kept     ' if keep else 'discarded'} {name}: epoch {run['MB_per_s']:7.1f} MB/s, "
            f"roofline {before:7.1f} and {after:7.1f}: ratio {run['ratio']:.3f}; "
            f"exact {run['exact_MB_per_s']:7.1f}; first batch {run['first_batch_s']:.2f} s, "
            f"steal {run['steal']:.1%}",
            flush=True,
        )
        if keep:
            kept.append(run)
        else:
            discarded += 1
    if not kept:
        print(f"{name}: every pair was discarded: the machine is too busy to measure on")
        return None
    ratio, low, high = _harness.median_and_interval([run["ratio"] for run in kept])
    rate = sorted(run["MB_per_s"] for run in kept)[len(kept) // 2]
    paced = read("epoch", 2 * arguments.seconds, 0.9 * rate)
    beside, beside_low, beside_high = _harness.median_and_interval(
        [run["MB_per_s"] / run["exact_MB_per_s"] for run in kept]
    )
    dips = sorted(paced["dips"])
    dip = dips[len(dips) // 2] if dips else None
    print(
        f"\nepoch, {name}, raw bytes, cold: {ratio:.3f} of the roofline [{low:.3f}, {high:.3f}], "
        f"{beside:.2f} of exact [{beside_low:.2f}, {beside_high:.2f}] "
        f"({len(kept)} pairs, {discarded} discarded)"
        + (f"; dip at an epoch boundary {dip:+.1%} (median of {len(dips)}, " if dips else "")
        + (f"a consumer of {paced['MB_per_s']:.0f} MB/s)" if dips else "")
    )
    result = {
        "order": "epoch", "device": name, "ratio": ratio, "interval": (low, high),
        "of_exact": (beside, beside_low, beside_high),
        "pairs": len(kept), "discarded": discarded, "dip_median": dip, "dips": dips, "paced": paced,
        "batch_size": arguments.batch_size, "memory": arguments.memory, "runs": kept,
    }  # fmt: skip
    _harness.record("epoch_read", result)
    return result


def _first(dataset: Path, order: str, batch_size: int) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    output = hr.Output("numpy", fields=["image"])
    with hr.Loader(dataset, batch_size, order=order, output=output) as loader:
        batches = iter(loader)
        next(batches)
        seconds = time.perf_counter() - begin
        for _ in range(_FIRST_BATCHES - 1):
            next(batches)
        parameters = loader.state_dict()["order_parameters"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "MB": (peak - before) * 1024 / 1e6, "parameters": parameters}


def _measure_first(data: _data.BenchData, arguments: argparse.Namespace) -> None:
    for dataset in (data.folder, data.pack):
        hr.open(dataset)  # Its index is made once.
        runs: dict[str, list[dict[str, Any]]] = {"exact": [], "epoch": []}
        for _ in range(arguments.rounds):
            for order, kept in runs.items():
                if arguments.cold:
                    _harness.make_cold(data.files(dataset))
                kept.append(_harness.in_child(_first, dataset, order, arguments.batch_size))
        for order, kept in runs.items():
            times = sorted(run["seconds"] for run in kept)
            print(
                f"{dataset.name}, {order}: first batch {median(times):.2f} s ({times[0]:.2f} to "
                f"{times[-1]:.2f}), peak {median(run['MB'] for run in kept):.0f} MB, "
                f"{kept[0]['parameters']}"
            )
        of = {order: median(run["seconds"] for run in kept) for order, kept in runs.items()}
        later = of["epoch"] - of["exact"]
        verdict = "holds" if later <= _FIRST_LATER_MAX_S else "FALLS SHORT"
        print(f"{dataset.name}: {later:+.2f} s: {verdict}")
        _harness.record("first_batch", {"dataset": dataset.name, "runs": runs})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--size", type=int, default=2500, help="MB of samples")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--memory", default="768MiB")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run of the loader")
    parser.add_argument("--quick", action="store_true", help="2 pairs of 4 s: to see that it works")
    parser.add_argument("--first-batch", action="store_true", help="measure that, and no more")
    parser.add_argument("--rounds", type=int, default=7, help="of --first-batch")
    parser.add_argument("--cold", action="store_true", help="with --first-batch: no page cache")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.pairs, arguments.seconds = 2, 4.0
    data = _data.raw_data(arguments.data, arguments.size * 10**6)
    if arguments.first_batch:
        _measure_first(data, arguments)
        return

    verdicts = []
    for name, throttle in _SETTINGS.items():
        if throttle != _harness.Throttle() and not _harness.can_throttle():
            print(f"skipped: {name}: needs root and cgroup v1 with the blkio controller")
            continue
        result = _measure(name, data, arguments)
        if result is None:
            verdicts.append((f"{name}: not measured", False, None))
            continue
        goal = _GOAL if throttle == _harness.Throttle() else _LIMIT_GOAL
        verdicts.append((name, result["ratio"] >= goal, result["ratio"]))
        verdicts.append((f"{name}: of exact", result["of_exact"][0] >= 1, result["of_exact"][0]))
        if result["dip_median"] is not None:
            verdicts.append((f"{name}: boundary", result["dip_median"] <= _DIP_MAX, None))
    for name, holds, ratio in verdicts:
        print(
            f"{name}: {'holds' if holds else 'FALLS SHORT'}" + (f" ({ratio:.3f})" if ratio else "")
        )


if __name__ == "__main__":
    main()
