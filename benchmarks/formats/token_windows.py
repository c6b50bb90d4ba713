"""Windows of tokens that the page cache holds, beside a bare loop and torch's DataLoader.

    python benchmarks/formats/token_windows.py [--quick] [--data FOLDER]

A raw file of uint16 tokens; a sample is a window of 2,048 of them, 4 KB as stored, 16 KB as int64
in a batch. Beside a loader in `exact` and in `epoch`:

- the bare loop: two threads that each copy half of the windows of a batch out of a memory map and
  widen them, by NumPy, into memory that is used again;
- torch's DataLoader over a memory map, whose dataset makes a whole batch at a time
  (`__getitems__`), with 0, 1 and 2 workers; the best of these counts.

Each run is in a process of its own; rounds are interleaved, each with all runs in an order of its
own, and each ratio is of one round.

Discard rule, fixed beforehand: a round while which the host took more than 2 % of the processors,
or before which a page had left the page cache, is repeated, twice as often at most as asked for.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness
import numpy as np

import headrace as hr

_WINDOW = 2048
_BATCHES = (32, 256)
_ORDERS = ("exact", "epoch")
_WORKERS = (0, 1, 2)
_STEAL_MAX = 0.02
_GOAL = 0.8
# Windows that a thread copies together: they stay in its cache until they are widened.
_AT_ONCE = 16


def _load(path: Path, order: str, batch_size: int, seconds: float) -> dict[str, Any]:
    """From the second epoch on."""
    windows = 0
    row = hr.formats.Tokens(window=_WINDOW, dtype="uint16", targets=False)
    dataset = hr.open(path, format=row)
    with hr.Loader(dataset, batch_size, order=order, output="numpy") as loader:
        for (rows,) in loader:
            assert rows.dtype == np.int64
        begin = time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds:
            for (rows,) in loader:
                windows += len(rows)
                if time.perf_counter() - begin >= seconds:
                    break
    return {"windows_per_s": windows / elapsed}


def _bare(path: Path, batch_size: int, seconds: float) -> dict[str, Any]:
    table = np.memmap(path, np.uint16, "r").reshape(-1, _WINDOW)
    ids = np.random.default_rng(1).permutation(len(table))
    steps = len(ids) // batch_size
    out = np.empty((4, batch_size, _WINDOW), np.int64)
    narrow = np.empty((2, _AT_ONCE, _WINDOW), np.uint16)
    half = batch_size // 2

    def copy(thread: int, step: int) -> None:
        first = thread * half
        rows = ids[step * batch_size + first : step * batch_size + first + half]
        to = out[step % len(out), first : first + half]
        for begin in range(0, half, _AT_ONCE):
            part = rows[begin : begin + _AT_ONCE]
            np.take(table, part, axis=0, out=narrow[thread, : len(part)], mode="clip")
            np.copyto(to[begin : begin + _AT_ONCE], narrow[thread, : len(part)])

    windows = 0
    with ThreadPoolExecutor(1) as other:
        begin = time.perf_counter()
        step = 0
        passed = 0  # steps of the first epoch, which maps the pages, do not count
        while True:
            second = other.submit(copy, 1, step % steps)
            copy(0, step % steps)
            second.result()
            step += 1
            if step == steps:
                begin, passed = time.perf_counter(), step
            windows = (step - passed) * batch_size
            if passed and time.perf_counter() - begin >= seconds:
                break
        elapsed = time.perf_counter() - begin
    return {"windows_per_s": windows / elapsed}


class _Windows:
    """A dataset for torch's DataLoader."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = path.stat().st_size // (2 * _WINDOW)
        self._table: Any = None

    def __len__(self) -> int:
        return self._count

    def __getitems__(self, ids: list[int]) -> Any:
        import torch

        if self._table is None:
            self._table = np.memmap(self._path, np.uint16, "r").reshape(-1, _WINDOW)
        return torch.from_numpy(self._table[ids].astype(np.int64))

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]


def _torch(path: Path, workers: int, batch_size: int, seconds: float) -> dict[str, Any]:
    import torch.utils.data

    loader: Any = torch.utils.data.DataLoader(
        _Windows(path),  # type: ignore[arg-type]
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=lambda batch: batch,
    )
    windows = 0
    for _ in loader:
        pass
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        for rows in loader:
            windows += len(rows)
            if time.perf_counter() - begin >= seconds:
                break
    return {"windows_per_s": windows / elapsed}


def _run(what: str, path: Path, batch_size: int, seconds: float) -> float:
    if what == "bare":
        run = _harness.in_child(_bare, path, batch_size, seconds)
    elif what.startswith("torch"):
        run = _harness.in_child(_torch, path, int(what[-1]), batch_size, seconds)
    else:
        run = _harness.in_child(_load, path, what, batch_size, seconds)
    return float(run["windows_per_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--count", type=int, default=131_072, help="windows")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 s: to see it work")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else arguments.rounds
    seconds = 1.0 if arguments.quick else arguments.seconds
    path = _data.token_data(arguments.data, arguments.count * _WINDOW)
    runs = ["bare", *(f"torch {workers}" for workers in _WORKERS), *_ORDERS]
    kept: list[dict[str, dict[str, float]]] = []
    discarded = 0
    while len(kept) < rounds and discarded < 2 * rounds:
        _harness.make_warm([path])
        lacking = path.stat().st_size - _harness.resident_bytes([path])
        steal = _harness.steal_share()
        rates = {
            str(size): {
                what: _run(what, path, size, seconds) for what in random.sample(runs, len(runs))
            }
            for size in _BATCHES
        }
        keep = steal() <= _STEAL_MAX and lacking <= 0
        told = "; ".join(
            f"batches of {size}: "
            + ", ".join(f"{what} {rate / 1e3:.0f}" for what, rate in sorted(row.items()))
            for size, row in rates.items()
        )
        print(f"{'kept     ' if keep else 'discarded'} {told} thousand/s", flush=True)
        if keep:
            kept.append(rates)
        else:
            discarded += 1

    if not kept:
        raise SystemExit("every round was discarded: the machine is too busy to measure on")
    ratios: dict[str, tuple[float, float, float]] = {}
    for size in map(str, _BATCHES):
        for order in _ORDERS:
            bare = _harness.median_and_interval(
                [each[size][order] / each[size]["bare"] for each in kept]
            )
            best = [max(each[size][what] for what in runs if "torch" in what) for each in kept]
            torch = _harness.median_and_interval(
                [each[size][order] / rate for each, rate in zip(kept, best, strict=True)]
            )
            ratios[f"{order}/{size}/bare"], ratios[f"{order}/{size}/torch"] = bare, torch
            print(
                f"{order} at batches of {size}: {bare[0]:.2f} [{bare[1]:.2f}, {bare[2]:.2f}] of "
                f"the bare loop; goal {_GOAL}: {'holds' if bare[0] >= _GOAL else 'FALLS SHORT'}; "
                f"{torch[0]:.2f} [{torch[1]:.2f}, {torch[2]:.2f}] of torch's best; goal 1: "
                f"{'holds' if torch[0] >= 1 else 'FALLS SHORT'}"
            )
    _harness.record("token_windows", {"ratios": ratios, "discarded": discarded, "rounds": kept})


if __name__ == "__main__":
    main()
