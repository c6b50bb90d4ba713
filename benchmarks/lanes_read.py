"""Ranks of one node on slow storage, one with four times the bytes, by each policy.

    python benchmarks/lanes_read.py [--bench build/release/benchmarks/lanes_bench] [--rounds N]

Four ranks take batches of 16 samples of 100 KB, raw bytes, the second of them samples of 400 KB.
When the last rank has its batch, all train. Writes the tables of docs/schedule.md, for storage that
is slow in two ways:

- `throttled`: the device is limited to 200 MB/s, with which a global batch takes 56 ms; a step of
  training takes 60 ms. Needs root, and cgroup v1 with the blkio controller.
- `afar`: each sample comes at 1 MB/s, however many are read at a time, so that a large one takes
  0.4 s (`_slow_files`). With 64 reads in flight a global batch takes 175 ms; a step of training
  takes 200 ms. Needs root, nbdkit with its Python plugin, and nbdfuse. The server's files are in
  memory, what is read through it is not.

Cases that cannot be measured here are skipped, with a message.

Every run is a process of its own on files of which no page is in memory, that is checked; a round
is every policy once and then once more in the opposite order (ABBA).

An iteration counts as imbalanced if ranks differ by more than a tenth of the training in when,
after the training before began, their batch was done. The first ten of a run are not counted.
Nothing is discarded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import _data
import _harness
import _slow_files

POLICIES = ("shared_deadline", "lobster", "lobster_search", "fixed")
_THROTTLE = _harness.Throttle(200 * 10**6)
_BYTES_PER_S = 10**6
_FILES = 32
_ROOT = Path(__file__).parent.parent

Runs = dict[str, list[dict[str, Any]]]


@contextlib.contextmanager
def _throttled(folder: Path) -> Iterator[Callable[[], None]]:
    read = folder / "read"
    read.symlink_to(folder / "stored")
    try:
        with _harness.DeviceGroup(folder, _THROTTLE) as group:
            yield group.join
    finally:
        read.unlink()


@contextlib.contextmanager
def _afar(folder: Path) -> Iterator[Callable[[], None]]:
    read = folder / "read"
    stored = [folder / "stored" / str(i) for i in range(_FILES)]
    _harness.make_warm([path / "samples" for path in stored])
    mounts = [read / str(i) for i in range(_FILES)]
    try:
        with _slow_files.SlowFiles(stored, mounts, "samples", bytes_per_s=_BYTES_PER_S):
            yield lambda: None
    finally:
        shutil.rmtree(read)


@dataclass(frozen=True)
class Storage:
    name: str
    train_ms: int
    # Makes FOLDER/read for one run; gives what the run's process calls before it reads.
    slowed: Callable[[Path], AbstractContextManager[Callable[[], None]]]
    works: Callable[[], bool]  # here
    needs: str


STORAGES = (
    Storage(
        "throttled", 60, _throttled, _harness.can_throttle, "root, cgroup v1's blkio controller"
    ),
    Storage(
        "afar", 200, _afar, _slow_files.can_slow, "root, /dev/fuse, nbdkit with Python, nbdfuse"
    ),
)


def _run(
    bench: Path, folder: Path, join: Callable[[], None], policy: str, train_ms: int
) -> dict[str, Any]:
    join()
    command = [bench, folder, "--policy", policy, "--train-ms", str(train_ms)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _measure(
    bench: Path, folder: Path, storage: Storage, policy: str, train_ms: int
) -> dict[str, Any]:
    _harness.make_cold(sorted(folder.glob("stored/*/samples")))
    steal = _harness.steal_share()
    with storage.slowed(folder) as join:
        _harness.check_cold(sorted(folder.glob("read/*/samples")))
        run = _harness.in_child(_run, bench, folder, join, policy, train_ms)
    run["steal"] = round(steal(), 4)
    steps = sorted(run["step_ms"])
    run["imbalanced_share"] = round(run["imbalanced"] / len(steps), 4)
    run["p50"], run["p99"] = median(steps), steps[int(0.99 * (len(steps) - 1))]
    print(
        f"  {storage.name}, {policy}: imbalanced {run['imbalanced_share']:.1%}, "
        f"p50 {run['p50']:.1f} ms, p99 {run['p99']:.1f} ms, steal {run['steal']:.1%}",
        flush=True,
    )
    return run


def _table(runs: Runs) -> str:
    lines = [
        "| policy | imbalanced iterations | step, p50 | p99 | p99 / p50 |",
        "|---|---:|---:|---:|---:|",
    ]
    for policy, kept in runs.items():
        steps = sorted(step for run in kept for step in run["step_ms"])
        shares = [run["imbalanced_share"] for run in kept]
        p50, p99 = median(steps), steps[int(0.99 * (len(steps) - 1))]
        lines.append(
            f"| {policy} | {sum(shares) / len(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})"
            f" | {p50:.1f} ms | {p99:.1f} ms | {p99 / p50:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--bench", type=Path, default=_ROOT / "build/release/benchmarks/lanes_bench"
    )
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--storage", choices=[storage.name for storage in STORAGES])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train-ms", type=int, help="instead of the storage's own")
    parser.add_argument("--quick", action="store_true", help="one round, and writes nothing")
    arguments = parser.parse_args()
    arguments.data.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="lanes-", dir=arguments.data)).resolve()
    try:
        subprocess.run([arguments.bench, folder, "--make"], check=True)
        subprocess.run(["sync", *sorted(folder.glob("stored/*/samples"))], check=True)
        for storage in STORAGES:
            if arguments.storage not in (None, storage.name):
                continue
            if storage.works():
                _measure_storage(storage, folder, arguments)
            else:
                print(f"lanes_read, {storage.name}: not measured: needs {storage.needs}")
    finally:
        shutil.rmtree(folder)


def _measure_storage(storage: Storage, folder: Path, arguments: argparse.Namespace) -> None:
    train_ms = arguments.train_ms or storage.train_ms
    runs: Runs = {policy: [] for policy in POLICIES}
    for _ in range(1 if arguments.quick else arguments.rounds):
        for policy in (*POLICIES, *reversed(POLICIES)):
            runs[policy].append(_measure(arguments.bench, folder, storage, policy, train_ms))
    print(_table(runs))
    if arguments.quick:
        return
    _harness.record("lanes_read", {"storage": storage.name, "train_ms": train_ms, "runs": runs})
    page = _ROOT / "docs/schedule.md"
    _harness.replace_generated(
        page, f"<!-- lanes_read {storage.name} -->", "<!-- end -->", _table(runs)
    )


if __name__ == "__main__":
    main()
