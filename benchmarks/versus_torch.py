"""Headrace against torch's DataLoader at its best worker count, in pairs.

    python benchmarks/versus_torch.py [--quick] [--data FOLDER] [--only TEXT]

Eight cases: raw bytes, and JPEG decode with random resized crop to 224; from a folder of files, and
from a pack of them; with a cold page cache, and with a warm one. Both loaders get the same sample
numbers in the same order through `sampler=`, and run as long as it takes to warm up (start of
worker processes included) before an epoch is timed: of a third of the samples, as if the rest did
not fit into memory. torch's workers, and the way it reads packs,
are swept first and its best is taken.

Pairs alternate: torch, Headrace, Headrace, torch, ... Each run is a process of its own. The ratio
is torch's time to Headrace's: above 1 Headrace is faster. A control compares Headrace with itself.

Discard rule, fixed beforehand: a pair while which the host took more than 2 % of the processors is
repeated, twice as often at most as pairs are asked for.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _data
import _harness
import torch
from _torch_side import IMAGE_SIZE, Order, make_loader
from rich.console import Console
from rich.table import Table

import headrace as hr

_STEAL_MAX = 0.02
_WARM_SECONDS_MIN = 1.5  # warm epochs are repeated for so long
_INTERVAL_MIN = 0.98

_WORKERS = (0, 1, 2, 4)


@dataclass(frozen=True)
class Case:
    """What both loaders are asked to do."""

    images: bool
    pack: bool
    cold: bool
    path: Path
    files: list[Path]
    batch_size: int
    warm_up: list[int]  # sample numbers; of a cold run one alone, so that the cache stays cold
    timed: list[int]

    @property
    def name(self) -> str:
        return " ".join(
            (
                "decode" if self.images else "raw",
                "pack" if self.pack else "folder",
                "cold" if self.cold else "warm",
            )
        )


@dataclass(frozen=True)
class Rival:
    """A way to run torch."""

    reader: str
    workers: int


def _timed_epochs(case: Case, loader: Any, order: Order) -> dict[str, Any]:
    """Seconds of an epoch; from a warm cache the mean of several."""
    for _ in loader:
        pass
    order.ids = case.timed
    epochs, samples = 0, 0
    begin = time.perf_counter()
    while True:
        for batch in loader:
            samples += len(batch[-1])
            del batch
        epochs += 1
        elapsed = time.perf_counter() - begin
        if case.cold or elapsed >= _WARM_SECONDS_MIN:
            break
    if samples != epochs * len(case.timed):
        raise RuntimeError(f"{samples} samples came, {epochs * len(case.timed)} were due")
    return {"seconds": elapsed / epochs}


def _run_torch(case: Case, rival: Rival) -> dict[str, Any]:
    torch.set_num_threads(1)
    order = Order(case.warm_up)
    loader = make_loader(
        rival.reader, case.path, case.images, case.batch_size, order, rival.workers
    )
    return _timed_epochs(case, loader, order)


def _run_headrace(case: Case) -> dict[str, Any]:
    order = Order(case.warm_up)
    transform = hr.image.train(IMAGE_SIZE, mean=None, std=None, dtype="uint8", layout="NHWC")
    with hr.Loader(
        case.path, case.batch_size, sampler=order, transform=transform if case.images else None
    ) as loader:
        return _timed_epochs(case, loader, order)


def _run(case: Case, rival: Rival | None) -> dict[str, Any]:
    if case.cold:
        _harness.make_cold(case.files)
    if rival is None:
        return _harness.in_child(_run_headrace, case)
    return _harness.in_child(_run_torch, case, rival)


def _best_rival(case: Case) -> tuple[Rival, dict[str, float]]:
    readers = ("pread", "arrow") if case.pack else ("files",)
    rivals = [Rival(reader, workers) for reader in readers for workers in _WORKERS]
    seconds = {rival: _run(case, rival)["seconds"] for rival in rivals}
    sweep = {f"{rival.reader} {rival.workers}": seconds[rival] for rival in rivals}
    return min(rivals, key=lambda rival: seconds[rival]), sweep


def _compare(case: Case, first: Rival | None, second: Rival | None, pairs: int) -> dict[str, Any]:
    """Ratios of `first`'s time to `second`'s, in alternating order; None is Headrace."""
    ratios: list[float] = []
    runs: list[dict[str, Any]] = []
    discarded = 0
    while len(ratios) < pairs and discarded < 2 * pairs:
        steal = _harness.steal_share()
        swapped = (len(ratios) + discarded) % 2 == 1
        if swapped:
            b, a = _run(case, second), _run(case, first)
        else:
            a, b = _run(case, first), _run(case, second)
        if steal() > _STEAL_MAX:
            discarded += 1
            continue
        ratios.append(a["seconds"] / b["seconds"])
        runs.append({"first": a, "second": b})
    if not ratios:
        raise SystemExit("every pair was discarded: the machine is too busy to measure on")
    ratio, low, high = _harness.median_and_interval(ratios)
    return {
        "case": case.name,
        "ratio": ratio,
        "interval": (low, high),
        "ratios": ratios,
        "discarded": discarded,
        "samples": len(case.timed),
        "runs": runs,
    }


def _cases(root: Path, raw_bytes: int, images: int) -> list[Case]:
    raw = _data.raw_data(root, raw_bytes)
    decoded = _data.image_data(root, 300 * 10**6)
    cases = []
    for data, is_images, batch_size, timed in (
        (raw, False, 256, len(list(raw.folder.rglob("*.jpg"))) // 3),
        (decoded, True, 64, images),
    ):
        ids = list(range(len(list(data.folder.rglob("*.jpg")))))
        random.Random(0).shuffle(ids)
        warm_up = ids[: 8 * batch_size // (4 if is_images else 1)]
        for path, is_pack in ((data.folder, False), (data.source_pack, True)):
            files = data.files(path)
            for cold in (True, False):
                first = ids[:1] * len(warm_up) if cold else warm_up
                rest = ids[len(warm_up) :][:timed]
                cases.append(Case(is_images, is_pack, cold, path, files, batch_size, first, rest))
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--size", type=int, default=2500, help="MB of raw samples")
    parser.add_argument("--images", type=int, default=1024, help="decoded in an epoch")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--no-control", action="store_true")
    parser.add_argument("--quick", action="store_true", help="3 pairs: to see that it works")
    arguments = parser.parse_args()
    pairs = 3 if arguments.quick else arguments.pairs

    # Four workers on two cores are in the sweep on purpose.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    results = []
    controlled = arguments.no_control
    for case in _cases(arguments.data, arguments.size * 10**6, arguments.images):
        if arguments.only not in case.name:
            continue
        if not case.cold:
            _harness.make_warm(case.files)
        rival, sweep = _best_rival(case)
        result = _compare(case, rival, None, pairs)
        result |= {"rival": f"{rival.reader}, {rival.workers} workers", "sweep": sweep}
        results.append(result)
        _print_progress(result)
        if not controlled:
            controlled = True
            control = _compare(case, None, None, pairs)
            control["case"] += " (control: Headrace against itself)"
            results.append(control)
            _print_progress(control)
    _print_table(results)
    _harness.record("versus_torch", {"goal": _INTERVAL_MIN, "cases": results})


def _print_progress(result: dict[str, Any]) -> None:
    low, high = result["interval"]
    print(
        f"{result['case']}: {result['ratio']:.3f} [{low:.3f}, {high:.3f}] "
        f"{result.get('rival', '')}",
        flush=True,
    )


def _print_table(results: list[dict[str, Any]]) -> None:
    table = Table("case", "torch at its best", "torch", "Headrace", "ratio", "95 %", "")
    for result in results:
        low, high = result["interval"]
        rates = [
            result["samples"] / min(run[side]["seconds"] for run in result["runs"])
            for side in ("first", "second")
        ]
        table.add_row(
            result["case"],
            result.get("rival", ""),
            *(f"{rate:,.0f}/s" for rate in rates),
            f"{result['ratio']:.3f}",
            f"[{low:.3f}, {high:.3f}]",
            "" if "rival" not in result else "holds" if low >= _INTERVAL_MIN else "FALLS SHORT",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
